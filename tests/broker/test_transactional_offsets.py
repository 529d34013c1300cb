"""TxnOffsetCommit and `require_stable` as frames, in every version, from the begin of a transaction to its end."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.metadata.image import EMPTY_IMAGE
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.broker.harness import Broker, decode, running, settle, versions
from tests.broker.test_groups import commit as commit_plainly
from tests.broker.test_groups import join_known, stable_member
from tests.broker.transactional import (
    CONFIG,
    Producer,
    SlowCoordinator,
    add,
    begin,
    describe,
    end,
    init,
    play,
)

ADDED_SINCE = 5


async def find_group(broker: Broker) -> None:
    await broker.call(ApiKey.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=["g"])


async def add_group(broker: Broker, producer: Producer) -> None:
    """Add the group to the transaction, as clients do before they commit with v0 to v4."""
    response = await broker.call(
        ApiKey.ADD_OFFSETS_TO_TXN,
        3,
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id="g",
    )
    assert response.error_code == ErrorCode.NONE


def committing(producer: Producer, offset: int = 42, **fields: Any) -> dict[str, Any]:
    partition = Message(
        partition_index=fields.pop("partition", 0),
        committed_offset=offset,
        committed_leader_epoch=3,
        committed_metadata=fields.pop("metadata", "note"),
    )
    return {
        "transactional_id": producer.transactional_id,
        "group_id": "g",
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [Message(name=fields.pop("topic", "orders"), partitions=[partition])],
    } | fields


def code_of(response: Message) -> ErrorCode:
    ((partition,),) = (topic.partitions for topic in response.topics)
    return ErrorCode(partition.error_code)


async def commit(broker: Broker, producer: Producer, version: int = 5, offset: int = 42, **fields: Any) -> ErrorCode:
    response = await broker.call(ApiKey.TXN_OFFSET_COMMIT, version, **committing(producer, offset, **fields))
    return code_of(response)


async def begin_with_group(broker: Broker, version: int) -> Producer:
    """Begin a transaction, and add the group to it if the version requires that before the commit."""
    await find_group(broker)
    producer = await begin(broker)
    if version < ADDED_SINCE:
        await add_group(broker, producer)
    return producer


async def fetch(broker: Broker, version: int = 9, *, require_stable: bool = True) -> int | ErrorCode:
    """Return the committed offset, or the error code."""
    topics = [Message(name="orders", topic_id=broker.services.image.topics["orders"].topic_id, partition_indexes=[0])]
    group = {"group_id": "g", "topics": topics}
    fields = group if version < 8 else {"groups": [Message(**group, member_id=None, member_epoch=-1)]}
    response = await broker.call(ApiKey.OFFSET_FETCH, version, **fields, require_stable=require_stable)
    (found,) = response.groups if version >= 8 else [response]
    (partition,) = found.topics[0].partitions
    assert found.get("error_code", 0) == ErrorCode.NONE
    code = ErrorCode(partition.error_code)
    assert code is ErrorCode.NONE or partition.committed_offset == -1
    offset: int = partition.committed_offset
    return offset if code is ErrorCode.NONE else code


@pytest.mark.parametrize("version", versions(ApiKey.TXN_OFFSET_COMMIT))
@pytest.mark.parametrize("committed", [True, False])
def test_offsets_follow_their_transaction(tmp_path: Path, version: int, committed: bool) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin_with_group(broker, version)
        await commit_plainly(broker, topic="orders", offset=7)
        assert await commit(broker, producer, version) is ErrorCode.NONE
        assert await fetch(broker) is ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert await fetch(broker, require_stable=False) == 7
        ended = await end(broker, producer, 5 if version >= ADDED_SINCE else 4, commit=committed)
        assert ended.error_code == ErrorCode.NONE
        assert await fetch(broker) == (42 if committed else 7)

    play(tmp_path, scene)


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH, since=1))
def test_older_fetches_do_not_require_stable_offsets(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        await find_group(broker)
        await commit_plainly(broker, topic="orders", offset=7)
        await commit(broker, await begin(broker))
        expected = ErrorCode.UNSTABLE_OFFSET_COMMIT if version >= 7 else 7
        assert await fetch(broker, version) == expected

    play(tmp_path, scene)


def test_a_commit_adds_the_groups_partition(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        await find_group(broker)
        producer = await begin(broker)
        response = broker.call_now(ApiKey.TXN_OFFSET_COMMIT, 5, **committing(producer))
        assert code_of(response) is ErrorCode.NONE
        state = await describe(broker)
        assert state.transaction_state == "Ongoing"
        (topic,) = state.topics
        partition = broker.services.groups.partition_of("g")
        assert [TopicPartition(topic.topic, index) for index in topic.partitions] == [partition]

    play(tmp_path, scene)


@pytest.mark.parametrize("version", range(ADDED_SINCE))
def test_a_group_that_is_not_part_of_the_transaction(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        await find_group(broker)
        producer = await begin(broker)
        expected = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
        assert await commit(broker, producer, version) is expected
        assert await fetch(broker) == -1

    play(tmp_path, scene)


def test_verification_can_be_switched_off(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        await find_group(broker)
        producer = await begin(broker)
        assert await commit(broker, producer, 3) is ErrorCode.NONE
        assert await fetch(broker) is ErrorCode.UNSTABLE_OFFSET_COMMIT

    play(tmp_path, scene, transaction_partition_verification_enable="false")


@pytest.mark.parametrize("version", versions(ApiKey.TXN_OFFSET_COMMIT))
def test_producers_that_are_not_the_transactions(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin_with_group(broker, version)
        stranger = producer._replace(producer_id=producer.producer_id + 1)
        assert await commit(broker, stranger, version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        unknown = producer._replace(transactional_id="unknown")
        assert await commit(broker, unknown, version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        await end(broker, producer)
        await init(broker)
        assert await commit(broker, producer, version) is ErrorCode.INVALID_PRODUCER_EPOCH

    play(tmp_path, scene)


def test_a_missing_partition_does_not_affect_others(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin_with_group(broker, ADDED_SINCE)
        fields = committing(producer)
        (good,) = fields["topics"]
        bad = committing(producer, partition=9)["topics"][0].partitions
        missing = committing(producer, topic="missing")["topics"][0]
        long = committing(producer, partition=1, metadata="x" * 5000)["topics"][0].partitions
        topics = [Message(name="orders", partitions=[*bad, *good.partitions, *long]), missing]
        response = await broker.call(ApiKey.TXN_OFFSET_COMMIT, 5, **(fields | {"topics": topics}))
        codes = [[ErrorCode(item.error_code).name for item in topic.partitions] for topic in response.topics]
        assert codes == [
            ["UNKNOWN_TOPIC_OR_PARTITION", "NONE", "OFFSET_METADATA_TOO_LARGE"],
            ["UNKNOWN_TOPIC_OR_PARTITION"],
        ]
        assert await commit(broker, producer, topic="missing") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await commit(broker, producer, group_id="") is ErrorCode.INVALID_GROUP_ID

    play(tmp_path, scene)


@pytest.mark.parametrize("version", versions(ApiKey.TXN_OFFSET_COMMIT, since=3))
def test_members_commit_in_their_generation(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin_with_group(broker, version)
        joined = await stable_member(broker, group_instance_id="i")
        member = {"member_id": joined.member_id, "group_instance_id": "i", "generation_id": joined.generation_id}
        assert await commit(broker, producer, version, **member) is ErrorCode.NONE
        stale = member | {"generation_id": joined.generation_id - 1}
        assert await commit(broker, producer, version, **stale) is ErrorCode.ILLEGAL_GENERATION
        other = member | {"member_id": "other"}
        assert await commit(broker, producer, version, **other) is ErrorCode.FENCED_INSTANCE_ID
        unknown = other | {"group_instance_id": None}
        assert await commit(broker, producer, version, **unknown) is ErrorCode.UNKNOWN_MEMBER_ID

    play(tmp_path, scene)


@pytest.mark.parametrize("version", range(3))
def test_old_producers_commit_for_any_group(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin_with_group(broker, version)
        await join_known(broker)
        assert await commit(broker, producer, version) is ErrorCode.NONE

    play(tmp_path, scene)


def test_before_the_offsets_topic_exists_there_is_no_coordinator(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        assert await commit(broker, await begin(broker)) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    play(tmp_path, scene)


@pytest.mark.parametrize("version", versions(ApiKey.TXN_OFFSET_COMMIT))
@pytest.mark.parametrize("loading", ["groups", "transactions"])
def test_while_a_coordinator_loads(tmp_path: Path, version: int, loading: str) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin_with_group(broker, version)
        await commit_plainly(broker, topic="orders", offset=7)
        runtime = getattr(broker.services, loading).runtime
        runtime.apply(EMPTY_IMAGE)
        runtime.apply(broker.services.image)
        code = code_of(broker.call_now(ApiKey.TXN_OFFSET_COMMIT, version, **committing(producer)))
        is_known = version >= 2
        assert code is (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_known else ErrorCode.COORDINATOR_NOT_AVAILABLE)
        await runtime.wait_until_loaded()
        assert await commit(broker, producer, version) is ErrorCode.NONE

    play(tmp_path, scene)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("is_fenced", [False, True])
def test_a_commit_waits_for_the_transactions_coordinator(tmp_path: Path, version: int, is_fenced: bool) -> None:
    async def scene(broker: Broker) -> None:
        producer, other = await begin_with_group(broker, 4), await begin(broker, "other")
        coordinator = SlowCoordinator(broker)
        # All requests wait until the earlier records are committed.
        earlier = asyncio.ensure_future(add(broker, other))
        await settle()
        asked = producer._replace(epoch=-1 if is_fenced else producer.epoch)
        answer = broker.send(ApiKey.TXN_OFFSET_COMMIT, version, **committing(asked))
        assert answer is not None
        assert not isinstance(answer, list)
        task = asyncio.ensure_future(answer)
        await settle()
        assert await fetch(broker) == -1
        await coordinator.catch_up()
        reply = await task
        assert reply is not None
        code = code_of(decode(ApiKey.TXN_OFFSET_COMMIT, version, reply))
        assert code is (ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.NONE)
        assert await earlier is ErrorCode.NONE

    play(tmp_path, scene)


def test_a_commit_after_the_end_of_its_transaction_does_not_hang(tmp_path: Path) -> None:
    """The transaction is open when it is verified, and has ended when the offsets would be appended."""

    async def scene(broker: Broker) -> None:
        producer, other = await begin_with_group(broker, 4), await begin(broker, "other")
        coordinator = SlowCoordinator(broker)
        earlier = asyncio.ensure_future(add(broker, other))
        await settle()
        answer = broker.send(ApiKey.TXN_OFFSET_COMMIT, 4, **committing(producer))
        assert isinstance(answer, Awaitable)
        late, ended = asyncio.ensure_future(answer), asyncio.ensure_future(end(broker, producer, 4))
        await settle()
        await coordinator.catch_up()
        await coordinator.catch_up()
        assert (await ended).error_code == ErrorCode.NONE
        reply = await late
        assert reply is not None
        assert code_of(decode(ApiKey.TXN_OFFSET_COMMIT, 4, reply)) is ErrorCode.INVALID_TXN_STATE
        assert await earlier is ErrorCode.NONE
        offsets = broker.replica("__consumer_offsets", broker.services.groups.runtime.partition_of("g"))
        assert offsets.last_stable_offset == offsets.state.high_watermark

    play(tmp_path, scene)


def test_two_transactions_and_a_plain_commit(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        await find_group(broker)
        first, second = await begin(broker, "first"), await begin(broker, "second")
        assert await commit(broker, first, offset=10) is ErrorCode.NONE
        assert await commit(broker, second, offset=20) is ErrorCode.NONE
        await end(broker, second, 5)
        assert await fetch(broker) is ErrorCode.UNSTABLE_OFFSET_COMMIT
        await end(broker, first, 5)
        assert await fetch(broker) == 20
        third = await begin(broker, "third")
        await commit(broker, third, offset=30)
        await commit_plainly(broker, topic="orders", offset=5)
        await end(broker, third, 5)
        assert await fetch(broker) == 5

    play(tmp_path, scene)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("codec", ["0", "1", "4"])
def test_offsets_of_transactions_survive_a_restart(tmp_path: Path, committed: bool, codec: str) -> None:
    async def main() -> None:
        config = CONFIG | {"offsets.topic.compression.codec": codec}
        async with running(tmp_path, config=config) as broker:
            await broker.create_topic("orders")
            await broker.call(ApiKey.FIND_COORDINATOR, 6, key_type=1, coordinator_keys=["t"])
            await find_group(broker)
            await commit_plainly(broker, topic="orders", offset=7)
            ended, producer = await begin(broker, "ended"), await begin(broker, "open")
            await commit(broker, ended, offset=8)
            await end(broker, ended, 5)
            await commit(broker, producer)
        async with running(tmp_path, config=config) as broker:
            await broker.services.groups.runtime.wait_until_loaded()
            await broker.services.transactions.runtime.wait_until_loaded()
            assert await fetch(broker) is ErrorCode.UNSTABLE_OFFSET_COMMIT
            assert await fetch(broker, require_stable=False) == 8
            assert (await end(broker, producer, 5, commit=committed)).error_code == ErrorCode.NONE
            assert await fetch(broker) == (42 if committed else 8)
        async with running(tmp_path, config=config) as broker:
            await broker.services.groups.runtime.wait_until_loaded()
            assert await fetch(broker) == (42 if committed else 8)

    asyncio.run(main())


def test_deleted_offsets_are_not_committed_later(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin_with_group(broker, ADDED_SINCE)
        await commit(broker, producer)
        topics = [Message(name="orders", partitions=[Message(partition_index=0)])]
        deleted = await broker.call(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=topics)
        assert code_of(deleted) is ErrorCode.NONE
        await end(broker, producer, 5)
        assert await fetch(broker) == -1

    play(tmp_path, scene)
