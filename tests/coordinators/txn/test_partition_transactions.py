"""A partition's leader asks the coordinator of a transaction, wherever it is, with brokers that answer on demand."""

import asyncio

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, TopicPartition
from rookery.coordinators.runtime import abs_hash
from rookery.coordinators.txn.partition_transactions import RoutedTransactions
from rookery.coordinators.txn.results import AddRequest, VerifiedPartitions
from rookery.metadata.internal_topics import TRANSACTIONS_TOPIC
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.coordinators.peers import NODE, FakePeers, Sent, image_of, play, turns

A, B = TopicPartition("t", 0), TopicPartition("u", 3)
PARTITIONS = 3


class Local:
    """Stands for the coordinator of this broker, and for its runtime."""

    def __init__(self) -> None:
        self.runtime = self
        self.partition_count = PARTITIONS
        self.calls: list[tuple[str, AddRequest]] = []

    def partition_of(self, key: str) -> int:
        return abs_hash(key) % PARTITIONS

    def add_partitions(self, request: AddRequest) -> "asyncio.Future[ErrorCode]":
        return self._called("add", request)

    def verify_partitions(self, request: AddRequest) -> "asyncio.Future[ErrorCode]":
        return self._called("verify", request)

    def _called(self, name: str, request: AddRequest) -> "asyncio.Future[ErrorCode]":
        self.calls.append((name, request))
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        future.set_result(ErrorCode.NONE)
        return future


class Stage:
    """Partition 0 of the coordinators' topic is led by this broker, 1 by broker 2, 2 by broker 3."""

    def __init__(self, leaders: tuple[NodeId, ...] = (NODE, 2, 3)) -> None:
        self.local = Local()
        self.peers = FakePeers({ApiKey.ADD_PARTITIONS_TO_TXN: 5})
        self.lead(*leaders)
        self.transactions = RoutedTransactions(
            self.local,  # type: ignore[arg-type]
            node_id=NODE,
            image=lambda: self.image,
            peers=self.peers,
            timeout_ms=1000,
        )

    def lead(self, *leaders: NodeId) -> None:
        self.image = image_of({TopicPartition(TRANSACTIONS_TOPIC, index): node for index, node in enumerate(leaders)})


def id_in(partition: int) -> str:
    """Return a transactional id of that partition."""
    return next(name for name in "abcdef" if abs_hash(name) % PARTITIONS == partition)


def request_of(transactional_id: str, *partitions: TopicPartition, producer_id: int = 7) -> AddRequest:
    return AddRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=2,
        partitions=frozenset(partitions or (A, B)),
    )


def answer(
    sent: Sent, codes: dict[tuple[str, TopicPartition], ErrorCode] | None = None, *, error: ErrorCode = ErrorCode.NONE
) -> None:
    sent.answer(
        Message(
            throttle_time_ms=0,
            error_code=error,
            results_by_transaction=[
                Message(
                    transactional_id=each.transactional_id,
                    topic_results=[
                        Message(
                            name=topic.name,
                            results_by_partition=[
                                Message(
                                    partition_index=index,
                                    partition_error_code=(codes or {}).get(
                                        (each.transactional_id, TopicPartition(topic.name, index)), ErrorCode.NONE
                                    ),
                                )
                                for index in topic.partitions
                            ],
                        )
                        for topic in each.topics
                    ],
                )
                for each in ([] if error is not ErrorCode.NONE else sent.request.transactions)
            ],
        )
    )


def test_the_coordinator_of_this_broker_decides_in_process() -> None:
    async def scene() -> None:
        stage = Stage()
        request = request_of(id_in(0))
        assert stage.transactions.add_partitions(request).done()
        assert stage.transactions.verify_partitions(request).done()
        assert stage.local.calls == [("add", request), ("verify", request)]
        await turns()
        assert stage.peers.sent == []

    play(scene)


