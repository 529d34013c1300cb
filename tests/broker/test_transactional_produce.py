"""Produce with a transactional id: verification by the coordinator, error codes, the order of waiting requests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast
from uuid import UUID

import pytest

from rookery.base.errors import ErrorCode, ProtocolError
from rookery.broker.handlers import k00_produce
from rookery.net.send import Reply
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.message import Message
from rookery.records.control import Marker
from tests.broker.harness import Broker, batch, decode, running, settle
from tests.broker.transactional import (
    CONFIG,
    FOLLOWER,
    TRANSACTIONS_TOPIC,
    Producer,
    SlowCoordinator,
    add,
    await_state,
    begin,
    describe,
    end,
    lead_with_follower,
    play,
)

VERSIONS = range(DEFINED[ApiKey.PRODUCE].minimum, DEFINED[ApiKey.PRODUCE].maximum + 1)
VERIFYING = range(3, 12)
ADDING = 12


def fields(
    broker: Broker, producer: Producer | None, *records: tuple[int, bytes | None], **more: Any
) -> dict[str, Any]:
    """`records` are (partition, batch) of the topic "orders"."""
    topic = broker.services.image.topics["orders"]
    data = [Message(index=index, records=data) for index, data in records]
    return {
        "transactional_id": None if producer is None else producer.transactional_id,
        "acks": -1,
        "timeout_ms": 60_000,
        "topic_data": [Message(name=topic.name, topic_id=topic.topic_id, partition_data=data)],
    } | more


def results(response: Message) -> list[Message]:
    return [partition for topic in response.responses for partition in topic.partition_responses]


def produce(
    broker: Broker, producer: Producer, *records: tuple[int, bytes | None], version: int = ADDING, **more: Any
) -> list[Message]:
    """Send a request that must be answered in stage 1; return its results."""
    request = fields(broker, producer, *records, **more)
    return results(broker.call_now(ApiKey.PRODUCE, version, **request))


def codes(found: list[Message]) -> list[int]:
    return [result.error_code for result in found]


def send(
    broker: Broker, producer: Producer, *records: tuple[int, bytes], version: int = ADDING, **more: Any
) -> "asyncio.Task[Reply | None]":
    """Send a request that waits, and run it as the connection does."""
    answer = broker.send(ApiKey.PRODUCE, version, **fields(broker, producer, *records, **more))
    assert answer is not None
    assert not isinstance(answer, list), "the answer did not wait"
    return asyncio.ensure_future(answer)


async def answered(task: "asyncio.Task[Reply | None]", version: int = ADDING) -> list[Message]:
    reply = await asyncio.wait_for(task, 60)
    assert reply is not None
    return results(decode(ApiKey.PRODUCE, version, reply))


class WaitingRequest(NamedTuple):
    """A request with one batch that the coordinator has not verified yet."""

    producer: Producer
    coordinator: SlowCoordinator
    task: "asyncio.Task[Reply | None]"


@asynccontextmanager
async def waiting_request(broker: Broker, version: int) -> AsyncIterator[WaitingRequest]:
    """Send the request; older clients add the partition first, whose response also waits for the coordinator."""
    producer = await begin(broker)
    coordinator = SlowCoordinator(broker)
    adding = asyncio.ensure_future(add(broker, producer)) if version < ADDING else None
    await settle()
    task = send(broker, producer, (0, producer.batch(b"a")), version=version)
    await settle()
    yield WaitingRequest(producer, coordinator, task)
    assert adding is None or await adding == ErrorCode.NONE


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transaction_is_written_and_ended(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        if version < ADDING:
            await add(broker, producer, [0, 1])
        both = [(0, producer.batch(b"a")), (1, producer.batch(b"b", b"c"))]
        assert codes(produce(broker, producer, *both, version=version)) == [0, 0]
        (more,) = produce(broker, producer, (0, producer.batch(b"d", sequence=1)), version=version)
        assert (more.error_code, more.base_offset) == (0, 1)
        state = await describe(broker)
        assert (state.transaction_state, state.topics[0].partitions) == ("Ongoing", [0, 1])
        replica = broker.replica("orders")
        assert replica.last_stable_offset == 0
        assert (await end(broker, producer, 5 if version >= ADDING else 4)).error_code == ErrorCode.NONE
        assert (replica.last_stable_offset, replica.log.end_offset) == (3, 3)

    play(tmp_path, scene)


@pytest.mark.parametrize("version", VERIFYING)
def test_a_partition_that_was_not_added(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        await add(broker, producer, [1])
        data = [(0, producer.batch(b"a")), (1, producer.batch(b"b"))]
        refused, written = produce(broker, producer, *data, version=version)
        expected = ErrorCode.TRANSACTION_ABORTABLE if version >= 11 else ErrorCode.INVALID_TXN_STATE
        assert (refused.error_code, refused.base_offset) == (expected, -1)
        assert version < 8 or "not added" in refused.error_message
        assert (written.error_code, written.base_offset) == (0, 0)
        assert broker.replica("orders").log.end_offset == 0

    play(tmp_path, scene)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fenced_or_unknown_producer(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        fenced, current = await begin(broker), await begin(broker)
        await add(broker, current)
        assert codes(produce(broker, fenced, (0, fenced.batch(b"a")), version=version)) == [
            ErrorCode.INVALID_PRODUCER_EPOCH
        ]
        stranger = Producer(current.producer_id + 1, 0)
        assert codes(produce(broker, stranger, (0, stranger.batch(b"a")), version=version)) == [
            ErrorCode.INVALID_PRODUCER_ID_MAPPING
        ]
        assert broker.replica("orders").log.end_offset == 0

    play(tmp_path, scene)


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_coordinator_the_error_is_retriable(tmp_path: Path, version: int) -> None:
    async def main() -> None:
        async with running(tmp_path, config=CONFIG) as broker:
            await broker.create_topic("orders")
            producer = Producer(7, 0)
            (refused,) = produce(broker, producer, (0, producer.batch(b"a")), version=version)
            assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert version < 8 or "COORDINATOR_NOT_AVAILABLE" in refused.error_message

    asyncio.run(main())


@pytest.mark.parametrize("version", [3, 11, 12, 13])
def test_while_the_transaction_before_is_being_ended(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        await add(broker, producer, [0])
        # The marker on partition 0 is not committed, so the transaction cannot be completed.
        lead_with_follower(broker.replica("orders"))
        ended = await end(broker, producer, 5 if version >= ADDING else 4)
        assert ended.error_code == ErrorCode.NONE
        if version >= ADDING:
            producer = producer._replace(epoch=ended.producer_epoch)
        found = codes(produce(broker, producer, (1, producer.batch(b"a")), version=version))
        expected = ErrorCode.CONCURRENT_TRANSACTIONS if version >= ADDING else ErrorCode.NOT_ENOUGH_REPLICAS
        assert found == [expected]

    play(tmp_path, scene)


def test_two_producers_in_one_request(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        producer, other = await begin(broker), await begin(broker, "u")
        data = [(0, producer.batch(b"a")), (1, other.batch(b"b"))]
        assert codes(produce(broker, producer, *data)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2

    play(tmp_path, scene)


@pytest.mark.parametrize("records", [None, b"", b"x" * 200])
def test_malformed_batches_are_left_to_the_append(tmp_path: Path, records: bytes | None) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        plain = codes(results(broker.call_now(ApiKey.PRODUCE, ADDING, **fields(broker, None, (0, records)))))
        assert codes(produce(broker, producer, (0, records))) == plain != [0]
        assert (await describe(broker)).transaction_state == "Empty"

    play(tmp_path, scene)


def test_partitions_that_cannot_be_written_are_not_added(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        data = producer.batch(b"a")
        assert codes(produce(broker, producer, (2, data))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        internal = [Message(name=TRANSACTIONS_TOPIC, partition_data=[Message(index=0, records=data)])]
        found = produce(broker, producer, topic_data=internal)
        assert codes(found) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert (await describe(broker)).transaction_state == "Empty"

    play(tmp_path, scene)


def test_an_unknown_topic_id_is_not_added(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        request = fields(broker, producer, (0, producer.batch(b"a")))
        request["topic_data"][0].topic_id = UUID(int=5)
        found = results(broker.call_now(ApiKey.PRODUCE, 13, **request))
        assert codes(found) == [ErrorCode.UNKNOWN_TOPIC_ID]

    play(tmp_path, scene)


def test_a_transactional_batch_without_a_transactional_id(tmp_path: Path) -> None:
    """Also while the producer's transaction is open, and the other batches of the request with it."""

    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        await add(broker, producer)
        assert codes(produce(broker, producer, (0, producer.batch(b"a")))) == [0]
        batches = (0, producer.batch(b"b", sequence=1)), (1, batch(b"plain"))
        for version in VERSIONS:
            found = results(broker.call_now(ApiKey.PRODUCE, version, **fields(broker, None, *batches)))
            assert codes(found) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
        with pytest.raises(ProtocolError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            broker.send(ApiKey.PRODUCE, ADDING, **fields(broker, None, *batches, acks=0))
        assert codes(produce(broker, producer, (0, producer.batch(b"b", sequence=1)))) == [0]
        (plain,) = results(broker.call_now(ApiKey.PRODUCE, ADDING, **fields(broker, None, (1, batch(b"plain")))))
        assert (plain.error_code, plain.base_offset) == (0, 0)

    play(tmp_path, scene)


def test_a_plain_batch_with_a_transactional_id(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        assert codes(produce(broker, producer, (0, batch(b"a")))) == [0]
        assert (await describe(broker)).transaction_state == "Empty"
        assert codes(produce(broker, producer, (1, producer.batch(b"a")))) == [0]
        plain = producer.batch(b"b", sequence=1, transactional=False)
        assert codes(produce(broker, producer, (1, plain))) == [ErrorCode.INVALID_TXN_STATE]

    play(tmp_path, scene)


def test_a_duplicate_is_not_verified(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        data = producer.batch(b"a")
        produce(broker, producer, (0, data))
        (again,) = produce(broker, producer, (0, data))
        assert (again.error_code, again.base_offset) == (0, 0)
        assert broker.replica("orders").log.end_offset == 1

    play(tmp_path, scene)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("commit", [True, False])
def test_a_duplicate_of_an_ended_transaction_is_rejected(tmp_path: Path, version: int, commit: bool) -> None:
    """In the classic protocol, which keeps the epoch: between two transactions, and in the next one."""

    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        await add(broker, producer, [0, 1])
        data = producer.batch(b"a")
        assert codes(produce(broker, producer, (0, data), version=version)) == [0]
        await end(broker, producer, commit=commit)
        expected = ErrorCode.TRANSACTION_ABORTABLE if version >= 11 else ErrorCode.UNKNOWN_PRODUCER_ID
        (between,) = produce(broker, producer, (0, data), version=version)
        assert (between.error_code, between.base_offset) == (expected, -1)
        assert (await describe(broker)).transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
        await add(broker, producer, [0, 1])
        both = [(0, data), (1, producer.batch(b"b"))]
        refused, written = produce(broker, producer, *both, version=version)
        assert (refused.error_code, refused.base_offset, written.error_code) == (expected, -1, 0)
        # Older clients that get the log's start may take the error for records that retention has deleted.
        assert version < 5 or refused.log_start_offset == -1
        assert version < 8 or "sequence number 0" in refused.error_message
        (begins,) = produce(broker, producer, (0, producer.batch(b"c", sequence=1)), version=version)
        assert (begins.error_code, begins.base_offset) == (0, 2)
        assert codes(produce(broker, producer, (0, data), version=version)) == [expected]
        assert broker.replica("orders").log.end_offset == 3

    play(tmp_path, scene)


@pytest.mark.parametrize("version", VERSIONS)
def test_verification_can_be_switched_off_for_older_clients(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        assert codes(produce(broker, producer, (0, producer.batch(b"a")), version=version)) == [0]
        expected = "Ongoing" if version >= ADDING else "Empty"
        assert (await describe(broker)).transaction_state == expected

    play(tmp_path, scene, transaction_partition_verification_enable="false")


def test_acks_zero_closes_on_an_error(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        request = fields(broker, producer, (0, producer.batch(b"a")), acks=0)
        assert broker.send(ApiKey.PRODUCE, ADDING, **request) is None
        assert broker.replica("orders").log.end_offset == 1
        with pytest.raises(ProtocolError, match="INVALID_TXN_STATE"):
            broker.send(ApiKey.PRODUCE, 3, **fields(broker, producer, (1, producer.batch(b"a")), acks=0))

    play(tmp_path, scene)


@pytest.mark.parametrize("version", [3, 11, 12, 13])
def test_appends_wait_for_the_coordinator(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        async with waiting_request(broker, version) as held:
            assert not held.task.done()
            assert broker.replica("orders").log.end_offset == 0
            await held.coordinator.catch_up()
            (result,) = await answered(held.task, version)
            assert (result.error_code, result.base_offset) == (0, 0)
        assert broker.services.produce_queues.is_free("t")

    play(tmp_path, scene)


def test_later_requests_of_the_producer_are_appended_after_it(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        producer, other = await begin(broker), await begin(broker, "u")
        # The transaction is open on partition 1, which therefore needs no verification.
        produce(broker, producer, (1, producer.batch(b"0")))
        produce(broker, other, (1, other.batch(b"0")))
        coordinator = SlowCoordinator(broker)
        first = send(broker, producer, (0, producer.batch(b"a")), (1, producer.batch(b"a", sequence=1)))
        second = send(broker, producer, (1, producer.batch(b"b", sequence=2)))
        third = send(broker, producer, (0, producer.batch(b"c", sequence=1)))
        assert codes(produce(broker, other, (1, other.batch(b"1", sequence=1)))) == [0], "others do not wait"
        await settle()
        assert not any(task.done() for task in (first, second, third))
        # Requests in the queue send nothing to the coordinator until they run.
        await coordinator.catch_up()
        found = [await answered(task) for task in (first, second, third)]
        assert [codes(each) for each in found] == [[0, 0], [0], [0]]
        assert [[result.base_offset for result in each] for each in found] == [[0, 3], [4], [1]]
        assert codes(produce(broker, producer, (0, producer.batch(b"d", sequence=2)))) == [0], (
            "answered in stage 1 again"
        )

    play(tmp_path, scene)


def test_a_request_does_not_pass_one_whose_verification_is_done(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        coordinator = SlowCoordinator(broker)
        first = send(broker, producer, (0, producer.batch(b"a")))
        replica = broker.replica(TRANSACTIONS_TOPIC)
        await settle()
        replica.read(replica.log.end_offset, 1000, node_id=FOLLOWER)
        # The verification is done, but the event loop has not run the waiting request yet.
        second = send(broker, producer, (0, producer.batch(b"b", sequence=1)))
        found = [await answered(task) for task in (first, second)]
        assert [(each[0].error_code, each[0].base_offset) for each in found] == [(0, 0), (0, 1)]
        await coordinator.catch_up()

    play(tmp_path, scene)


@pytest.mark.parametrize("version", [3, 11, 12, 13])
def test_a_marker_in_between_invalidates_the_verification(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        async with waiting_request(broker, version) as held:
            aborted = Marker(held.producer.producer_id, held.producer.epoch, False, 0)
            assert broker.replica("orders").append_marker(aborted, now_ms=0).error_code is ErrorCode.NONE
            await held.coordinator.catch_up()
            (result,) = await answered(held.task, version)
            assert (result.error_code, result.base_offset) == (ErrorCode.INVALID_TXN_STATE, -1)
            assert broker.replica("orders").log.end_offset == 1, "the marker only"

    play(tmp_path, scene)


def test_a_late_error_closes_a_request_with_acks_zero(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        coordinator = SlowCoordinator(broker)
        adding = asyncio.ensure_future(add(broker, producer, [1]))
        await settle()
        answer = broker.send(ApiKey.PRODUCE, 3, **fields(broker, producer, (0, producer.batch(b"a")), acks=0))
        task = asyncio.ensure_future(cast("Awaitable[Reply | None]", answer))
        await coordinator.catch_up()
        with pytest.raises(ProtocolError, match="INVALID_TXN_STATE"):
            await task
        assert await adding == ErrorCode.NONE

    play(tmp_path, scene)


def test_acks_zero_that_waited_has_no_response(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        coordinator = SlowCoordinator(broker)
        task = send(broker, producer, (0, producer.batch(b"a")), acks=0)
        await coordinator.catch_up()
        assert await task is None
        assert broker.replica("orders").log.end_offset == 1

    play(tmp_path, scene)


def test_after_the_coordinator_the_response_waits_for_the_in_sync_replicas(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        coordinator = SlowCoordinator(broker)
        replica = broker.replica("orders")
        lead_with_follower(replica)
        task = send(broker, producer, (0, producer.batch(b"a")))
        await coordinator.catch_up()
        assert replica.log.end_offset == 1
        assert not task.done()
        assert broker.services.produce_queues.is_free("t"), "the queue is empty after the append"
        replica.read(1, 1000, node_id=FOLLOWER)
        assert codes(await answered(task)) == [0]

    play(tmp_path, scene)


def test_with_an_fsync_for_every_record(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        producer = await begin(broker)
        for number in range(3):
            tasks = [
                send(
                    broker,
                    producer,
                    (0, producer.batch(b"a", sequence=sequence)),
                    (1, producer.batch(b"b", sequence=sequence)),
                )
                for sequence in range(3)
            ]
            found = [await answered(task) for task in tasks]
            assert [codes(each) for each in found] == [[0, 0]] * 3
            offsets = [result.base_offset for each in found for result in each]
            # Three batches and a marker for each transaction.
            assert offsets == [4 * number + place for place in (0, 0, 1, 1, 2, 2)]
            ended = await end(broker, producer, 5)
            assert ended.error_code == ErrorCode.NONE
            producer = producer._replace(epoch=ended.producer_epoch)
            await await_state(broker, "CompleteCommit")
        assert broker.replica("orders").last_stable_offset == 12

    play(tmp_path, scene, log_flush_interval_messages="1")


def test_a_plain_produce_needs_no_coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a plain produce was handled as a transactional one")

    async def scene(broker: Broker) -> None:
        monkeypatch.setattr(k00_produce, "append_transactional", fail)
        idempotent = batch(b"a", producer_id=50, producer_epoch=0, base_sequence=0)
        for data in (batch(b"a"), idempotent):
            for version in VERSIONS:
                found = results(broker.call_now(ApiKey.PRODUCE, version, **fields(broker, None, (0, data))))
                assert codes(found) == [0]

    play(tmp_path, scene)
