"""Members of a group that come and go, against a running broker; and what a broker without groups is told to be."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.admin import Admin, NewTopic
from rookery.client.cluster import Cluster
from rookery.client.consumer import BEGINNING, ConsumedRecord, Consumer, Start
from rookery.client.coordinators import Coordinators
from rookery.client.group_consumer import GroupConsumer
from rookery.client.group_member import Member
from rookery.client.groups import CommittedOffset, GroupAdmin
from rookery.client.producer import Producer
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.client.fake_broker import FakeBroker
from tests.client.test_groups import coordinator, fill
from tests.support.broker import BrokerProcess, start_broker

PARTITIONS = 4
SETTINGS = (
    "offsets.topic.num.partitions=3",
    "group.consumer.min.heartbeat.interval.ms=100",
    "group.consumer.heartbeat.interval.ms=100",
    "group.consumer.min.session.timeout.ms=1000",
    "group.consumer.session.timeout.ms=1000",
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data: Path = tmp_path_factory.mktemp("broker") / "data"
    with start_broker(data, *SETTINGS) as running:
        yield running


async def from_beginning(_: Consumer, partitions: list[TopicPartition]) -> Mapping[TopicPartition, Start]:
    return dict.fromkeys(partitions, BEGINNING)


def run(broker: BrokerProcess, topic: str, work: Callable[[Cluster], Awaitable[None]], *, records: int = 10) -> None:
    async def prepared() -> None:
        async with Cluster.at(broker.address, timeout_s=20) as cluster:
            await fill(cluster, topic, partitions=PARTITIONS, records=records)
            await work(cluster)

    asyncio.run(prepared())


@asynccontextmanager
async def member(cluster: Cluster, topic: str, *, commit_interval_s: float = 60) -> AsyncIterator[GroupConsumer]:
    """A member that commits when it gives something away or leaves, and not in between."""
    consumer = GroupConsumer(cluster, topic, [topic], find_starts=from_beginning, commit_interval_s=commit_interval_s)
    async with consumer:
        yield consumer


async def settle(*members: GroupConsumer, sizes: list[int]) -> list[ConsumedRecord]:
    """Poll all members in turn until they share the partitions so; what they read meanwhile."""
    records: list[ConsumedRecord] = []
    while not all(one.is_settled for one in members) or sorted(len(one.positions()) for one in members) != sizes:
        for one in members:
            records += await one.poll()
    return records


async def read(count: int, *members: GroupConsumer) -> list[ConsumedRecord]:
    records: list[ConsumedRecord] = []
    while len(records) < count:
        for one in members:
            records += await one.poll()
    return records


async def committed(cluster: Cluster, group_id: str) -> list[int]:
    offsets = await GroupAdmin(cluster).committed_offsets(group_id)
    return [offsets[tp].offset for tp in sorted(offsets)]


def test_a_member_goes_on_where_the_group_stopped(broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        async with member(cluster, "resume") as first:
            assert len(await read(40, first)) == 40
            await first.commit()
        assert await committed(cluster, "resume") == [10] * PARTITIONS
        async with Producer(cluster) as producer:
            await producer.send("resume", b"new", partition=2)
        async with member(cluster, "resume") as second:
            assert [(r.partition, r.offset, r.value) for r in await read(1, second)] == [(2, 10, b"new")]

    run(broker, "resume", work)


def test_what_was_not_processed_is_read_again(broker: BrokerProcess) -> None:
    """A member that leaves has committed what the polls before the last returned, and no more."""

    async def work(cluster: Cluster) -> None:
        async with member(cluster, "again") as first:
            records = await read(40, first)
            first.give_back(record for record in records if record.offset >= 7)
            await first.commit()
        assert await committed(cluster, "again") == [7] * PARTITIONS
        async with member(cluster, "again") as second:
            await read(12, second)
        assert await committed(cluster, "again") == [7] * PARTITIONS
        async with member(cluster, "again") as third:
            assert sorted(record.offset for record in await read(12, third)) == [7] * 4 + [8] * 4 + [9] * 4

    run(broker, "again", work)


def test_partitions_change_hands_and_every_record_is_read_once(broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(member(cluster, "hands"))
            seen = await settle(first, sizes=[4])
            second = await stack.enter_async_context(member(cluster, "hands"))
            seen += await settle(first, second, sizes=[2, 2])
            async with member(cluster, "hands") as third:
                seen += await settle(first, second, third, sizes=[1, 1, 2])
                owned = [tp for one in (first, second, third) for tp in one.positions()]
                assert sorted(owned) == [TopicPartition("hands", index) for index in range(PARTITIONS)]
                await send_more(cluster)
                seen += await read(80 - len(seen), first, second, third)
                # Only now does what it read last count as processed.
                await third.commit()
            seen += await settle(first, second, sizes=[2, 2])
            places = [(record.partition, record.offset) for record in seen]
            assert sorted(places) == [(partition, offset) for partition in range(4) for offset in range(20)]

    async def send_more(cluster: Cluster) -> None:
        async with Producer(cluster) as producer:
            for number in range(40):
                await producer.send("hands", b"more", partition=number % PARTITIONS)

    run(broker, "hands", work)


def test_commits_are_made_as_time_goes_by(broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        async with member(cluster, "interval", commit_interval_s=0) as one:
            await read(40, one)
            await one.poll()
            assert await committed(cluster, "interval") == [10] * PARTITIONS

    run(broker, "interval", work)


def test_a_member_that_was_given_up_begins_anew(broker: BrokerProcess) -> None:
    """It stalls, another takes over and commits; what it read before is not committed over that."""

    async def work(cluster: Cluster) -> None:
        async with member(cluster, "stalled") as first, Cluster.at(broker.address) as elsewhere:
            await read(40, first)
            # Nothing beats any more, as if the process were stopped.
            assert first._heartbeats is not None
            first._heartbeats.cancel()
            async with member(elsewhere, "stalled") as second:
                assert len(await read(40, second)) == 40
                await second.commit()
                first._heartbeats = asyncio.create_task(first._keep_beating())
                assert await settle(first, second, sizes=[2, 2]) == []
        assert await committed(cluster, "stalled") == [10] * PARTITIONS

    run(broker, "stalled", work)


def test_a_member_that_was_given_up_while_it_looked_for_its_place_looks_again(broker: BrokerProcess) -> None:
    """It is put out after it saw that nothing is committed, and is back with the same partitions before it begins."""

    async def work(cluster: Cluster) -> None:
        async def meanwhile(_: Consumer, partitions: list[TopicPartition]) -> Mapping[TopicPartition, Start]:
            state = first._member
            epoch, target = state.epoch, state.target
            assert first._heartbeats is not None
            first._heartbeats.cancel()
            leave = Member(state.group_id, (), member_id=state.member_id).leave()
            await Coordinators(cluster).call(
                state.group_id,
                ApiKey.CONSUMER_GROUP_HEARTBEAT,
                lambda: leave,
                codes=lambda response: [response.error_code],
            )
            await GroupAdmin(cluster).commit_offsets(state.group_id, dict.fromkeys(partitions, CommittedOffset(10)))
            first._heartbeats = asyncio.create_task(first._keep_beating())
            while (state.epoch, state.target) in ((epoch, target), (0, frozenset())):
                await asyncio.sleep(0.01)
            assert state.target == target
            return dict.fromkeys(partitions, BEGINNING)

        first = GroupConsumer(cluster, "place", ["place"], find_starts=meanwhile, commit_interval_s=60)
        async with first:
            assert await settle(first, sizes=[4]) == []
            assert set(first.positions().values()) == {10}

    run(broker, "place", work)


def test_a_coordinator_that_comes_back(tmp_path: Path) -> None:
    async def work() -> None:
        async with Cluster.at(first.address, timeout_s=30) as cluster:
            await fill(cluster, "back", partitions=PARTITIONS, records=10)
            async with member(cluster, "back") as one:
                await read(40, one)
                await asyncio.to_thread(first.kill)
                second = await asyncio.to_thread(start_broker, tmp_path / "data", *SETTINGS, port=first.port)
                with second:
                    async with Producer(cluster) as producer:
                        await producer.send("back", b"after", partition=0)
                    assert [record.value for record in await read(1, one)] == [b"after"]
                    await one.commit()
                    assert await committed(cluster, "back") == [11, 10, 10, 10]
                    await one.close()

    with start_broker(tmp_path / "data", *SETTINGS) as first:
        asyncio.run(work())


def test_a_deleted_topic_is_let_go(broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        await Admin(cluster).create_topics([NewTopic(name="stays", partitions=1)])
        async with GroupConsumer(cluster, "deleted", ["deleted", "stays"], find_starts=from_beginning) as one:
            await settle(one, sizes=[5])
            await Admin(cluster).delete_topics(["deleted"])
            await settle(one, sizes=[1])
            assert list(one.positions()) == [TopicPartition("stays", 0)]

    run(broker, "deleted", work)


def refusing(code: ErrorCode | None) -> ApiError:
    """What a member says to a broker that answers its heartbeat so, or does not know heartbeats."""

    def answer(version: int, request: Message) -> Message:
        return Message(
            throttle_time_ms=0,
            error_code=code,
            error_message="the broker's reason",
            member_id=None,
            member_epoch=0,
            heartbeat_interval_ms=0,
            assignment=None,
        )

    async def join() -> None:
        script = {ApiKey.FIND_COORDINATOR: coordinator}
        known = {ApiKey.CONSUMER_GROUP_HEARTBEAT: answer} if code is not None else {}
        async with (
            FakeBroker({**script, **known}, topics={"t": 1}) as broker,
            Cluster([broker.address], timeout_s=5) as cluster,
            GroupConsumer(cluster, "g", ["t"]),
        ):
            pass

    with pytest.raises(ApiError) as caught:
        asyncio.run(join())
    return caught.value


@pytest.mark.parametrize("code", [None, ErrorCode.UNSUPPORTED_VERSION])
def test_a_broker_without_the_protocol_is_told_so(code: ErrorCode | None) -> None:
    error = refusing(code)
    assert error.message == "group g: the broker does not offer the consumer group protocol of KIP-848"


def test_a_refusal_carries_the_brokers_reason() -> None:
    error = refusing(ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert (error.code, error.message) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "group g: the broker's reason")