def test_the_questions_of_one_turn_go_to_each_broker_in_one_request() -> None:
    async def scene() -> None:
        stage = Stage()
        one, two = id_in(1), id_in(2)
        stage.lead(NODE, 2, 2)
        added = stage.transactions.add_partitions(request_of(one))
        verified = stage.transactions.verify_partitions(request_of(two, A, producer_id=8))
        await turns()
        (sent,) = stage.peers.sent
        assert sent.node == 2
        assert [
            (each.transactional_id, each.producer_id, each.producer_epoch, each.verify_only)
            for each in sent.request.transactions
        ] == [(one, 7, 2, False), (two, 8, 2, True)]
        answer(sent, {(two, A): ErrorCode.TRANSACTION_ABORTABLE})
        assert await added == ((A, ErrorCode.NONE), (B, ErrorCode.NONE))
        assert await verified == ((A, ErrorCode.TRANSACTION_ABORTABLE),)

    play(scene)


def test_a_request_has_one_entry_per_transactional_id() -> None:
    async def scene() -> None:
        stage = Stage()
        name = id_in(1)
        futures = [stage.transactions.add_partitions(request_of(name, each)) for each in (A, B)]
        await turns()
        first, second = stage.peers.sent
        for sent, code in ((second, ErrorCode.CONCURRENT_TRANSACTIONS), (first, ErrorCode.NONE)):
            answer(sent, {(name, each): code for each in (A, B)})
        assert [await each for each in futures] == [
            ((A, ErrorCode.NONE),),
            ((B, ErrorCode.CONCURRENT_TRANSACTIONS),),
        ]

    play(scene)


@pytest.mark.parametrize("leaders", [(-1, -1, -1), ()])
def test_there_is_no_coordinator(leaders: tuple[NodeId, ...]) -> None:
    async def scene() -> None:
        stage = Stage(leaders)
        stage.local.partition_count = len(leaders)
        assert await stage.transactions.add_partitions(request_of("a")) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    play(scene)


def test_a_former_coordinator_is_not_waited_for() -> None:
    async def scene() -> None:
        stage = Stage()
        sent, stayed = (stage.transactions.add_partitions(request_of(id_in(index))) for index in (1, 2))
        await turns()
        stage.lead(NODE, 3, 3)
        stage.transactions.image_changed()
        assert await sent is ErrorCode.NOT_COORDINATOR
        assert not stayed.done()
        # A late response has no effect.
        answer(stage.peers.sent[0])
        await turns()
        # One that is queued when the coordinator moves.
        queued = stage.transactions.add_partitions(request_of(id_in(1)))
        stage.lead(NODE, 2, 3)
        assert await queued is ErrorCode.NOT_COORDINATOR
        await stage.transactions.close()

    play(scene)


@pytest.mark.parametrize("code", [ErrorCode.NETWORK_EXCEPTION, ErrorCode.UNSUPPORTED_VERSION])
def test_a_lost_connection_fails_all_questions_of_the_request(code: ErrorCode) -> None:
    async def scene() -> None:
        stage = Stage()
        asked = stage.transactions.verify_partitions(request_of(id_in(1)))
        await turns()
        stage.peers.sent[0].fail(ApiError(code))
        assert await asked is code

    play(scene)


def test_an_error_of_the_whole_request() -> None:
    async def scene() -> None:
        stage = Stage()
        asked = stage.transactions.verify_partitions(request_of(id_in(1)))
        await turns()
        answer(stage.peers.sent[0], error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        assert await asked is ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    play(scene)


def test_a_partition_without_a_result_is_not_verified() -> None:
    async def scene() -> None:
        stage = Stage()
        asked: asyncio.Future[VerifiedPartitions | ErrorCode] = stage.transactions.verify_partitions(
            request_of(id_in(1))
        )
        cancelled = stage.transactions.verify_partitions(request_of(id_in(2)))
        cancelled.cancel()
        await turns()
        sent = stage.peers.sent[0]
        transaction = sent.request.transactions[0]
        transaction.topics = transaction.topics[:1]
        answer(sent)
        assert await asked is ErrorCode.UNKNOWN_SERVER_ERROR

    play(scene)
