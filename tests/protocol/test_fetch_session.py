from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID, TopicPartition
from rookery.protocol.fetch import FetchPartition
from rookery.protocol.fetch_session import FetchSession, SessionRequest, SessionRow

A, B = TopicPartition("a", 0), TopicPartition("b", 3)


def wanted(**offsets: int) -> dict[TopicPartition, SessionRow]:
    """Build rows: `a=5` fetches partition 0 of topic a from offset 5."""
    return {
        TopicPartition(name, 0): SessionRow(UUID(int=ord(name)), FetchPartition(0, offset, 100))
        for name, offset in offsets.items()
    }


def rows(request: SessionRequest) -> dict[str, int]:
    return {str(topic.name): topic.partitions[0].fetch_offset for topic in request.topics}


def forgotten(request: SessionRequest) -> list[str]:
    return [str(topic.name) for topic in request.forgotten]


def test_after_the_full_request_only_changes_are_sent() -> None:
    session = FetchSession()
    first = session.prepare(wanted(a=0, b=0))
    assert (first.session_id, first.session_epoch, rows(first)) == (0, 0, {"a": 0, "b": 0})
    session.accept(ErrorCode.NONE, 9)
    second = session.prepare(wanted(a=0, b=5))
    assert (second.session_id, second.session_epoch, rows(second), second.forgotten) == (9, 1, {"b": 5}, [])
    session.accept(ErrorCode.NONE, 9)
    third = session.prepare(wanted(b=5, c=1))
    assert (third.session_epoch, rows(third), forgotten(third)) == (2, {"c": 1}, ["a"])
    session.accept(ErrorCode.NONE, 9)
    assert session.prepare(wanted(b=5, c=1)).topics == []


def test_a_broker_with_a_full_session_cache_gets_full_requests() -> None:
    session = FetchSession()
    for _ in range(3):
        request = session.prepare(wanted(a=0))
        assert (request.session_id, request.session_epoch, rows(request)) == (0, 0, {"a": 0})
        session.accept(ErrorCode.NONE, 0)
    assert not session.is_open


@pytest.mark.parametrize(
    ("error", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 9),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 9),
    ],
)
def test_an_error_of_the_session_leads_to_a_full_request(error: ErrorCode, session_id: int) -> None:
    session = FetchSession()
    session.prepare(wanted(a=0))
    session.accept(ErrorCode.NONE, 9)
    session.prepare(wanted(a=0))
    session.accept(error, 0)
    request = session.prepare(wanted(a=0))
    assert (request.session_id, request.session_epoch, rows(request)) == (session_id, 0, {"a": 0})


def test_after_a_lost_response_the_session_is_replaced() -> None:
    session = FetchSession()
    session.prepare(wanted(a=0))
    session.accept(ErrorCode.NONE, 9)
    session.prepare(wanted(a=3))
    session.fail()
    request = session.prepare(wanted(a=3))
    assert (request.session_id, request.session_epoch, rows(request)) == (9, 0, {"a": 3})


def test_a_recreated_topic_is_removed_by_its_old_id() -> None:
    session = FetchSession()
    session.prepare(wanted(a=4))
    session.accept(ErrorCode.NONE, 9)
    other = {A: SessionRow(UUID(int=77), FetchPartition(0, 0, 100))}
    request = session.prepare(other)
    assert [topic.topic_id for topic in request.forgotten] == [UUID(int=ord("a"))]
    assert [topic.topic_id for topic in request.topics] == [UUID(int=77)]
    assert session.name(UUID(int=77)) == "a"


def test_topics_without_ids_are_requested_by_name_in_another_session() -> None:
    session = FetchSession()
    session.prepare(wanted(a=0))
    session.accept(ErrorCode.NONE, 9)
    request = session.prepare(wanted(a=0) | {B: SessionRow(NO_TOPIC_ID, FetchPartition(3, 0, 100))})
    assert (request.by_topic_id, request.session_id, request.session_epoch) == (False, 9, 0)
    assert rows(request) == {"a": 0, "b": 0}


def test_a_session_is_closed_by_its_last_request() -> None:
    session = FetchSession()
    session.prepare(wanted(a=0))
    session.accept(ErrorCode.NONE, 9)
    request = session.close()
    assert (request.session_id, request.session_epoch, request.topics) == (9, -1, [])
    assert not session.is_open


class Broker:
    """The broker's side of a session, according to KIP-227."""

    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = 0
        self.partitions: dict[tuple[UUID, int], int] = {}

    def serve(self, request: SessionRequest, next_id: int) -> tuple[ErrorCode, int]:
        if request.session_epoch <= 0:
            self.session_id, self.epoch, self.partitions = next_id, 0, {}
        elif request.session_id != self.session_id:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0
        elif request.session_epoch != self.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0
        for topic in request.forgotten:
            for index in topic.partitions:
                assert topic.topic_id is not None
                del self.partitions[topic.topic_id, index]
        for added in request.topics:
            for row in added.partitions:
                assert added.topic_id is not None
                self.partitions[added.topic_id, row.partition] = row.fetch_offset
        self.epoch += 1
        return ErrorCode.NONE, self.session_id


_WANTED = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.integers(0, 2)), st.tuples(st.integers(1, 2), st.integers(0, 3))
)


@settings(max_examples=50)
@given(st.lists(st.tuples(_WANTED, st.sampled_from(["answer", "answer", "answer", "lose", "reject", "forget"]))))
def test_the_broker_always_fetches_what_is_wanted(
    steps: list[tuple[dict[tuple[str, int], tuple[int, int]], str]],
) -> None:
    session, broker = FetchSession(), Broker()
    for number, (plan, fate) in enumerate(steps, 1):
        items = {
            TopicPartition(name, index): SessionRow(
                UUID(int=ord(name) + 1000 * version), FetchPartition(index, offset, 9)
            )
            for (name, index), (version, offset) in plan.items()
        }
        if fate == "forget":
            broker.session_id = -number
        error, session_id = broker.serve(session.prepare(items), number)
        if fate == "lose":
            session.fail()
        elif fate == "reject":
            session.accept(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
        else:
            session.accept(error, session_id)
        if error is ErrorCode.NONE:
            assert broker.partitions == {
                (item.topic_id, item.row.partition): item.row.fetch_offset for item in items.values()
            }
        else:
            # Only a broker that lost the session returns an error, and then the next request is a full one.
            assert fate == "forget"
