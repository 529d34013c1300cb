"""What all parts of the `Admin` share: the cluster, the coordinators, and the retries.

Failures of the network, the absence of a controller, leader or coordinator are retried here, up to the cluster's
time-out. That a topic does not exist is retriable for a producer that waits for it, and a plain answer for an
administrator who mistyped it.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from rookery.base.codes import KeyType
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, PartitionIndex, TopicName, TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.coordinators import Coordinators
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Request, ResponseT

Result = TypeVar("Result")
Thing = TypeVar("Thing")
ResultRowT = TypeVar("ResultRowT", bound="ResultRow")
PartitionRowT = TypeVar("PartitionRowT", bound="PartitionRow")
PartitionRowT_co = TypeVar("PartitionRowT_co", bound="PartitionRow", covariant=True)

_FINAL = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class ResultRow(Protocol):
    """A row of a response: how one of several things went."""

    @property
    def error_code(self) -> int: ...


class PartitionRow(Protocol):
    """A partition's row, as most responses name it."""

    @property
    def partition_index(self) -> PartitionIndex: ...


class TopicRow(Protocol[PartitionRowT_co]):
    """A topic's row, as most responses name it."""

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

    async def _ask(self, api_key: ApiKey, request: Request[ResponseT], *, node: NodeId | None = None) -> ResponseT:
        """One request to a node, or to any broker."""
        if node is not None:
            await self._know_broker(node)
        return await self._cluster.call(api_key, request, node=node)

    async def _ask_controller(
        self, api_key: ApiKey, request: Request[ResponseT], rows: Callable[[ResponseT], list[ResultRowT]]
    ) -> list[ResultRowT]:
        """The rows of the controller's answer, asked again while there is none."""

        async def ask() -> list[ResultRowT]:
            found = rows(await self._cluster.call_controller(api_key, request))
            for row in found:
                if row.error_code == ErrorCode.NOT_CONTROLLER:
                    # Rows of old versions have no message.
                    raise ApiError(ErrorCode.NOT_CONTROLLER, vars(row).get("error_message"))
            return found

        return await self._retry(ask)

    async def _ask_leaders(
        self,
        api_key: ApiKey,
        partitions: Iterable[TopicPartition],
        request: Callable[[Sequence[TopicPartition]], Request[ResponseT]],
        *,
        rows: Callable[[ResponseT], Iterable[tuple[TopicPartition, ResultRowT]]],
        failed: Callable[[TopicPartition, ApiError], ResultRowT],
    ) -> dict[TopicPartition, ResultRowT]:
        """The answer of each partition's leader, in the partitions' order.

        What fails for a while is asked for again, and only that. A partition that is not answered for in the end, or
        does not exist, gets the row that `failed` makes: what was done for others is not lost by it. Raises ApiError
        where nothing is known of any: no broker reports the leaders, or none of them serves the API.
        """
        wanted = sorted(set(partitions))
        answers = _LeaderAnswers(failed)

        async def ask() -> None:
            missing = [tp for tp in wanted if tp not in answers.rows]
            theirs = answers.take_leaders(await self._cluster.leaders(missing))
            for node in sorted(theirs):
                try:
                    response = await self._cluster.call(api_key, request(theirs[node]), node=node)
                except ApiError as error:
                    answers.take_failure(theirs[node], error)
                else:
                    answers.take_rows(theirs[node], dict(rows(response)))
            if answers.transient:
                raise next(iter(answers.transient.values()))

        try:
            await self._retry(ask)
        except ApiError as error:
            if not answers.rows and not answers.transient:
                raise
            answers.give_up([tp for tp in wanted if tp not in answers.rows], error)
        answers.check_served()
        return {tp: answers.rows[tp] for tp in wanted}

    async def _require(self, api_key: ApiKey, version: int, otherwise: str) -> None:
        """UNSUPPORTED_VERSION unless the broker is new enough; `otherwise` says what an older one does."""
        connection = await self._cluster.connection()
        if connection.version(api_key) < version:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{api_key.name}: {connection.address} {otherwise}")

    async def _know_broker(self, node: NodeId) -> None:
        if node not in self._cluster.metadata.brokers:
            await self._cluster.refresh(topics=())

    async def _broker_ids(self) -> list[NodeId]:
        metadata = await self._retry(partial(self._cluster.refresh, topics=()))
        return sorted(metadata.brokers)


class _LeaderAnswers(Generic[ResultRowT]):
    """What is known of partitions so far: rows for good, and errors that may pass."""

    def __init__(self, failed: Callable[[TopicPartition, ApiError], ResultRowT]) -> None:
        self.rows: dict[TopicPartition, ResultRowT] = {}
        self.transient: dict[TopicPartition, ApiError] = {}
        self._failed = failed
        self._not_served: dict[TopicPartition, ApiError] = {}

    def take_leaders(self, leaders: Mapping[TopicPartition, NodeId | ApiError]) -> dict[NodeId, list[TopicPartition]]:
        """The partitions to ask each node about. A new round begins: what was transient is asked for again."""
        self.transient.clear()
        theirs: dict[NodeId, list[TopicPartition]] = {}
        for tp, leader in leaders.items():
            if isinstance(leader, ApiError):
                self.take_failure([tp], leader)
            else:
                theirs.setdefault(leader, []).append(tp)
        return theirs

    def take_rows(self, asked: Iterable[TopicPartition], found: Mapping[TopicPartition, ResultRowT]) -> None:
        for tp in asked:
            row = found.get(tp)
            if row is None:
                self.take_failure([tp], ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer for partition {tp}"))
            elif is_transient(ErrorCode(row.error_code)):
                self.transient[tp] = ApiError(ErrorCode(row.error_code), f"partition {tp}")
            else:
                self.rows[tp] = row

    def take_failure(self, partitions: Iterable[TopicPartition], error: ApiError) -> None:
        for tp in partitions:
            if is_transient(error.code):
                self.transient[tp] = error
                continue
            self.rows[tp] = self._failed(tp, error)
            if error.code == ErrorCode.UNSUPPORTED_VERSION:
                self._not_served[tp] = error

    def give_up(self, partitions: Iterable[TopicPartition], error: ApiError) -> None:
        """Time is up: what might have passed did not. `error` is of those that could not even be looked up."""
        for tp in partitions:
            self.rows[tp] = self._failed(tp, self.transient.get(tp, error))

    def check_served(self) -> None:
        if self.rows and self.rows.keys() == self._not_served.keys():
            raise next(iter(self._not_served.values()))


def several(things: Iterable[Thing], name: str) -> list[Thing]:
    """An argument that is to be several things. A text is several letters, and never what was meant."""
    if isinstance(things, str | bytes):
        raise TypeError(f"{name} takes several things: pass a list, [{things!r}], not {things!r} alone")
    return list(things)


def partition_rows(topics: Iterable[TopicRow[PartitionRowT]]) -> Iterable[tuple[TopicPartition, PartitionRowT]]:
    """Partitions as most responses list them."""
    for topic in topics:
        for row in topic.partitions:
            yield TopicPartition(topic.name, row.partition_index), row
