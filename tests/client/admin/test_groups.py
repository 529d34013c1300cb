"""Administration of groups: against a scripted broker, then against a running one."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import confluent_kafka
import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client import Consumer, Producer
from rookery.client.admin import Admin, GroupListing, NewTopic, OffsetAndMetadata, Outcome, PartitionLag
from rookery.client.cluster import Cluster
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.message import Message
from tests.client.admin.scripted import coordinator, in_turn, run_with
from tests.client.fake_broker import HANG_UP, NODE_ID, Responder
from tests.support.broker import BrokerProcess, start_broker

Result = TypeVar("Result")

TP = TopicPartition("t", 0)


def requests_with(
    answers: Mapping[ApiKey, Responder], work: Callable[[Admin], Awaitable[Result]], **versions: int
) -> tuple[Result, list[ApiKey]]:
    """Return the result of `work`, and the APIs that it called, without versions and metadata."""
    result, broker = run_with(answers, work, **versions)
    ignored = (ApiKey.API_VERSIONS, ApiKey.METADATA)
    return result, [key for key, _, _ in broker.requests if key not in ignored]


def deleted(code: ErrorCode) -> Responder:
    return lambda version, request: Message(throttle_time_ms=0, results=[Message(group_id="g", error_code=code)])


@pytest.mark.parametrize("version", range(DEFINED[ApiKey.FIND_COORDINATOR].maximum + 1))
def test_a_coordinator_is_found_in_every_version_and_cached(version: int) -> None:
    async def work(groups: Admin) -> list[Outcome]:
        await groups.delete_groups(["g"])
        return await groups.delete_groups(["g"])

    outcomes, requested = requests_with({ApiKey.DELETE_GROUPS: deleted(ErrorCode.NONE)}, work, FIND_COORDINATOR=version)
    assert outcomes == [Outcome("g", ErrorCode.NONE, None)]
    assert requested == [ApiKey.FIND_COORDINATOR, ApiKey.DELETE_GROUPS, ApiKey.DELETE_GROUPS]


@pytest.mark.parametrize(
    ("failure", "looks_up_again"),
    [
        (deleted(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), False),
        (deleted(ErrorCode.NOT_COORDINATOR), True),
        (deleted(ErrorCode.COORDINATOR_NOT_AVAILABLE), True),
        (lambda version, request: HANG_UP, True),
    ],
)
def test_a_coordinator_that_moves_is_looked_up_again(failure: Responder, looks_up_again: bool) -> None:
    answer = in_turn(failure, deleted(ErrorCode.NON_EMPTY_GROUP))
    outcomes, requested = requests_with({ApiKey.DELETE_GROUPS: answer}, lambda groups: groups.delete_groups(["g"]))
    assert outcomes == [Outcome("g", ErrorCode.NON_EMPTY_GROUP, None)]
    look_ups = requested.count(ApiKey.FIND_COORDINATOR)
    assert (look_ups, requested.count(ApiKey.DELETE_GROUPS)) == (2 if looks_up_again else 1, 2)


@pytest.mark.parametrize("is_named", [True, False], ids=["an error", "no row"])
def test_a_missing_coordinator_is_retried(is_named: bool) -> None:
    def absent(version: int, request: Message) -> Message:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        row = Message(key="g", node_id=-1, host="", port=-1, error_code=code, error_message=None)
        return Message(throttle_time_ms=0, coordinators=[row] if is_named else [])

    answers = {ApiKey.FIND_COORDINATOR: in_turn(absent, coordinator), ApiKey.DELETE_GROUPS: deleted(ErrorCode.NONE)}
    _, requested = requests_with(answers, lambda groups: groups.delete_groups(["g"]))
    assert requested == [ApiKey.FIND_COORDINATOR, ApiKey.FIND_COORDINATOR, ApiKey.DELETE_GROUPS]


@pytest.mark.parametrize("version", range(DEFINED[ApiKey.LIST_GROUPS].maximum + 1))
def test_filters_apply_even_if_the_broker_ignores_them(version: int) -> None:
    def answer(version: int, request: Message) -> Message:
        rows = [
            Message(group_id="b", protocol_type="consumer", group_state="Stable", group_type="consumer"),
            Message(group_id="a", protocol_type="consumer", group_state="Empty", group_type="classic"),
        ]
        return Message(throttle_time_ms=0, error_code=0, groups=rows)

    async def work(groups: Admin) -> tuple[list[GroupListing], list[GroupListing]]:
        return await groups.list_groups(), await groups.list_groups(states=["empty"])

    (everything, empty), _ = requests_with({ApiKey.LIST_GROUPS: answer}, work, LIST_GROUPS=version)
    assert [group.group_id for group in everything] == ["a", "b"]
    assert [group.group_id for group in empty] == (["a"] if version >= 4 else [])


@pytest.mark.parametrize("version", range(2, DEFINED[ApiKey.OFFSET_FETCH].maximum + 1))
def test_committed_offsets_in_every_version(version: int) -> None:
    """From version 10 on, topics have ids only; offsets of deleted topics need names."""

    def answer(version: int, request: Message) -> Message:
        assert version < 10
        row = Message(partition_index=0, committed_offset=5, committed_leader_epoch=3, metadata="note", error_code=0)
        none = Message(partition_index=1, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=0)
        topics = [Message(name="t", partitions=[row, none])]
        group = Message(group_id="g", topics=topics, error_code=0)
        return Message(throttle_time_ms=0, topics=topics, error_code=0, groups=[group])

    found, _ = requests_with(
        {ApiKey.OFFSET_FETCH: answer}, lambda groups: groups.committed_offsets("g"), OFFSET_FETCH=version
    )
    assert found == {TP: OffsetAndMetadata(5, "note", 3 if version >= 5 else -1)}


def test_a_response_without_the_group_is_an_error() -> None:
    with pytest.raises(ApiError) as raised:
        requests_with(
            {ApiKey.OFFSET_FETCH: lambda version, request: Message(throttle_time_ms=0, groups=[])},
            lambda groups: groups.committed_offsets("g"),
        )
    assert raised.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


def classic_group(state: str, code: ErrorCode = ErrorCode.NONE) -> Responder:
    def answer(version: int, request: Message) -> Message:
        assignment = bytes.fromhex("0000 00000001 0001 74 00000001 00000000 ffffffff")
        member = Message(
            member_id="m",
            group_instance_id=None,
            client_id="c",
            client_host="/h",
            member_metadata=b"",
            member_assignment=assignment,
        )
        group = Message(
            error_code=code,
            error_message=None,
            group_id="g",
            group_state=state,
            protocol_type="consumer",
            protocol_data="range",
            members=[member],
            authorized_operations=-1,
        )
        return Message(throttle_time_ms=0, groups=[group])

    return answer


@pytest.mark.parametrize("version", range(DEFINED[ApiKey.DESCRIBE_GROUPS].maximum + 1))
def test_a_broker_without_the_new_protocol_describes_classic_groups(version: int) -> None:
    (described,), _ = requests_with(
        {ApiKey.DESCRIBE_GROUPS: classic_group("Stable")},
        lambda groups: groups.describe_groups(["g"]),
        DESCRIBE_GROUPS=version,
    )
    assert (described.group_type, described.state, described.assignor) == ("classic", "Stable", "range")
    assert (described.coordinator, described.members[0].assignment) == (NODE_ID, (TP,))


@pytest.mark.parametrize("answer", [classic_group("Dead"), classic_group("", ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_group_that_does_not_exist(answer: Responder) -> None:
    (described,), _ = requests_with({ApiKey.DESCRIBE_GROUPS: answer}, lambda groups: groups.describe_groups(["g"]))
    assert described.error is ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(ApiError, match="group g"):
        described.check()


def test_lag_needs_a_committed_offset_and_an_end() -> None:
    assert PartitionLag(TP, 3, 10).lag == 7
    assert PartitionLag(TP, 12, 10).lag == 0
    assert PartitionLag(TP, None, 10).lag is None
    assert PartitionLag(TP, 3, None).lag is None


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data: Path = tmp_path_factory.mktemp("broker") / "data"
    with start_broker(data, "group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=3") as running:
        yield running


def against(broker: BrokerProcess, work: Callable[[Cluster], Awaitable[Result]]) -> Result:
    async def run() -> Result:
        async with Cluster.at(broker.address, timeout_s=20) as cluster:
            return await work(cluster)

    return asyncio.run(run())


def config(cluster: Cluster) -> dict[str, object]:
    """Return the configuration of another client of the same broker."""
    return {"bootstrap.servers": str(cluster.settings.bootstrap_servers[0])}


async def fill(cluster: Cluster, topic: str, *, partitions: int, records: int) -> None:
    """Create a topic with `records` records in each partition."""
    (outcome,) = await Admin.over(cluster).create_topics([NewTopic(name=topic, partitions=partitions)])
    outcome.check()
    async with Producer[bytes, bytes](config(cluster)) as producer:
        for number in range(records * partitions):
            await producer.send(topic, b"%d" % number, partition=number % partitions)


def test_offsets_are_set_read_and_deleted_by_a_non_member(broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        await fill(cluster, "outside", partitions=2, records=10)
        groups = Admin.over(cluster)
        first, second, gone = (TopicPartition("outside", 0), TopicPartition("outside", 1), TopicPartition("gone", 0))
        committed = await groups.commit_offsets(
            "set", {first: OffsetAndMetadata(4, metadata="by hand"), second: OffsetAndMetadata(10)}
        )
        assert committed == {first: ErrorCode.NONE, second: ErrorCode.NONE}
        assert (await groups.committed_offsets("set"))[first].metadata == "by hand"
        lags = await groups.lags("set", assigned=[gone])
        assert [(row.partition, row.committed, row.end, row.lag) for row in lags] == [
            (gone, None, None, None),
            (first, 4, 10, 6),
            (second, 10, 10, 0),
        ]
        assert await groups.delete_offsets("set", [second]) == {second: ErrorCode.NONE}
        assert set(await groups.committed_offsets("set")) == {first}
        assert "set" in [group.group_id for group in await groups.list_groups(states=["Empty"])]
        outcomes = await groups.delete_groups(["set", "missing"])
        assert [outcome.error for outcome in outcomes] == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
        assert await groups.committed_offsets("set") == {}

    against(broker, work)


def test_a_classic_group_is_described(broker: BrokerProcess) -> None:
    against(broker, lambda cluster: fill(cluster, "classic", partitions=2, records=1))
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "classic",
            "client.id": "foreign",
            "group.instance.id": "one",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe(["classic"])
        consumer.consume(2, 20)
        consumer.commit(asynchronous=False)

        async def work(cluster: Cluster) -> None:
            groups = Admin.over(cluster)
            (described,) = await groups.describe_groups(["classic"])
            (member,) = described.members
            assert (described.group_type, described.state, described.assignor) == ("classic", "Stable", "range")
            assert (member.client_id, member.instance_id, member.epoch) == ("foreign", "one", None)
            assert member.assignment == (TopicPartition("classic", 0), TopicPartition("classic", 1))
            assert [row.lag for row in await groups.lags("classic", member.assignment)] == [0, 0]
            rejected = await groups.commit_offsets("classic", {member.assignment[0]: OffsetAndMetadata(0)})
            assert set(rejected.values()) == {ErrorCode.UNKNOWN_MEMBER_ID}
            (outcome,) = await groups.delete_groups(["classic"])
            assert outcome.error == ErrorCode.NON_EMPTY_GROUP
            subscribed = await groups.delete_offsets("classic", member.assignment)
            assert set(subscribed.values()) == {ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}

        against(broker, work)
    finally:
        consumer.close()


def test_a_consumer_group_is_described(broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        await fill(cluster, "new", partitions=3, records=1)
        groups = Admin.over(cluster)
        settings = {"group.id": "new", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
        async with Consumer[bytes, bytes](config(cluster) | settings) as consumer:
            consumer.subscribe("new")
            seen: set[int] = set()
            while len(seen) < 3:
                seen |= {record.partition for record in await consumer.poll()}
            (described,) = await groups.describe_groups(["new"])
            (member,) = described.members
            assert (described.group_type, described.state) == ("consumer", "Stable")
            assert (member.member_id, member.epoch) == (consumer.group_metadata().member_id, described.epoch)
            assert member.assignment == member.target == tuple(TopicPartition("new", index) for index in range(3))
            await consumer.commit()
            subscribed = await groups.delete_offsets("new", member.assignment)
            assert set(subscribed.values()) == {ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
            (listed,) = await groups.list_groups(types=["consumer"], states=["stable"])
            assert listed == GroupListing("new", "consumer", "Stable", "consumer")
        (described,) = await groups.describe_groups(["new"])
        assert described.check().members == ()

    against(broker, work)
