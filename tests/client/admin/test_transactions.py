"""Administration of transactions, against a scripted broker."""

from collections.abc import Mapping
from typing import Any

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.admin import (
    AbortTarget,
    ActiveProducer,
    FencedProducer,
    OpenTransaction,
    PartitionProducers,
    TransactionDescription,
    TransactionListing,
)
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.message import Message
from tests.client.admin.scripted import in_turn, run_with
from tests.client.fake_broker import HANG_UP, NODE_ID, FakeBroker, Responder

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def listed(*ids: tuple[str, int], code: ErrorCode = ErrorCode.NONE) -> Responder:
    rows = [Message(transactional_id=name, producer_id=number, transaction_state="Ongoing") for name, number in ids]
    return lambda version, request: Message(
        throttle_time_ms=0, error_code=code, unknown_state_filters=[], transaction_states=rows
    )


def described(
    *partitions: int, code: ErrorCode = ErrorCode.NONE, start_ms: int = 5, state: str = "Ongoing"
) -> Responder:
    def answer(version: int, request: Message) -> Message:
        (name,) = request.transactional_ids
        topics = [Message(topic="t", partitions=list(partitions))] if partitions else []
        row = Message(
            error_code=code,
            transactional_id=name,
            transaction_state=state,
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=start_ms,
            producer_id=9,
            producer_epoch=2,
            topics=topics,
        )
        return Message(throttle_time_ms=0, transaction_states=[row])

    return answer


def producer(number: int, *, start: int = -1, last_ms: int = 1, coordinator_epoch: int = -1) -> Message:
    return Message(
        producer_id=number,
        producer_epoch=2,
        last_sequence=7,
        last_timestamp=last_ms,
        coordinator_epoch=coordinator_epoch,
        current_txn_start_offset=start,
    )


