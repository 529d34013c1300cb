"""What all parts of the `Admin` share: the cluster, the coordinators, and the retries.

Failures of the network, the absence of a controller, leader or coordinator are retried here, up to the cluster's
time-out. That a topic does not exist is retriable for a producer that waits for it, and a plain answer for an
administrator who mistyped it.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import TypeVar

from rookery.base.coordinator_codes import KeyType
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.coordinators import Coordinators
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message

Result = TypeVar("Result")
Thing = TypeVar("Thing")
Rows = Callable[[Message], Iterable[tuple[TopicPartition, Message]]]

_FINAL = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


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

    async def _ask(self, api_key: ApiKey, request: Message, *, node: NodeId | None = None) -> Message:
        """One request to a node, or to any broker."""
        if node is not None:
            await self._know_broker(node)
        return await self._cluster.call(api_key, request, node=node)

    async def _ask_controller(
        self, api_key: ApiKey, request: Message, rows: Callable[[Message], list[Message]]
    ) -> list[Message]:
        """The rows of the controller's answer, asked again while there is none."""

        async def ask() -> list[Message]:
            found = rows(await self._cluster.call_controller(api_key, request))
            for row in found:
                if row.error_code == ErrorCode.NOT_CONTROLLER:
                    raise ApiError(ErrorCode.NOT_CONTROLLER, row.get("error_message"))
            return found

        return await self._retry(ask)

    async def _ask_leaders(
        self,
        api_key: ApiKey,
        partitions: Iterable[TopicPartition],
        request: Callable[[Sequence[TopicPartition]], Message],
        *,
        blank: Message,
        rows: Rows | None = None,
    ) -> dict[TopicPartition, Message]:
        """The answer of each partition's leader, in the partitions' order.

        What fails for a while is asked for again, and only that. A partition that is not answered for in the end, or
        does not exist, gets the `blank` row with its error: what was done for others is not lost by it. Raises
        ApiError where nothing is known of any: nobody tells the leaders, or none of them serves the API.
        """
        wanted = sorted(set(partitions))
        answers = _LeaderAnswers(blank)

        async def ask() -> None:
            missing = [tp for tp in wanted if tp not in answers.rows]
            theirs = answers.take_leaders(await self._cluster.leaders(missing))
            for node in sorted(theirs):
                try:
                    response = await self._cluster.call(api_key, request(theirs[node]), node=node)
                except ApiError as error:
                    answers.take_failure(theirs[node], error)
                else:
                    answers.take_rows(theirs[node], dict((rows or partition_rows)(response)))
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


class _LeaderAnswers:
    """What is known of partitions so far: rows for good, and errors that may pass."""

    def __init__(self, blank: Message) -> None:
        self.rows: dict[TopicPartition, Message] = {}
        self.transient: dict[TopicPartition, ApiError] = {}
        self._blank = blank
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

    def take_rows(self, asked: Iterable[TopicPartition], found: Mapping[TopicPartition, Message]) -> None:
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
            self.rows[tp] = _failed(self._blank, error)
            if error.code == ErrorCode.UNSUPPORTED_VERSION:
                self._not_served[tp] = error

    def give_up(self, partitions: Iterable[TopicPartition], error: ApiError) -> None:
        """Time is up: what might have passed did not. `error` is of those that could not even be looked up."""
        for tp in partitions:
            self.rows[tp] = _failed(self._blank, self.transient.get(tp, error))

    def check_served(self) -> None:
        if self.rows and self.rows.keys() == self._not_served.keys():
            raise next(iter(self._not_served.values()))


def _failed(blank: Message, error: ApiError) -> Message:
    return Message(**blank.__dict__, error_code=error.code, error_message=error.message)


def several(things: Iterable[Thing], name: str) -> list[Thing]:
    """An argument that is to be several things. A text is several letters, and never what was meant."""
    if isinstance(things, str | bytes):
        raise TypeError(f"{name} takes several things: pass a list, [{things!r}], not {things!r} alone")
    return list(things)


def by_topic(partitions: Iterable[TopicPartition], row: Callable[[TopicPartition], Message]) -> list[Message]:
    """Partitions as most requests list them."""
    grouped = groupby(sorted(partitions), key=lambda tp: tp.topic)
    return [Message(name=topic, partitions=[row(tp) for tp in group]) for topic, group in grouped]


def partition_rows(response: Message) -> Iterable[tuple[TopicPartition, Message]]:
    """Partitions as most responses list them."""
    for topic in response.topics:
        for row in topic.partitions:
            yield TopicPartition(topic.name, row.partition_index), row
