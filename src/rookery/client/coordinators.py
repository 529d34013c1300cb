"""Finds the broker that coordinates a group or a transactional id, and sends requests to it.

The error codes of a coordinator that moved, is loading or does not exist yet are retried here, up to the cluster's
time-out, with a new look-up if it moved. Requests use separate connections, so that a fetch does not delay them. The
admin client, the group members and the transactional producer call this.
"""

from collections.abc import Callable, Iterable

from rookery.base.codes import KeyType
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId
from rookery.client.cluster import Cluster
from rookery.client.metadata import NO_NODE
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Request, ResponseT
from rookery.protocol.messages import FindCoordinatorRequest

_LANE = "coordinator"
# The code of a response that names no coordinator: the look-up is retried, as if there were none yet.
_NO_COORDINATOR = ErrorCode.COORDINATOR_NOT_AVAILABLE
_LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
_MOVED = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)


_NAMES = {KeyType.GROUP: "group", KeyType.TRANSACTION: "transactional id"}


def is_transient(code: ErrorCode) -> bool:
    """Whether `code` says that the coordinator is unavailable for some time, or cannot be reached."""
    return code == _LOADING or code in _MOVED


class Coordinators:
    """The coordinators of one type of keys: group ids or transactional ids.

    Requests of one lane share a connection. A request whose response waits for other clients (JoinGroup) needs its own
    lane, or it delays the requests after it.
    """

    def __init__(self, cluster: Cluster, key_type: KeyType = KeyType.GROUP, *, lane: str = _LANE) -> None:
        self._cluster = cluster
        self._key_type = key_type
        self._lane = lane
        self._nodes: dict[str, NodeId] = {}

    async def find(self, key: str, *, timeout_s: float | None = None) -> NodeId:
        """Return the node that coordinates a key, from the cache if it was looked up before."""
        return await self._cluster.retry(lambda: self._find(key), timeout_s=timeout_s, retriable=is_transient)

    def forget(self, key: str) -> None:
        """Make the next call look up the coordinator again."""
        self._nodes.pop(key, None)

    async def call(
        self,
        key: str,
        api_key: ApiKey,
        build: Callable[[], Request[ResponseT]],
        *,
        codes: Callable[[ResponseT], Iterable[int]],
        version_max: int | None = None,
        timeout_s: float | None = None,
    ) -> ResponseT:
        """Send a request to a key's coordinator. `build` creates it for each attempt.

        `codes` returns the error codes of the response. The request is sent again if one of them is transient.
        """

        async def attempt() -> ResponseT:
            node = await self._find(key)
            try:
                response = await self._cluster.call(
                    api_key, build(), node=node, lane=self._lane, version_max=version_max, timeout_s=timeout_s
                )
                for code in codes(response):
                    if is_transient(ErrorCode(code)):
                        raise ApiError(ErrorCode(code), f"{self._name(key)}, coordinator {node}")
            except ApiError as error:
                if error.code in _MOVED:
                    self.forget(key)
                raise
            return response

        return await self._cluster.retry(attempt, timeout_s=timeout_s, retriable=is_transient)

    async def _find(self, key: str) -> NodeId:
        known = self._nodes.get(key)
        if known is not None:
            return known
        request = FindCoordinatorRequest(key=key, key_type=self._key_type, coordinator_keys=[key])
        response = await self._cluster.call(ApiKey.FIND_COORDINATOR, request, lane=self._lane)
        # Since version 4 a response holds a list of coordinators.
        rows = response.get("coordinators")
        if rows:
            code, message, node = rows[0].error_code, rows[0].error_message, rows[0].node_id
        else:
            code, message = response.get("error_code", _NO_COORDINATOR), response.get("error_message")
            node = response.get("node_id", NO_NODE)
        if code != ErrorCode.NONE:
            raise ApiError(ErrorCode(code), message or self._name(key))
        if node not in self._cluster.metadata.brokers:
            await self._cluster.refresh(topics=())
        self._nodes[key] = node
        return node

    def _name(self, key: str) -> str:
        return f"{_NAMES[self._key_type]} {key}"
