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
from rookery.broker.permissions import Client
from rookery.protocol.fetch import FetchRequest
from rookery.replication.replica import Fetched

_DENIED: Final = Fetched(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


class GuardedFetch(Fetch):
    """Reads the partitions that the client may read. Each topic is asked for once, when the request arrives."""

    __slots__ = ("_client", "_may_follow", "_readable")

    def __init__(self, context: RequestContext, request: FetchRequest, session: FetchContext) -> None:
        super().__init__(context, request, session)
        access = context.services.access
        assert access is not None
        self._client: Client = access.client(context)
        self._readable: dict[str, bool] = {}
        self._may_follow = request.replica_id >= 0 and self._client.allows_on_cluster(AclOperation.CLUSTER_ACTION)

    def _read_partition(self, partition: SessionPartition, remaining: int, at_least_one: bool) -> Fetched:
        if self._request.replica_id >= 0:
            return super()._read_partition(partition, remaining, at_least_one) if self._may_follow else _DENIED
        topic, key = partition.topic, partition.key[0]
        if topic is None and not isinstance(key, str):
            # The id is not resolved yet, or unknown.
            topic = self._context.services.replicas.topic_name(key)
        if topic is not None:
            is_readable = self._readable.get(topic)
            if is_readable is None:
                is_readable = self._client.allows(AclOperation.READ, AclResourceType.TOPIC, topic)
                self._readable[topic] = is_readable
            if not is_readable:
                return _DENIED
        return super()._read_partition(partition, remaining, at_least_one)


handle: Final = partial(k01_fetch.handle, new_fetch=GuardedFetch)
