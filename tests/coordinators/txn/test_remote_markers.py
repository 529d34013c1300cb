"""Markers reach the leaders of their partitions, wherever these are, with brokers that answer on demand."""

import asyncio
from collections.abc import Callable, Iterable

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, TopicPartition
from rookery.coordinators.txn import remote_markers
from rookery.coordinators.txn.remote_markers import MarkerRouter
from rookery.metadata.image import ClusterImage
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.records.control import Marker
from tests.coordinators.peers import NODE, FakePeers, Sent, image_of, play, turns

HERE, THERE, ALSO_THERE, ELSEWHERE = (TopicPartition("t", index) for index in range(4))
LEADERS: dict[TopicPartition, NodeId] = {HERE: NODE, THERE: 2, ALSO_THERE: 2, ELSEWHERE: 3}
MARKER = Marker(7, 2, True, 5, 2)
OTHER = Marker(8, 0, False, 5)


class Local:
    def __init__(self) -> None:
        self.written: list[tuple[TopicPartition, Marker]] = []

    def write(self, partition: TopicPartition, marker: Marker) -> "asyncio.Future[ErrorCode]":
        self.written.append((partition, marker))
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        future.set_result(ErrorCode.NONE)
        return future


class Stage:
    def __init__(self, leaders: dict[TopicPartition, NodeId] | None = None) -> None:
        self.local = Local()
        self.peers = FakePeers({ApiKey.WRITE_TXN_MARKERS: 2})
        self.image: ClusterImage = image_of(LEADERS if leaders is None else leaders)
        self.router = MarkerRouter(
            self.local,  # type: ignore[arg-type]
            node_id=NODE,
            image=lambda: self.image,
            peers=self.peers,
            timeout_ms=1000,
        )

    def write(
        self, partition: TopicPartition, marker: Marker = MARKER, is_wanted: Callable[[], bool] = lambda: True
    ) -> "asyncio.Future[ErrorCode]":
        return self.router.write(partition, marker, is_wanted)

    def move(self, *moves: tuple[TopicPartition, NodeId]) -> None:
        self.image = image_of({**LEADERS, **dict(moves)})
        self.router.image_changed()


def contents(sent: Sent) -> dict[Marker, list[tuple[str, list[int]]]]:
    return {
        Marker(
            each.producer_id,
            each.producer_epoch,
            each.transaction_result,
            each.coordinator_epoch,
            each.transaction_version,
        ): [(topic.name, topic.partition_indexes) for topic in each.topics]
        for each in sent.request.markers
    }


