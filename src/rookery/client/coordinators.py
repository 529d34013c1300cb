"""Finds the broker that coordinates a group or a transactional id, and sends requests to it.

The error codes of a coordinator that moved, is loading or does not exist yet are retried here, up to the cluster's
time-out, with a new look-up if it moved. Requests use separate connections, so that a fetch does not delay them. The
admin client, the group members and the transactional producer call this.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TypeVar

from rookery.base.codes import KeyType
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId
from rookery.client.cluster import Cluster
from rookery.client.metadata import NO_NODE
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Request, ResponseT
from rookery.protocol.messages import FindCoordinatorRequest

Result = TypeVar("Result")

_LANE = "coordinator"
# The first version of FindCoordinator that takes several keys, and how many are sent at once.
_SEVERAL_KEYS_SINCE = 4
_KEYS_PER_REQUEST = 500
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

    async def call_each(
        self, keys: Collection[str], send: Callable[[NodeId, list[str]], Awaitable[Mapping[str, Result | ApiError]]]
    ) -> dict[str, Result | ApiError]:
        """Return the result of each key. `send` gets a coordinator and all keys that it coordinates.

        Only keys with transient errors are sent again; those that are left when the time-out expires get their error.
        """
        results: dict[str, Result | ApiError] = {}
        transient: dict[str, ApiError] = {}

        def take(key: str, row: Result | ApiError) -> None:
            if isinstance(row, ApiError) and is_transient(row.code):
                transient[key] = row
                if row.code in _MOVED:
                    self.forget(key)
            else:
                results[key] = row

        async def attempt() -> None:
            transient.clear()
            theirs: dict[NodeId, list[str]] = {}
            for key, node in (await self._find_each([key for key in keys if key not in results])).items():
                if isinstance(node, ApiError):
                    take(key, node)
                else:
                    theirs.setdefault(node, []).append(key)
            for node, of_node in sorted(theirs.items()):
                try:
                    rows = await send(node, of_node)
                except ApiError as error:
                    rows = dict.fromkeys(of_node, error)
                for key in of_node:
                    missing = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer about {self._name(key)}")
                    take(key, rows.get(key, missing))
            if transient:
                raise next(iter(transient.values()))

        try:
            await self._cluster.retry(attempt, retriable=is_transient)
        except ApiError as error:
            results |= {key: transient.get(key, error) for key in keys if key not in results}
        return {key: results[key] for key in keys}

    async def _find_each(self, keys: Collection[str]) -> dict[str, NodeId | ApiError]:
        """Look up the coordinators of `keys`, in few requests where the broker takes several keys at once."""
        unknown = [key for key in keys if key not in self._nodes]
        version = (await self._cluster.connection(None, self._lane)).version(ApiKey.FIND_COORDINATOR)
        found: dict[str, NodeId | ApiError] = {}
        if version < _SEVERAL_KEYS_SINCE:
            for key in unknown:
                try:
                    found[key] = await self._find(key)
                except ApiError as error:
                    found[key] = error
        else:
            for start in range(0, len(unknown), _KEYS_PER_REQUEST):
                found |= await self._find_several(unknown[start : start + _KEYS_PER_REQUEST])
        return {key: found[key] if key in found else self._nodes[key] for key in keys}

    async def _find_several(self, keys: list[str]) -> dict[str, NodeId | ApiError]:
        request = FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=keys)
        response = await self._cluster.call(ApiKey.FIND_COORDINATOR, request, lane=self._lane)
        found: dict[str, NodeId | ApiError] = {
            key: ApiError(_NO_COORDINATOR, f"no answer about {self._name(key)}") for key in keys
        }
        for row in response.get("coordinators", ()):
            if row.error_code != ErrorCode.NONE:
                found[row.key] = ApiError(ErrorCode(row.error_code), row.error_message or self._name(row.key))
            else:
                found[row.key] = self._nodes[row.key] = row.node_id
        if any(node not in self._cluster.metadata.brokers for node in found.values() if isinstance(node, int)):
            await self._cluster.refresh(topics=())
        return found

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
