"""The sampler against a running broker: exact lag in seconds, few requests, what a user may not see."""

import asyncio
from collections.abc import Iterator

import pytest

from rookery.base.clock import ManualClock
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client import Producer
from rookery.client.admin import Admin, OffsetAndMetadata
from rookery.lag import LagMonitor, LagSampler
from rookery.testing import EmbeddedBroker
from tests.lag.schedule import NOW_MS, SCENARIOS, Scenario, age_s, commit, config, created, send

GROUPS = 1000


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    settings = {"log.cleaner.backoff.ms": "20", "offsets.topic.num.partitions": "3"}
    with EmbeddedBroker(settings=settings) as running:
        yield running


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
def test_lag_on_a_schedule(broker: EmbeddedBroker, scenario: Scenario) -> None:
    asyncio.run(scenario(broker.bootstrap_servers))


def requests(admin: Admin) -> int:
    (total,) = [
        value
        for each, value in admin.metrics().items()
        if (each.group, each.name) == ("admin-client-metrics", "request-total")
    ]
    return int(total)


def test_a_thousand_groups_cost_few_requests(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        async with Admin(config(broker.bootstrap_servers)) as admin:
            tp = await created(admin)
            async with Producer[bytes, bytes](config(broker.bootstrap_servers)) as producer:
                await send(producer, tp, 0, 1, 2)
            wanted = [f"many-{number}" for number in range(GROUPS)]
            for number, group_id in enumerate(wanted):
                await admin.commit_offsets(group_id, {tp: OffsetAndMetadata(number % 4)})
            async with Admin(config(broker.bootstrap_servers)) as fresh:
                sampler = LagSampler(fresh, clock=ManualClock(NOW_MS))
                first = await sampler.sample(wanted)
                after_first = requests(fresh)
                await sampler.sample(wanted)
                after_second = requests(fresh)
            assert [group.partitions[0].committed for group in first.groups] == [
                int(group.group_id.removeprefix("many-")) % 4 for group in first.groups
            ]
            assert len(first.groups) == GROUPS
            assert after_first < 60
            assert after_second - after_first < after_first, "coordinators, settings and records are remembered"
            deleted = await admin.delete_groups(wanted)
            assert all(outcome.error == ErrorCode.NONE for outcome in deleted)

    asyncio.run(work())


def test_a_group_that_does_not_exist(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        async with Admin(config(broker.bootstrap_servers)) as admin:
            with pytest.raises(ApiError) as raised:
                await LagMonitor(admin, group_ids=["absent"]).observe()
            assert raised.value.code == ErrorCode.GROUP_ID_NOT_FOUND

    asyncio.run(work())


def test_commits_for_a_deleted_topic_have_no_lag(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        async with Admin(config(broker.bootstrap_servers)) as admin:
            tp = await created(admin)
            group_id = await commit(admin, TopicPartition(tp.topic, 7), 3)
            (group,) = (await LagMonitor(admin, group_ids=[group_id]).observe()).groups
            (found,) = group.partitions
            assert (found.committed, found.end, found.lag, found.lag_s) == (3, None, None, None)

    asyncio.run(work())


def test_all_groups_are_found_and_a_catching_up_group_has_a_trend(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        async with Admin(config(broker.bootstrap_servers)) as admin:
            tp = await created(admin)
            async with Producer[bytes, bytes](config(broker.bootstrap_servers)) as producer:
                await send(producer, tp, *range(10))
            group_id = await commit(admin, tp, 0)
            clock = ManualClock(NOW_MS)
            monitor = LagMonitor(admin, window_s=20, clock=clock)
            for offset in (0, 2, 4):
                await admin.commit_offsets(group_id, {tp: OffsetAndMetadata(offset)})
                report = await monitor.observe()
                clock.advance(10_000)
            (group,) = [each for each in report.groups if each.group_id == group_id]
            assert group.status is not None
            assert (group.status.word, group.trend, group.catch_up_s) == ("fine", -0.2, 30.0)
            assert group.lag_s == age_s(4) + 20

    asyncio.run(work())