def answer(sent: Sent, codes: dict[tuple[int, int], ErrorCode] | None = None, skip: Iterable[int] = ()) -> None:
    """Answer with the codes by producer id and partition; NONE for the others."""
    sent.answer(
        Message(
            markers=[
                Message(
                    producer_id=each.producer_id,
                    topics=[
                        Message(
                            name=topic.name,
                            partitions=[
                                Message(
                                    partition_index=index,
                                    error_code=(codes or {}).get((each.producer_id, index), ErrorCode.NONE),
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in each.topics
                    ],
                )
                for each in sent.request.markers
                if each.producer_id not in skip
            ]
        )
    )


def test_a_partition_of_this_broker_gets_its_marker_in_process() -> None:
    async def scene() -> None:
        stage = Stage()
        assert stage.write(HERE).result() is ErrorCode.NONE
        await turns()
        assert stage.local.written == [(HERE, MARKER)]
        assert stage.peers.sent == []

    play(scene)


def test_without_peers_every_marker_is_written_in_process() -> None:
    async def scene() -> None:
        stage = Stage()
        router = MarkerRouter(
            stage.local,  # type: ignore[arg-type]
            node_id=NODE,
            image=lambda: stage.image,
            peers=None,
            timeout_ms=1000,
        )
        assert router.write(THERE, MARKER, lambda: True).result() is ErrorCode.NONE
        await router.close()

    play(scene)


def test_the_markers_of_one_turn_go_to_each_broker_in_one_request() -> None:
    async def scene() -> None:
        stage = Stage()
        written = [stage.write(THERE), stage.write(ELSEWHERE), stage.write(ALSO_THERE), stage.write(THERE, OTHER)]
        await turns()
        second, third = stage.peers.sent
        assert (second.node, third.node) == (2, 3)
        assert contents(second) == {MARKER: [("t", [1, 2])], OTHER: [("t", [1])]}
        assert contents(third) == {MARKER: [("t", [3])]}
        answer(second, {(7, 1): ErrorCode.NOT_ENOUGH_REPLICAS, (8, 1): ErrorCode.INVALID_PRODUCER_EPOCH})
        answer(third)
        assert [await each for each in written] == [
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.INVALID_PRODUCER_EPOCH,
        ]

    play(scene)


def test_two_markers_of_one_producer_go_in_two_requests() -> None:
    """The response names the producer, and not which of its markers it means."""

    async def scene() -> None:
        stage = Stage()
        newer = MARKER._replace(coordinator_epoch=6)
        first, second = stage.write(THERE), stage.write(THERE, newer)
        await turns()
        assert [contents(each) for each in stage.peers.sent] == [{MARKER: [("t", [1])]}, {newer: [("t", [1])]}]
        answer(stage.peers.sent[1])
        answer(stage.peers.sent[0], {(7, 1): ErrorCode.TRANSACTION_COORDINATOR_FENCED})
        assert (await first, await second) == (ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.NONE)

    play(scene)


def test_a_slow_broker_gets_few_requests_and_larger_ones() -> None:
    async def scene() -> None:
        stage = Stage()
        markers = [Marker(producer_id, 0, True, 5) for producer_id in range(20)]
        written = []
        for marker in markers:
            written.append(stage.write(THERE, marker))
            await turns()
        assert [len(each.request.markers) for each in stage.peers.sent] == [1] * 5
        answer(stage.peers.sent[0])
        await turns()
        assert len(stage.peers.sent[5].request.markers) == 15
        for sent in stage.peers.sent[1:]:
            answer(sent)
        assert {await each for each in written} == {ErrorCode.NONE}

    play(scene)


def test_a_request_has_a_bounded_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_markers, "_PARTITIONS_MAX", 2)

    async def scene() -> None:
        stage = Stage()
        for producer_id in range(5):
            stage.write(THERE, Marker(producer_id, 0, True, 5))
        await turns()
        assert [len(each.request.markers) for each in stage.peers.sent] == [2, 2, 1]
        await stage.router.close()

    play(scene)


def test_a_deleted_topic_needs_no_marker() -> None:
    async def scene() -> None:
        stage = Stage({})
        assert await stage.write(THERE) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(scene)


def test_a_broker_that_does_not_know_the_topic_yet_is_asked_again() -> None:
    """Its image may be older. If the marker counted as written, the transaction would stay open for ever."""

    async def scene() -> None:
        stage = Stage()
        written = stage.write(THERE)
        await turns()
        answer(stage.peers.sent[0], {(7, 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
        assert await written is ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(scene)


@pytest.mark.parametrize("leader", [NODE, 3])
def test_a_partition_without_a_leader_waits_for_one(leader: NodeId) -> None:
    async def scene() -> None:
        stage = Stage({**LEADERS, THERE: -1})
        written = stage.write(THERE)
        stage.router.image_changed()
        await turns()
        assert (stage.peers.sent, stage.local.written) == ([], [])
        stage.move((THERE, leader))
        await turns()
        if leader == NODE:
            assert stage.local.written == [(THERE, MARKER)]
        else:
            answer(stage.peers.sent[0])
        assert await written is ErrorCode.NONE

    play(scene)


def test_a_partition_that_is_deleted_while_it_has_no_leader() -> None:
    async def scene() -> None:
        stage = Stage({**LEADERS, THERE: -1})
        written = stage.write(THERE)
        stage.image = image_of({HERE: NODE})
        stage.router.image_changed()
        assert await written is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(scene)


def test_a_former_leader_is_not_waited_for() -> None:
    async def scene() -> None:
        stage = Stage()
        moved, stayed = stage.write(THERE), stage.write(ALSO_THERE)
        await turns()
        stage.move((THERE, 3))
        assert await moved is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not stayed.done()
        answer(stage.peers.sent[0])
        assert await stayed is ErrorCode.NONE

    play(scene)


def test_a_queued_marker_follows_its_leader() -> None:
    async def scene() -> None:
        stage = Stage()
        written = stage.write(THERE)
        stage.image = image_of({**LEADERS, THERE: 3})
        await turns()
        assert [each.node for each in stage.peers.sent] == [3]
        answer(stage.peers.sent[0])
        assert await written is ErrorCode.NONE

    play(scene)


def test_a_deposed_coordinator_sends_nothing_more() -> None:
    async def scene() -> None:
        stage = Stage({**LEADERS, ELSEWHERE: -1})
        wanted = True
        written = [stage.write(each, is_wanted=lambda: wanted) for each in (THERE, ELSEWHERE)]
        wanted = False
        stage.move()
        await turns()
        assert stage.peers.sent == []
        assert [await each for each in written] == [ErrorCode.NOT_COORDINATOR] * 2

    play(scene)


@pytest.mark.parametrize("code", [ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT])
def test_a_lost_connection_fails_all_markers_of_the_request(code: ErrorCode) -> None:
    async def scene() -> None:
        stage = Stage()
        written = [stage.write(THERE), stage.write(ALSO_THERE)]
        await turns()
        stage.peers.sent[0].fail(ApiError(code))
        assert [await each for each in written] == [code, code]

    play(scene)


def test_a_marker_without_a_result_is_not_written() -> None:
    async def scene() -> None:
        stage = Stage()
        written = [stage.write(THERE), stage.write(THERE, OTHER)]
        await turns()
        answer(stage.peers.sent[0], {(7, 1): 1234}, skip=[8])  # type: ignore[dict-item]
        assert [await each for each in written] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2

    play(scene)


def test_closing_ends_the_requests_in_flight() -> None:
    async def scene() -> None:
        stage = Stage()
        written = stage.write(THERE)
        await turns()
        queued = stage.write(ELSEWHERE)
        await stage.router.close()
        await turns()
        assert len(stage.peers.sent) == 1
        assert written.result() is ErrorCode.UNKNOWN_SERVER_ERROR
        assert not queued.done()

    play(scene)
