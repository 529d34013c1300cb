"""The base of all parts of the `Admin`: the cluster, the coordinators, and the retries.

Network failures and missing controllers, leaders and coordinators are retried here, up to the cluster's time-out. A
topic that does not exist is retriable for a producer that waits for it; here it is a final error, because the name may
be mistyped.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from rookery.base.codes import KeyType
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, PartitionIndex, TopicName, TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.coordinators import Coordinators
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Request, ResponseT

Result = TypeVar("Result")
Item = TypeVar("Item")
ResultRowT = TypeVar("ResultRowT", bound="ResultRow")
PartitionRowT = TypeVar("PartitionRowT", bound="PartitionRow")
PartitionRowT_co = TypeVar("PartitionRowT_co", bound="PartitionRow", covariant=True)

_FINAL = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class ResultRow(Protocol):
    """A row of a response: the result for one of several resources."""

    @property
    def error_code(self) -> int: ...


class PartitionRow(Protocol):
    """A partition's row, with the field names of most responses."""

    @property
    def partition_index(self) -> PartitionIndex: ...


class TopicRow(Protocol[PartitionRowT_co]):
    """A topic's row, with the field names of most responses."""

    @property
    def name(self) -> TopicName: ...

    @property
    def partitions(self) -> Sequence[PartitionRowT_co]: ...


def is_transient(code: ErrorCode) -> bool:
    return code.retriable and code not in _FINAL


class AdminPart:
    """The base of the classes that make up the `Admin`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._groups = Coordinators(cluster)
        self._transactions = Coordinators(cluster, KeyType.TRANSACTION)

    @property
    def _timeout_ms(self) -> int:
        return int(self._cluster.timeout_s * 1000)

    async def _retry(self, operation: Callable[[], Awaitable[Result]]) -> Result:
        return await self._cluster.retry(operation, retriable=is_transient)

    async def _call(self, api_key: ApiKey, request: Request[ResponseT], *, node: NodeId | None = None) -> ResponseT:
        """Send one request to `node`, or to any broker."""
        if node is not None:
            await self._ensure_broker_known(node)
        return await self._cluster.call(api_key, request, node=node)

    async def _call_controller(
        self, api_key: ApiKey, request: Request[ResponseT], rows: Callable[[ResponseT], list[ResultRowT]]
    ) -> list[ResultRowT]:
        """Return the rows of the controller's response; retry while there is no controller."""

        async def attempt() -> list[ResultRowT]:
            found = rows(await self._cluster.call_controller(api_key, request))
            for row in found:
                if row.error_code == ErrorCode.NOT_CONTROLLER:
                    # Rows of old versions have no message.
                    raise ApiError(ErrorCode.NOT_CONTROLLER, vars(row).get("error_message"))
            return found

        return await self._retry(attempt)

    async def _call_leaders(
        self,
        api_key: ApiKey,
        partitions: Iterable[TopicPartition],
        request: Callable[[Sequence[TopicPartition]], Request[ResponseT]],
        *,
        rows: Callable[[ResponseT], Iterable[tuple[TopicPartition, ResultRowT]]],
        failed: Callable[[TopicPartition, ApiError], ResultRowT],
    ) -> dict[TopicPartition, ResultRowT]:
        """Return the row of each partition from its leader's response, sorted by partition.

        Only partitions with transient errors are requested again. A partition without a row when the time-out expires,
        and one that does not exist, gets the row that `failed` returns: the results of the other partitions are kept.
        Raises ApiError if there is no result for any partition: no broker returns the leaders, or no leader serves the
        API.
        """
        wanted = sorted(set(partitions))
        replies = _LeaderReplies(failed)

        async def attempt() -> None:
            missing = [tp for tp in wanted if tp not in replies.rows]
            theirs = replies.begin_round(await self._cluster.leaders(missing))
            for node in sorted(theirs):
                try:
                    response = await self._cluster.call(api_key, request(theirs[node]), node=node)
                except ApiError as error:
                    replies.add_failure(theirs[node], error)
                else:
                    replies.add_rows(theirs[node], dict(rows(response)))
            if replies.transient:
                raise next(iter(replies.transient.values()))

        try:
            await self._retry(attempt)
        except ApiError as error:
            if not replies.rows and not replies.transient:
                raise
            replies.fail_rest([tp for tp in wanted if tp not in replies.rows], error)
        replies.check_served()
        return {tp: replies.rows[tp] for tp in wanted}

    async def _require(self, api_key: ApiKey, version: int, otherwise: str) -> None:
        """Raise UNSUPPORTED_VERSION if the broker is too old; `otherwise` is the text that says what it does."""
        connection = await self._cluster.connection()
        if connection.version(api_key) < version:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{api_key.name}: {connection.address} {otherwise}")

    async def _ensure_broker_known(self, node: NodeId) -> None:
        if node not in self._cluster.metadata.brokers:
            await self._cluster.refresh(topics=())

    async def _call_brokers(self, call: Callable[[NodeId], Awaitable[list[Result]]]) -> list[Result]:
        """Return the results of `call` for each broker, sorted by node.

        After a transient error, all brokers are called again, and the list of brokers is requested again: if one of
        them died, its groups and transactions have moved to others.
        """

        async def attempt() -> list[Result]:
            metadata = await self._cluster.refresh(topics=())
            return [result for node in sorted(metadata.brokers) for result in await call(node)]

        return await self._retry(attempt)


