"""max.poll.interval.ms does not expire while a poll waits."""

import asyncio
import random

import pytest

from rookery.client.membership.poll_timer import PollTimer
from rookery.testing import EmbeddedBroker
from tests.client.membership.group_members import TIMEOUT_S, GroupMember, closing, fast, settle
from tests.client.skipping import let_pass
from tests.simulation.loop import SimulatedLoop
from tests.simulation.trace import Trace


def test_a_reminder_follows_the_last_poll_by_a_third_of_the_interval() -> None:
    loop = SimulatedLoop(Trace(), lambda: (0.0, 0.0))
    reminded: list[float] = []
    timer = PollTimer(9_000, remind=lambda: reminded.append(loop.time() - began_s))
    began_s = loop.time()

    async def work() -> None:
        timer.restart()
        await asyncio.sleep(2)
        timer.restart()
        assert timer.left_s == 9
        # No more polls: there is one reminder only.
        await asyncio.sleep(20)
        assert timer.left_s == -11
        timer.restart()
        timer.stop()
        await asyncio.sleep(20)

    loop.run_until_complete(work())
    loop.close()
    assert reminded == [pytest.approx(5)]


class CountingTimer(PollTimer):
    due_count = 0

    def _on_timer(self) -> None:
        self.due_count += 1
        if self.due_count < 10:
            super()._on_timer()


@pytest.mark.parametrize("seed", range(40))
def test_rounding_errors_do_not_repeat_the_timer(seed: int) -> None:
    """Differences of large times have rounding errors."""
    generator = random.Random(seed)
    loop = SimulatedLoop(Trace(), lambda: (0.0, 0.0))

    async def work() -> None:
        await asyncio.sleep(generator.uniform(1, 1e6))
        timer = CountingTimer(generator.randrange(1000, 300_000), remind=lambda: None)
        timer.restart()
        await asyncio.sleep(generator.uniform(0, timer.left_s / 3))
        timer.restart()
        await asyncio.sleep(2 * timer.left_s)
        assert timer.due_count == 2

    loop.run_until_complete(work())
    loop.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_waiting_poll_is_woken_in_time(broker: EmbeddedBroker, protocol: str) -> None:
    topic = f"long-{protocol}"
    broker.create_topic(topic, partitions=1)

    async def work() -> None:
        settings = fast(topic, session_timeout_ms=30_000, max_poll_interval_ms=30_000)
        one = GroupMember(broker.bootstrap_servers, [topic], settings, protocol=protocol)
        async with closing(one):
            await settle(one, sizes=[1])
            one.host.take_events()
            for _ in range(4):
                await one.poll()
                await let_pass(10)
                async with asyncio.timeout(TIMEOUT_S):
                    await one.membership.wake.wait()
            await one.poll()
            assert one.host.take_events() == []

    asyncio.run(work())
