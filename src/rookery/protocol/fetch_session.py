"""The fetcher's side of fetch sessions (KIP-227): after one full request, only changes are sent. Pure.

Theory of operation. A broker stores the partitions of a session and their positions, so that a request names only
partitions that are new, have moved, or are to be removed. One `FetchSession` belongs to one broker and has at most one
request in flight. The last response determines the next request:

    request                         response                                 next request
    full, no session      (0, 0)    session id s                             incremental (s, 1)
    full, no session      (0, 0)    session id 0: broker's cache is full     full again (0, 0)
    incremental           (s, n)    no error                                 incremental (s, n + 1)
    incremental           (s, n)    FETCH_SESSION_ID_NOT_FOUND               full (0, 0)
    any                             another error, or no response            full, replaces the session (s, 0)

A topic that was deleted and created again has another id: the old id is removed from the session and the new one added.
If the ids of some topics are unknown, all topics are named, which requests up to version 12 do; switching between ids
and names starts another session. Called by the fetchers of consumers and of followers.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID, TopicId, TopicName, TopicPartition
from rookery.protocol.fetch import FetchPartition, FetchTopic, ForgottenTopic

# Errors of the session alone: its partitions can be requested again immediately, in another session.
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)

NO_SESSION = 0
FULL_EPOCH = 0
CLOSING_EPOCH = -1
_EPOCH_MAX = 2**31 - 1


class SessionRow(NamedTuple):
    """A partition to fetch: the id of its topic, and its row of the request."""

    topic_id: TopicId
    row: FetchPartition


class SessionRequest(NamedTuple):
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    by_topic_id: bool


class FetchSession:
    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = FULL_EPOCH
        self._by_topic_id = True
        # The broker's session after it has processed the request that was prepared last.
        self._partitions: dict[TopicPartition, SessionRow] = {}
        self._names: dict[TopicId, TopicName] = {}

    @property
    def is_open(self) -> bool:
        """Whether the broker holds a session for this client."""
        return self._session_id != NO_SESSION

    def name(self, topic_id: TopicId) -> TopicName | None:
        """Return the name of a topic that a response identifies by its id; None if it was not requested."""
        return self._names.get(topic_id)

    def prepare(self, wanted: Mapping[TopicPartition, SessionRow]) -> SessionRequest:
        """Return the next request. It makes the broker fetch exactly the partitions in `wanted`."""
        # A full request replaces whatever the broker stored, so it names every partition. Leaving out those of an
        # earlier request would remove them from the session, and the broker would never return their records.
        known = self._partitions if self._epoch != FULL_EPOCH else {}
        changed = {tp: item for tp, item in wanted.items() if known.get(tp) != item}
        # Most of thousands of partitions do not change from one fetch to the next: only the others are looked at.
        unchecked = changed if known and self._by_topic_id else wanted
        by_topic_id = all(item.topic_id != NO_TOPIC_ID for item in unchecked.values())
        if by_topic_id != self._by_topic_id:
            self._by_topic_id = by_topic_id
            self.fail()
            known, changed = {}, dict(wanted)
        gone = [(tp, item) for tp, item in known.items() if self._is_gone(item, wanted.get(tp))]
        if gone or not known:
            self._names = {item.topic_id: tp.topic for tp, item in wanted.items()}
        else:
            self._names.update({item.topic_id: tp.topic for tp, item in changed.items()})
        self._partitions = dict(wanted)
        return SessionRequest(self._session_id, self._epoch, _topics(changed), _forgotten(gone), by_topic_id)

    def accept(self, error: ErrorCode, session_id: int) -> None:
        """Process the error code and the session id of the response to the last request."""
        if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._restart(NO_SESSION)
        elif error is not ErrorCode.NONE:
            self.fail()
        elif session_id == NO_SESSION or (self._epoch != FULL_EPOCH and session_id != self._session_id):
            # The broker keeps no session, or another one than the request named: an incremental request would leave
            # out partitions that this session does not contain.
            self._restart(NO_SESSION)
        else:
            self._session_id = session_id
            self._epoch = self._epoch + 1 if self._epoch < _EPOCH_MAX else 1

    def fail(self) -> None:
        """The broker may or may not have processed the last request: let the next one replace the session.

        An incremental request would carry an epoch, and build on positions, that the broker may not have.
        """
        self._restart(self._session_id)

    def close(self) -> SessionRequest:
        """Return the request that makes the broker drop the session."""
        request = SessionRequest(self._session_id, CLOSING_EPOCH, [], [], self._by_topic_id)
        self._restart(NO_SESSION)
        return request

    def _is_gone(self, known: SessionRow, wanted: SessionRow | None) -> bool:
        """Return whether a partition of the session is no longer wanted, or has become that of another topic."""
        if known is wanted:
            return False
        return wanted is None or (self._by_topic_id and known.topic_id != wanted.topic_id)

    def _restart(self, session_id: int) -> None:
        self._session_id, self._epoch = session_id, FULL_EPOCH


def _topics(wanted: Mapping[TopicPartition, SessionRow]) -> list[FetchTopic]:
    """Keep the order of `wanted`: when a response reaches its size limit, brokers serve the first partitions."""
    topics: dict[tuple[TopicName, TopicId], FetchTopic] = {}
    topic: FetchTopic | None = None
    for tp, (topic_id, row) in wanted.items():
        # Usually the partitions of one topic are consecutive, and the lookup of an id is slow.
        if topic is None or topic.name is not tp.topic or topic.topic_id is not topic_id:
            topic = topics.setdefault((tp.topic, topic_id), FetchTopic(tp.topic, topic_id, []))
        topic.partitions.append(row)
    return list(topics.values())


def _forgotten(gone: Iterable[tuple[TopicPartition, SessionRow]]) -> list[ForgottenTopic]:
    topics: dict[tuple[TopicName, TopicId], ForgottenTopic] = {}
    for tp, (topic_id, _) in gone:
        topic = topics.setdefault((tp.topic, topic_id), ForgottenTopic(tp.topic, topic_id, []))
        topic.partitions.append(tp.partition)
    return list(topics.values())