class _LeaderReplies(Generic[ResultRowT]):
    """The final rows of partitions so far, and the transient errors of the current round."""

    def __init__(self, failed: Callable[[TopicPartition, ApiError], ResultRowT]) -> None:
        self.rows: dict[TopicPartition, ResultRowT] = {}
        self.transient: dict[TopicPartition, ApiError] = {}
        self._failed = failed
        self._not_served: dict[TopicPartition, ApiError] = {}

    def begin_round(self, leaders: Mapping[TopicPartition, NodeId | ApiError]) -> dict[NodeId, list[TopicPartition]]:
        """Begin another round: return the partitions to request from each node. Transient errors are cleared."""
        self.transient.clear()
        theirs: dict[NodeId, list[TopicPartition]] = {}
        for tp, leader in leaders.items():
            if isinstance(leader, ApiError):
                self.add_failure([tp], leader)
            else:
                theirs.setdefault(leader, []).append(tp)
        return theirs

    def add_rows(self, requested: Iterable[TopicPartition], found: Mapping[TopicPartition, ResultRowT]) -> None:
        for tp in requested:
            row = found.get(tp)
            if row is None:
                self.add_failure(
                    [tp], ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the leader did not answer for partition {tp}")
                )
            elif is_transient(ErrorCode(row.error_code)):
                self.transient[tp] = ApiError(ErrorCode(row.error_code), f"partition {tp}")
            else:
                self.rows[tp] = row

    def add_failure(self, partitions: Iterable[TopicPartition], error: ApiError) -> None:
        for tp in partitions:
            if is_transient(error.code):
                self.transient[tp] = error
                continue
            self.rows[tp] = self._failed(tp, error)
            if error.code == ErrorCode.UNSUPPORTED_VERSION:
                self._not_served[tp] = error

    def fail_rest(self, partitions: Iterable[TopicPartition], error: ApiError) -> None:
        """Fail `partitions` with their transient errors, or with `error`: the time-out has expired."""
        for tp in partitions:
            self.rows[tp] = self._failed(tp, self.transient.get(tp, error))

    def check_served(self) -> None:
        if self.rows and self.rows.keys() == self._not_served.keys():
            raise next(iter(self._not_served.values()))


def as_list(items: Iterable[Item], name: str) -> list[Item]:
    """Return the argument `name` as a list. Raises TypeError for a string.

    A string is an iterable of letters: without this check, `delete_topics("abc")` would delete the topics a, b and c.
    """
    if isinstance(items, str | bytes):
        raise TypeError(f"{name} takes several values: pass a list, [{items!r}], not {items!r} alone")
    return list(items)


def partition_rows(topics: Iterable[TopicRow[PartitionRowT]]) -> Iterable[tuple[TopicPartition, PartitionRowT]]:
    """Yield the partitions of `topics` with their rows."""
    for topic in topics:
        for row in topic.partitions:
            yield TopicPartition(topic.name, row.partition_index), row
