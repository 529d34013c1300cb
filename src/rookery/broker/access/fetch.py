"""Fetch with an authorizer: READ on each topic for consumers, CLUSTER_ACTION for followers.

Fetch reads its frame itself, so it has no guard that could take topics out of a request. Denied topics are partitions
with an error instead, and stay in the fetch session: an incremental fetch gets the error again, and data as soon as an
ACL allows it. As in Kafka, such a partition does not end the wait of the others.
"""

from functools import partial
from typing import Final

from rookery.base.codes import AclOperation, AclResourceType
from rookery.base.errors import ErrorCode
from rookery.broker.context import RequestContext
from rookery.broker.fetch_sessions import FetchContext, SessionPartition
from rookery.broker.handlers import k01_fetch
from rookery.broker.handlers.k01_fetch import Fetch
from rookery.broker.permissions import DecisionLog
from rookery.protocol.fetch import FetchRequest
from rookery.replication.replica import Fetched
from rookery.security.authorizer import Decision, Decisions

# Constants: an attribute of an Enum takes longer to find than a decision.
_READ: Final = AclOperation.READ
_TOPIC: Final = AclResourceType.TOPIC
_CLUSTER_ACTION: Final = AclOperation.CLUSTER_ACTION
_DENIED: Final = Fetched(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


class GuardedFetch(Fetch):
    """Reads the partitions that the client may read. The attributes are set by `new_fetch`, for each request.

    `readable` has the decisions about topics; None for a follower, which may read all or nothing (`may_follow`).
    """

    __slots__ = ("log", "may_follow", "noted", "readable")
    log: DecisionLog
    may_follow: bool
    readable: Decisions | None
    # The topics that the log has a decision about: a request asks for each once, whatever its number of partitions.
    noted: set[str]

    def _read_partition(self, partition: SessionPartition, remaining: int, at_least_one: bool) -> Fetched:
        if self.readable is None:
            if not self.may_follow:
                return _DENIED
            return Fetch._read_partition(self, partition, remaining, at_least_one)
        topic, key = partition.topic, partition.key[0]
        if topic is None and not isinstance(key, str):
            # The id is not resolved yet, or unknown.
            topic = self._context.services.replicas.topic_name(key)
        if topic is not None:
            decision = self.readable[topic]
            if not decision.allowed or self.log.records_allowed:
                self._note(topic, decision)
                if not decision.allowed:
                    return _DENIED
        return Fetch._read_partition(self, partition, remaining, at_least_one)

    def _note(self, topic: str, decision: Decision) -> None:
        if topic not in self.noted:
            self.noted.add(topic)
            self.log.decided(self._context, _READ, _TOPIC, topic, decision)


def new_fetch(context: RequestContext, request: FetchRequest, session: FetchContext) -> GuardedFetch:
    access = context.services.access
    assert access is not None
    fetch = GuardedFetch(context, request, session)
    fetch.log = access.log
    if request.replica_id >= 0:
        fetch.readable = None
        fetch.may_follow = access.client(context).allows_on_cluster(_CLUSTER_ACTION)
    else:
        fetch.readable = access.decisions(context).readable_topics
        fetch.noted = set()
    return fetch


handle: Final = partial(k01_fetch.handle, new_fetch=new_fetch)
