"""What all parts of the `Admin` share: the cluster, the coordinators, and the retries.

Failures of the network, the absence of a controller, leader or coordinator are retried here, up to the cluster's
time-out. That a topic does not exist is retriable for a producer that waits for it, and a plain answer for an
administrator who mistyped it.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
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
    ) -> dict[TopicPartition, Message]:
        """Ask each partition's leader; partitions that answer with a transient error are asked again."""
        answers: dict[TopicPartition, Message] = {}
        wanted = sorted(partitions)

        async def ask() -> None:
            missing = [tp for tp in wanted if tp not in answers]
            leaders = {tp: await self._cluster.leader(tp) for tp in missing}
            transient: ApiError | None = None
            for node in sorted(set(leaders.values())):
                theirs = [tp for tp in missing if leaders[tp] == node]
                response = await self._cluster.call(api_key, request(theirs), node=node)
                for tp, row in partition_rows(response):
                    code = ErrorCode(row.error_code)
                    if is_transient(code):
                        transient = ApiError(code, f"partition {tp}")
                    else:
                        answers[tp] = row
            if transient is not None:
                raise transient

        await self._retry(ask)
        return answers

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


def by_topic(partitions: Iterable[TopicPartition], row: Callable[[TopicPartition], Message]) -> list[Message]:
    """Partitions as most requests list them."""
    grouped = groupby(sorted(partitions), key=lambda tp: tp.topic)
    return [Message(name=topic, partitions=[row(tp) for tp in group]) for topic, group in grouped]


def partition_rows(response: Message) -> Iterable[tuple[TopicPartition, Message]]:
    """Partitions as most responses list them."""
    for topic in response.topics:
        for row in topic.partitions:
            yield TopicPartition(topic.name, row.partition_index), row