def producing(producers: Mapping[int, list[Message]], code: ErrorCode = ErrorCode.NONE) -> Responder:
    def answer(version: int, request: Message) -> Message:
        topics = [
            Message(
                name=topic.name,
                partitions=[
                    Message(
                        partition_index=index,
                        error_code=code,
                        error_message=None,
                        active_producers=producers.get(index, []),
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
        return Message(throttle_time_ms=0, topics=topics)

    return answer


def active(number: int, start: int | None, *, last_ms: int = 1, coordinator_epoch: int | None = None) -> ActiveProducer:
    return ActiveProducer(
        producer_id=number,
        producer_epoch=2,
        coordinator_epoch=coordinator_epoch,
        last_sequence=7,
        last_timestamp_ms=last_ms,
        transaction_start=start,
    )


@pytest.mark.parametrize("version", range(DEFINED[ApiKey.LIST_TRANSACTIONS].maximum + 1))
def test_list_in_every_version(version: int) -> None:
    answers = {
        ApiKey.LIST_TRANSACTIONS: in_turn(
            listed(code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), listed(("b", 2), ("a", 1))
        )
    }
    found, broker = run_with(
        answers,
        lambda admin: admin.list_transactions(states=["Ongoing"], producer_ids=[1, 2]),
        LIST_TRANSACTIONS=version,
    )
    assert found == [TransactionListing("a", NODE_ID, 1, "Ongoing"), TransactionListing("b", NODE_ID, 2, "Ongoing")]
    request = broker.requests_of(ApiKey.LIST_TRANSACTIONS)[-1]
    assert (request.state_filters, request.producer_id_filters) == (["Ongoing"], [1, 2])
    assert request.get("duration_filter", -1) == -1
    assert request.get("transactional_id_pattern") is None


@pytest.mark.parametrize(
    ("filters", "since"), [({"running_longer_than_ms": 0}, 1), ({"id_pattern": "a.*"}, 2)], ids=["duration", "pattern"]
)
def test_a_broker_that_is_too_old_for_a_filter(filters: dict[str, Any], since: int) -> None:
    def list_with(version: int) -> FakeBroker:
        answers = {ApiKey.LIST_TRANSACTIONS: listed()}
        _, broker = run_with(
            answers,
            lambda admin: admin.list_transactions(**filters),
            LIST_TRANSACTIONS=version,
        )
        return broker

    (request,) = list_with(since).requests_of(ApiKey.LIST_TRANSACTIONS)
    assert (request.get("duration_filter"), request.get("transactional_id_pattern")) in ((0, None), (-1, "a.*"))
    with pytest.raises(ApiError, match="too old") as caught:
        list_with(since - 1)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_describe() -> None:
    failures = [described(code=ErrorCode.NOT_COORDINATOR), lambda version, request: HANG_UP]
    (description,), broker = run_with(
        {ApiKey.DESCRIBE_TRANSACTIONS: in_turn(*failures, described(1, 0))},
        lambda admin: admin.describe_transactions(["x"]),
    )
    assert description == TransactionDescription(
        transactional_id="x",
        coordinator=NODE_ID,
        producer_id=9,
        producer_epoch=2,
        state="Ongoing",
        timeout_ms=60_000,
        start_ms=5,
        partitions=(T0, T1),
    )
    assert len(broker.requests_of(ApiKey.FIND_COORDINATOR)) == 3, "looked up again after it moved"


def test_describe_an_unknown_id() -> None:
    answers = {ApiKey.DESCRIBE_TRANSACTIONS: described(code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)}
    (description,), _ = run_with(answers, lambda admin: admin.describe_transactions(["x"]))
    assert description.error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    with pytest.raises(ApiError, match="transactional id x"):
        description.check()


@pytest.mark.parametrize("node", [None, NODE_ID])
def test_describe_producers(node: int | None) -> None:
    answers = {ApiKey.DESCRIBE_PRODUCERS: producing({0: [producer(8), producer(3, start=4, coordinator_epoch=0)]})}
    found, _ = run_with(answers, lambda admin: admin.describe_producers([T1, T0], node=node))
    assert found == {
        T0: PartitionProducers(partition=T0, producers=(active(3, 4, coordinator_epoch=0), active(8, None))),
        T1: PartitionProducers(partition=T1, producers=()),
    }
    opened, _ = run_with(answers, lambda admin: admin.open_transactions([T0, T1], node=node))
    assert opened == [OpenTransaction(T0, active(3, 4, coordinator_epoch=0))]


def test_a_partition_that_cannot_be_described() -> None:
    answers = {ApiKey.DESCRIBE_PRODUCERS: producing({}, ErrorCode.INVALID_TOPIC_EXCEPTION)}
    found, _ = run_with(answers, lambda admin: admin.describe_producers([T0]))
    assert found[T0].error is ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(ApiError, match="partition t-0"):
        run_with(answers, lambda admin: admin.open_transactions([T0]))


def marked(code: ErrorCode) -> Responder:
    def answer(version: int, request: Message) -> Message:
        (marker,) = request.markers
        (topic,) = marker.topics
        rows = [Message(partition_index=index, error_code=code) for index in topic.partition_indexes]
        result = Message(producer_id=marker.producer_id, topics=[Message(name=topic.name, partitions=rows)])
        return Message(markers=[result])

    return answer


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("known_epoch", "sent"), [(None, 0), (6, 6)])
def test_abort_writes_a_marker_at_the_leader(version: int, known_epoch: int | None, sent: int) -> None:
    target = AbortTarget.of(OpenTransaction(T1, active(3, 4, coordinator_epoch=known_epoch)))
    answer = in_turn(marked(ErrorCode.NOT_LEADER_OR_FOLLOWER), marked(ErrorCode.NONE))
    _, broker = run_with(
        {ApiKey.WRITE_TXN_MARKERS: answer},
        lambda admin: admin.abort_transaction(target),
        WRITE_TXN_MARKERS=version,
    )
    _, request = broker.requests_of(ApiKey.WRITE_TXN_MARKERS)
    (marker,) = request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (3, 2, sent)
    assert (marker.transaction_result, marker.get("transaction_version", 0)) == (False, 0)
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", [1])]


def test_an_abort_that_is_rejected() -> None:
    target = AbortTarget(partition=T0, producer_id=3, producer_epoch=2, coordinator_epoch=0)
    answers = {ApiKey.WRITE_TXN_MARKERS: marked(ErrorCode.INVALID_PRODUCER_EPOCH)}
    with pytest.raises(ApiError, match="t-0, producer id 3") as caught:
        run_with(answers, lambda admin: admin.abort_transaction(target))
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def fenced(code: ErrorCode) -> Responder:
    row = Message(throttle_time_ms=0, error_code=code, producer_id=9, producer_epoch=3)
    return lambda version, request: row


@pytest.mark.parametrize("version", range(DEFINED[ApiKey.INIT_PRODUCER_ID].maximum + 1))
def test_fencing_waits_for_the_markers(version: int) -> None:
    answer = in_turn(
        fenced(ErrorCode.CONCURRENT_TRANSACTIONS), fenced(ErrorCode.NOT_COORDINATOR), fenced(ErrorCode.NONE)
    )
    result, broker = run_with(
        {ApiKey.INIT_PRODUCER_ID: answer},
        lambda admin: admin.fence_producers(["x"], timeout_ms=77),
        INIT_PRODUCER_ID=version,
    )
    assert result == [FencedProducer("x", producer_id=9, producer_epoch=3)]
    requests = broker.requests_of(ApiKey.INIT_PRODUCER_ID)
    assert len(requests) == 3
    assert (requests[0].transactional_id, requests[0].transaction_timeout_ms) == ("x", 77)
    assert (requests[0].get("producer_id", -1), requests[0].get("producer_epoch", -1)) == (-1, -1)
