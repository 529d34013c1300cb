"""Fetch sessions, the client's side: after one full request, only what changed is sent (KIP-227). Pure.

Theory of operation. A broker remembers the partitions of a session and their positions, so that a request names only
partitions that are new, have moved, or are to be forgotten. One `FetchSession` belongs to one broker and has at most
one request under way. What the next request must be follows from the last answer:

    next request                    answer                                   then
    full, no session      (0, 0)    session id s                             incremental (s, 1)
    full, no session      (0, 0)    session id 0: the broker has no room     full again (0, 0)
    incremental           (s, n)    no error                                 incremental (s, n + 1)
    incremental           (s, n)    FETCH_SESSION_ID_NOT_FOUND               full (0, 0)
    any                             another error, or no answer at all       full, in place of the old one (s, 0)

A topic that was deleted and made again has another id: its old id is forgotten, and the new one added. If the ids of
some topics are unknown, names are used for all, which only brokers and requests up to version 12 do; changing between
ids and names needs another session. Called by `fetcher`.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID, TopicId, TopicName, TopicPartition
from rookery.protocol.fetch import FetchPartition, FetchTopic, ForgottenTopic

NO_SESSION = 0
FULL_EPOCH = 0
CLOSING_EPOCH = -1
_EPOCH_MAX = 2**31 - 1


class Wanted(NamedTuple):
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
        # What the broker knows once it has the request that was prepared last.
        self._partitions: dict[TopicPartition, Wanted] = {}
        self._names: dict[TopicId, TopicName] = {}

    @property
    def is_open(self) -> bool:
        """The broker holds a session for us."""
        return self._session_id != NO_SESSION

    @property
    def partitions(self) -> Mapping[TopicPartition, Wanted]:
        """What the request under way asks for, said in it or earlier."""
        return self._partitions

    def name(self, topic_id: TopicId) -> TopicName | None:
        """The topic that the answer names by its id."""
        return self._names.get(topic_id)

    def prepare(self, wanted: Mapping[TopicPartition, Wanted]) -> SessionRequest:
        """The next request, so that these partitions are fetched and no others."""
        by_topic_id = all(item.topic_id != NO_TOPIC_ID for item in wanted.values())
        if by_topic_id != self._by_topic_id:
            self._by_topic_id = by_topic_id
            self.fail()
        known = self._partitions if self._epoch != FULL_EPOCH else {}
        changed = {tp: item for tp, item in wanted.items() if known.get(tp) != item}
        gone = [(tp, item) for tp, item in known.items() if tp not in wanted or self._is_replaced(item, wanted[tp])]
        self._partitions = dict(wanted)
        self._names = {item.topic_id: tp.topic for tp, item in wanted.items()}
        return SessionRequest(self._session_id, self._epoch, _topics(changed), _forgotten(gone), by_topic_id)

    def accept(self, error: ErrorCode, session_id: int) -> None:
        """The answer to the last request came."""
        if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._start_anew(NO_SESSION)
        elif error is not ErrorCode.NONE:
            self.fail()
        elif session_id == NO_SESSION or (self._epoch != FULL_EPOCH and session_id != self._session_id):
            self._start_anew(NO_SESSION)
        else:
            self._session_id = session_id
            self._epoch = self._epoch + 1 if self._epoch < _EPOCH_MAX else 1

    def fail(self) -> None:
        """Nobody knows whether the last request arrived: the next one replaces the session."""
        self._start_anew(self._session_id)

    def close(self) -> SessionRequest:
        """The request that tells the broker to forget the session."""
        request = SessionRequest(self._session_id, CLOSING_EPOCH, [], [], self._by_topic_id)
        self._start_anew(NO_SESSION)
        return request

    def _is_replaced(self, known: Wanted, wanted: Wanted) -> bool:
        return self._by_topic_id and known.topic_id != wanted.topic_id

    def _start_anew(self, session_id: int) -> None:
        self._session_id, self._epoch = session_id, FULL_EPOCH


def _topics(wanted: Mapping[TopicPartition, Wanted]) -> list[FetchTopic]:
    """In the order given: where a response has no room for all, brokers serve the first."""
    topics: dict[tuple[TopicName, TopicId], FetchTopic] = {}
    for tp, (topic_id, row) in wanted.items():
        topic = topics.setdefault((tp.topic, topic_id), FetchTopic(tp.topic, topic_id, []))
        topic.partitions.append(row)
    return list(topics.values())


def _forgotten(gone: Iterable[tuple[TopicPartition, Wanted]]) -> list[ForgottenTopic]:
    topics: dict[tuple[TopicName, TopicId], ForgottenTopic] = {}
    for tp, (topic_id, _) in gone:
        topic = topics.setdefault((tp.topic, topic_id), ForgottenTopic(tp.topic, topic_id, []))
        topic.partitions.append(tp.partition)
    return list(topics.values())
