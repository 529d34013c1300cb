import asyncio
from functools import partial

from rookery.net.connection import Answer, ConnectionInfo
from rookery.net.outbox import Outbox
from tests.net.support import BOTH_LOOPS, Run, connect, echo, frame, listening, read_reply, until

COUNT = 40
KEPT_MAX = 32


def test_sends_of_one_turn_happen_together_at_its_end_or_when_there_are_many() -> None:
    async def scenario() -> None:
        loop, outbox = asyncio.get_running_loop(), Outbox()
        sent: list[int] = []
        for number in range(COUNT):
            outbox.add(loop, partial(sent.append, number))
            assert len(sent) == (0 if number < KEPT_MAX - 1 else KEPT_MAX)
        await asyncio.sleep(0)
        assert sent == list(range(COUNT))
        outbox.add(loop, lambda: sent.append(COUNT))
        await asyncio.sleep(0)
        assert sent[-1] == COUNT

    asyncio.run(scenario())


@BOTH_LOOPS
def test_the_requests_of_many_connections_are_handled_before_the_first_reply_leaves(run: Run) -> None:
    handled = 0
    handled_at_first_reply = 0

    async def scenario() -> None:
        nonlocal handled_at_first_reply

        def handle(request: memoryview, info: ConnectionInfo) -> Answer:
            nonlocal handled
            handled += 1
            return echo(request, info)

        async with listening(handle) as listener:
            streams = [await connect(listener) for _ in range(KEPT_MAX)]
            await until(lambda: listener.connection_count == KEPT_MAX)
            # Written without letting the broker's side run: all of them are there when it does.
            for _, writer in streams:
                writer.write(frame(b"request"))
            for reader, writer in streams:
                assert await read_reply(reader) == b"request"
                handled_at_first_reply = handled_at_first_reply or handled
                writer.close()

    run(scenario())
    assert handled_at_first_reply == KEPT_MAX
