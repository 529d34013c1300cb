"""Requests of transactional producers and tools through the dispatcher, in every version, and the differences."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rookery.base.errors import ErrorCode
from rookery.metadata.image import EMPTY_IMAGE
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.broker.harness import Broker, decode, running, settle, versions
from tests.broker.transactional import (
    CONFIG,
    FOLLOWER,
    TRANSACTIONS_TOPIC,
    Producer,
    SlowCoordinator,
    add,
    adding,
    begin,
    describe,
    end,
    ending,
    init,
    lead_with_follower,
    play,
)

OFFSETS_TOPIC = "__consumer_offsets"


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR, since=1))
def test_find_coordinator_creates_the_topic(tmp_path: Path, version: int) -> None:
    async def main() -> None:
        async with running(tmp_path, config=CONFIG | {"transaction.state.log.segment.bytes": "2000000"}) as broker:
            response = await broker.call(
                ApiKey.FIND_COORDINATOR, version, key="t", key_type=1, coordinator_keys=["t", "u"]
            )
            found = response.coordinators if version >= 4 else [response]
            assert len(found) == (2 if version >= 4 else 1)
            assert {(item.error_code, item.node_id, item.port) for item in found} == {(0, 1, 9092)}
            image = broker.services.image
            assert OFFSETS_TOPIC not in image.topics
            assert len(image.topics[TRANSACTIONS_TOPIC].partitions) == 1
            assert image.topic_config(TRANSACTIONS_TOPIC) == {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "1",
                "segment.bytes": "2000000",
                "unclean.leader.election.enable": "false",
            }

    asyncio.run(main())


def test_a_coordinator_without_an_address_is_not_available(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, config=CONFIG) as broker:
            broker.connection.listener_name = "OTHER"
            response = await broker.call(ApiKey.FIND_COORDINATOR, 6, key_type=1, coordinator_keys=["t"])
            assert response.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    asyncio.run(main())


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
def test_init_producer_id_raises_the_epoch(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        first, second = [await init(broker, version) for _ in range(2)]
        assert (first.error_code, second.error_code) == (0, 0)
        assert second.producer_id == first.producer_id
        assert (first.producer_epoch, second.producer_epoch) == (0, 1)
        other = await init(broker, version, transactional_id="u")
        assert other.producer_id != first.producer_id
        assert other.get("ongoing_txn_producer_id", -1) == -1

    play(tmp_path, scene)


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID, since=3))
def test_init_producer_id_of_a_fenced_instance(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        fenced = await begin(broker)
        await begin(broker)
        response = await init(broker, version, producer_id=fenced.producer_id, producer_epoch=fenced.epoch)
        expected = ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert (response.error_code, response.producer_id, response.producer_epoch) == (expected, -1, -1)

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"enable2_pc": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"keep_prepared_txn": True}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_init_producer_id_errors(tmp_path: Path, fields: dict[str, Any], expected: ErrorCode) -> None:
    async def scene(broker: Broker) -> None:
        assert (await init(broker, 6, **fields)).error_code == expected

    play(tmp_path, scene)


def test_two_phase_commit_is_not_supported_even_if_enabled(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        assert (await init(broker, 6, enable2_pc=True)).error_code == ErrorCode.UNSUPPORTED_VERSION

    play(tmp_path, scene, transaction_two_phase_commit_enable="true")


def test_before_the_topic_exists_there_is_no_coordinator(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, config=CONFIG) as broker:
            await broker.create_topic("orders")
            producer = Producer(7, 0)
            assert (await init(broker)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await add(broker, producer) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            response = await end(broker, producer, 5)
            assert (response.error_code, response.producer_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
            assert (await describe(broker)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            listed = broker.call_now(ApiKey.LIST_TRANSACTIONS, 0, state_filters=[], producer_id_filters=[])
            assert (listed.error_code, listed.transaction_states) == (0, [])

    asyncio.run(main())


@pytest.mark.parametrize("version", versions(ApiKey.ADD_PARTITIONS_TO_TXN)[:4])
def test_add_partitions(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        request = adding(producer, [1, 0])
        response = broker.call_now(ApiKey.ADD_PARTITIONS_TO_TXN, version, **request)
        (topic,) = response.results_by_topic_v3_and_below
        assert topic.name == "orders"
        codes = [(item.partition_index, item.partition_error_code) for item in topic.results_by_partition]
        assert codes == [(1, 0), (0, 0)]
        state = await describe(broker)
        assert (state.transaction_state, state.topics[0].partitions) == ("Ongoing", [0, 1])

    play(tmp_path, scene)


@pytest.mark.parametrize("version", versions(ApiKey.ADD_PARTITIONS_TO_TXN)[:4])
@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TRANSACTIONS_TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_partitions_are_added_together_or_not_at_all(
    tmp_path: Path, version: int, topic: str, expected: ErrorCode
) -> None:
    async def scene(broker: Broker) -> None:
        request = adding(await begin(broker), [0])
        request["v3_and_below_topics"].append(Message(name=topic, partitions=[0]))
        response = broker.call_now(ApiKey.ADD_PARTITIONS_TO_TXN, version, **request)
        codes = [
            item.partition_error_code
            for result in response.results_by_topic_v3_and_below
            for item in result.results_by_partition
        ]
        assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, expected]
        assert (await describe(broker)).transaction_state == "Empty"

    play(tmp_path, scene)


def test_an_unknown_partition_of_a_known_topic(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        assert await add(broker, await begin(broker), [2]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(tmp_path, scene)


def transaction(producer: Producer, *partitions: int, verify_only: bool) -> Message:
    return Message(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        topics=[Message(name="orders", partitions=list(partitions))],
    )


def results_by_transaction(response: Message) -> dict[str, list[int]]:
    return {
        result.transactional_id: [
            item.partition_error_code for topic in result.topic_results for item in topic.results_by_partition
        ]
        for result in response.results_by_transaction
    }


@pytest.mark.parametrize("version", versions(ApiKey.ADD_PARTITIONS_TO_TXN)[4:])
def test_brokers_add_and_verify_partitions_of_several_transactions(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        first, second = await begin(broker), await begin(broker, "u")
        assert await add(broker, first) == ErrorCode.NONE
        stranger = Producer(99, 0, "v")
        response = broker.call_now(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            version,
            transactions=[
                transaction(first, 0, 1, verify_only=True),
                transaction(second, 0, verify_only=False),
                transaction(stranger, 0, verify_only=True),
            ],
        )
        assert response.error_code == ErrorCode.NONE
        assert results_by_transaction(response) == {
            "t": [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE],
            "u": [ErrorCode.NONE],
            "v": [ErrorCode.INVALID_PRODUCER_ID_MAPPING],
        }
        assert (await describe(broker, "u")).transaction_state == "Ongoing"
        assert (await describe(broker)).topics[0].partitions == [0]

    play(tmp_path, scene)


@pytest.mark.parametrize("version", versions(ApiKey.ADD_PARTITIONS_TO_TXN)[4:])
def test_brokers_may_add_internal_topics(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        asked = transaction(await begin(broker), verify_only=False)
        asked.topics = [Message(name=TRANSACTIONS_TOPIC, partitions=[0])]
        response = broker.call_now(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=[asked])
        assert results_by_transaction(response) == {"t": [ErrorCode.NONE]}

    play(tmp_path, scene)


FENCED_VERSIONS = [
    *((ApiKey.ADD_PARTITIONS_TO_TXN, version) for version in range(4)),
    *((ApiKey.ADD_OFFSETS_TO_TXN, version) for version in versions(ApiKey.ADD_OFFSETS_TO_TXN)),
    *((ApiKey.END_TXN, version) for version in versions(ApiKey.END_TXN)),
]


@pytest.mark.parametrize(("api_key", "version"), FENCED_VERSIONS, ids=lambda value: getattr(value, "name", f"v{value}"))
def test_a_fenced_producer_gets_the_error_code_of_its_version(tmp_path: Path, api_key: ApiKey, version: int) -> None:
    async def scene(broker: Broker) -> None:
        fenced = await begin(broker)
        current = await begin(broker)
        await add(broker, current)
        if api_key == ApiKey.ADD_PARTITIONS_TO_TXN:
            code: int = await add(broker, fenced, version=version)
        elif api_key == ApiKey.END_TXN:
            code = (await end(broker, fenced, version)).error_code
        else:
            code = (await add_offsets(broker, fenced, version)).error_code
        assert code == (ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH)

    play(tmp_path, scene)


async def add_offsets(broker: Broker, producer: Producer, version: int, group_id: str = "g") -> Message:
    return await broker.call(
        ApiKey.ADD_OFFSETS_TO_TXN,
        version,
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group_id,
    )


@pytest.mark.parametrize("version", versions(ApiKey.ADD_OFFSETS_TO_TXN))
def test_add_offsets_creates_the_topic_and_adds_the_groups_partition(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        for group_id in ("g", "h"):
            assert (await add_offsets(broker, producer, version, group_id)).error_code == ErrorCode.NONE
        expected = sorted(broker.services.groups.runtime.partition_of(group_id) for group_id in ("g", "h"))
        (topic,) = (await describe(broker)).topics
        assert (topic.topic, topic.partitions) == (OFFSETS_TOPIC, expected)

    play(tmp_path, scene)


def test_add_offsets_without_a_topic_for_them(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        assert (await add_offsets(broker, producer, 4)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    # More partitions than one request may create.
    play(tmp_path, scene, offsets_topic_num_partitions="100000")


@pytest.mark.parametrize("version", versions(ApiKey.END_TXN))
@pytest.mark.parametrize("commit", [True, False])
def test_end(tmp_path: Path, version: int, commit: bool) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        await add(broker, producer, [0, 1])
        response = broker.call_now(ApiKey.END_TXN, version, **ending(producer, commit=commit))
        assert response.error_code == ErrorCode.NONE
        if version >= 5:
            assert (response.producer_id, response.producer_epoch) == (producer.producer_id, producer.epoch + 1)
        state = await describe(broker)
        assert state.transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
        assert state.producer_epoch == producer.epoch + (version >= 5)
        assert state.topics == []
        assert [broker.replica("orders", index).log.end_offset for index in (0, 1)] == [1, 1]
        again = await end(broker, producer, version, commit=commit)
        assert again.error_code == ErrorCode.NONE
        other = await end(broker, producer, version, commit=not commit)
        assert other.error_code == ErrorCode.INVALID_TXN_STATE

    play(tmp_path, scene)


def test_the_response_to_end_txn_waits_until_it_is_committed(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        await add(broker, producer)
        coordinator = SlowCoordinator(broker)
        answer = broker.send(ApiKey.END_TXN, 5, **ending(producer, commit=True))
        assert answer is not None
        assert not isinstance(answer, list)
        task = asyncio.ensure_future(answer)
        await settle()
        assert not task.done()
        assert broker.replica("orders").log.end_offset == 0, "no marker before the outcome is committed"
        await coordinator.catch_up()
        reply = await task
        assert reply is not None
        assert decode(ApiKey.END_TXN, 5, reply).error_code == ErrorCode.NONE
        assert broker.replica("orders").log.end_offset == 1

    play(tmp_path, scene)


def marker(producer_id: int, *topics: tuple[str, list[int]], **fields: Any) -> Message:
    request = {"producer_epoch": 3, "transaction_result": True, "coordinator_epoch": 5, "transaction_version": 0}
    items = [Message(name=name, partition_indexes=indexes) for name, indexes in topics]
    return Message(producer_id=producer_id, topics=items, **(request | fields))


def marker_codes(response: Message) -> dict[tuple[int, str, int], int]:
    return {
        (item.producer_id, topic.name, partition.partition_index): partition.error_code
        for item in response.markers
        for topic in item.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", versions(ApiKey.WRITE_TXN_MARKERS))
def test_each_marker_has_its_own_result(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        first = marker(7, ("orders", [0, 2]), ("missing", [0]), ("orders", [1]))
        response = broker.call_now(
            ApiKey.WRITE_TXN_MARKERS, version, markers=[first, marker(8, ("orders", [0]), transaction_result=False)]
        )
        assert marker_codes(response) == {
            (7, "orders", 0): ErrorCode.NONE,
            (7, "orders", 1): ErrorCode.NONE,
            (7, "orders", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            (7, "missing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            (8, "orders", 0): ErrorCode.NONE,
        }
        assert [broker.replica("orders", index).log.end_offset for index in (0, 1)] == [2, 1]

    play(tmp_path, scene)


@pytest.mark.parametrize("version", versions(ApiKey.WRITE_TXN_MARKERS))
def test_rejected_markers(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        write = [marker(7, ("orders", [0]))]
        assert set(marker_codes(broker.call_now(ApiKey.WRITE_TXN_MARKERS, version, markers=write)).values()) == {0}
        for change, expected in (
            ({"producer_epoch": 2}, ErrorCode.INVALID_PRODUCER_EPOCH),
            ({"coordinator_epoch": 4}, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        ):
            write = [marker(7, ("orders", [0]), **change)]
            response = broker.call_now(ApiKey.WRITE_TXN_MARKERS, version, markers=write)
            assert marker_codes(response) == {(7, "orders", 0): expected}

    play(tmp_path, scene)


def test_two_markers_of_a_producer_are_one_item(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        markers = [marker(7, ("orders", [0])), marker(7, ("orders", [1])), marker(9)]
        response = broker.call_now(ApiKey.WRITE_TXN_MARKERS, 1, markers=markers)
        assert [item.producer_id for item in response.markers] == [7, 9]
        (topic,) = response.markers[0].topics
        assert [partition.partition_index for partition in topic.partitions] == [0, 1]

    play(tmp_path, scene)


def test_a_marker_for_a_missing_group_coordinator(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        response = broker.call_now(ApiKey.WRITE_TXN_MARKERS, 2, markers=[marker(7, (OFFSETS_TOPIC, [0]))])
        assert marker_codes(response) == {(7, OFFSETS_TOPIC, 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}

    play(tmp_path, scene)


def test_markers_wait_for_the_in_sync_replicas(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        replica = broker.replica("orders", 1)
        lead_with_follower(replica)
        answer = broker.send(ApiKey.WRITE_TXN_MARKERS, 2, markers=[marker(7, ("orders", [0, 1]))])
        assert answer is not None
        assert not isinstance(answer, list)
        task = asyncio.ensure_future(answer)
        await settle()
        assert not task.done()
        replica.read(replica.log.end_offset, 1000, node_id=FOLLOWER)
        reply = await task
        assert reply is not None
        assert set(marker_codes(decode(ApiKey.WRITE_TXN_MARKERS, 2, reply)).values()) == {ErrorCode.NONE}

    play(tmp_path, scene)


def test_describe(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        await add(broker, producer, [1])
        response = broker.call_now(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["t", "missing", ""])
        open_one, missing, empty = response.transaction_states
        assert (open_one.transactional_id, open_one.error_code, open_one.transaction_state) == ("t", 0, "Ongoing")
        assert (open_one.producer_id, open_one.producer_epoch) == producer[:2]
        assert open_one.transaction_timeout_ms == 60_000
        assert open_one.transaction_start_time_ms == broker.services.clock.now_ms()
        assert [(topic.topic, topic.partitions) for topic in open_one.topics] == [("orders", [1])]
        assert (missing.transactional_id, missing.error_code) == ("missing", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        assert (missing.producer_id, missing.topics) == (-1, [])
        assert empty.error_code == ErrorCode.INVALID_REQUEST

    play(tmp_path, scene)


def listed(broker: Broker, version: int, **filters: Any) -> Message:
    request = {"state_filters": [], "producer_id_filters": []} | filters
    return broker.call_now(ApiKey.LIST_TRANSACTIONS, version, **request)


def names(response: Message) -> list[str]:
    assert response.error_code == ErrorCode.NONE
    return sorted(state.transactional_id for state in response.transaction_states)


@pytest.mark.parametrize("version", versions(ApiKey.LIST_TRANSACTIONS))
def test_list(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        producers = {name: await begin(broker, name) for name in ("t-1", "t-2", "u")}
        await add(broker, producers["u"])
        response = listed(broker, version)
        assert names(response) == ["t-1", "t-2", "u"]
        (open_one,) = listed(broker, version, state_filters=["Ongoing", "Odd"]).transaction_states
        assert (open_one.transactional_id, open_one.transaction_state) == ("u", "Ongoing")
        assert open_one.producer_id == producers["u"].producer_id
        assert names(listed(broker, version, producer_id_filters=[producers["t-2"].producer_id])) == ["t-2"]
        assert listed(broker, version, state_filters=["Ongoing", "Odd"]).unknown_state_filters == ["Odd"]
        unknown = listed(broker, version, state_filters=["Odd"])
        assert (names(unknown), unknown.unknown_state_filters) == ([], ["Odd"])

    play(tmp_path, scene)


@pytest.mark.parametrize("version", versions(ApiKey.LIST_TRANSACTIONS, since=1))
def test_list_by_duration(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        await add(broker, await begin(broker))
        assert names(listed(broker, version, duration_filter=-1)) == ["t"]
        assert names(listed(broker, version, duration_filter=1000)) == []

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("t-.*", ["t-1", "t-2"]), ("t", []), ("", ["t-1", "t-2", "u"]), (None, ["t-1", "t-2", "u"])],
)
def test_list_by_pattern(tmp_path: Path, pattern: str | None, expected: list[str]) -> None:
    async def scene(broker: Broker) -> None:
        for name in ("t-1", "t-2", "u"):
            await begin(broker, name)
        assert names(listed(broker, 2, transactional_id_pattern=pattern)) == expected

    play(tmp_path, scene)


def test_list_with_a_malformed_pattern(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        response = listed(broker, 2, transactional_id_pattern="(")
        assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert response.transaction_states == []

    play(tmp_path, scene)


def test_list_while_loading(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        await begin(broker)
        runtime = broker.services.transactions.runtime
        runtime.apply(EMPTY_IMAGE)
        runtime.apply(broker.services.image)
        assert listed(broker, 2).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await runtime.wait_until_loaded()
        assert names(listed(broker, 2)) == ["t"]

    play(tmp_path, scene)
