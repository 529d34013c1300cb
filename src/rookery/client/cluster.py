"""The cluster as a client sees it: bootstrap, the newest metadata, a connection per broker, and retries.

`Cluster.call` sends one request to a node, or to any. `Cluster.retry` runs an operation again while it ends in a
retriable `ApiError`, with growing pauses, until its deadline. Everything above (admin, producer, consumer) is built
from these two and `metadata`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeVar

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, TopicName, TopicPartition
from rookery.client.address import Address, parse_addresses
from rookery.client.connection import Connection
from rookery.client.metadata import NO_NODE, ClusterMetadata, read_metadata
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message

Result = TypeVar("Result")

DEFAULT_CLIENT_ID = "rookery"
DEFAULT_TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_S = 10.0
_BACKOFF_FIRST_S = 0.05
_BACKOFF_LAST_S = 1.0


def backoff_s(attempt: int) -> float:
    """The pause before attempt `attempt` + 1: doubles up to a second."""
    return min(_BACKOFF_LAST_S, _BACKOFF_FIRST_S * float(2 ** min(attempt, 16)))


class Cluster:
    """`timeout_s` bounds one request as well as a whole operation with its retries."""

    def __init__(
        self, bootstrap: Sequence[Address], *, client_id: str = DEFAULT_CLIENT_ID, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        self.metadata = ClusterMetadata()
        self.timeout_s = timeout_s
        self._bootstrap = tuple(bootstrap)
        self._client_id = client_id
        self._connections: dict[tuple[Address, str], Connection] = {}
        self._opening: dict[tuple[Address, str], asyncio.Lock] = {}
        self._stale_topics: set[TopicName] = set()

    @classmethod
    def at(cls, bootstrap: str, *, client_id: str = DEFAULT_CLIENT_ID, timeout_s: float = DEFAULT_TIMEOUT_S) -> Self:
        """From `host:port,host:port`."""
        return cls(parse_addresses(bootstrap), client_id=client_id, timeout_s=timeout_s)

    async def __aenter__(self) -> Self:
        """Connect to one broker: that nobody is there is told at once and not retried."""
        await self.connection()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            await connection.close()

    async def call(
        self,
        api_key: ApiKey,
        message: Message,
        *,
        node: NodeId | None = None,
        timeout_s: float | None = None,
        channel: str = "",
        version_max: int | None = None,
    ) -> Message:
        """One request to `node`, or to any broker; no retry.

        Requests of one channel share a connection, where a long poll holds up what comes behind it.
        """
        connection = await self.connection(node, channel)
        api_version = None if version_max is None else min(version_max, connection.version(api_key))
        patience_s = self.timeout_s if timeout_s is None else timeout_s
        return await connection.request(api_key, message, timeout_s=patience_s, api_version=api_version)

    async def call_controller(self, api_key: ApiKey, message: Message) -> Message:
        """One request to the active controller, or to a broker that forwards to it."""
        if self.metadata.controller_id not in self.metadata.brokers:
            await self.refresh(topics=())
        known = self.metadata.controller_id in self.metadata.brokers
        return await self.call(api_key, message, node=self.metadata.controller_id if known else None)

    async def connection(self, node: NodeId | None = None, channel: str = "") -> Connection:
        """A connection to `node`, or to any broker: one that is open, else the first that answers."""
        if node is not None:
            broker = self.metadata.brokers.get(node)
            if broker is None:
                raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node} is not in the cluster's metadata")
            return await self._connect(broker.address, channel)
        for (_, its_channel), connection in self._connections.items():
            if its_channel == channel and not connection.is_closed:
                return connection
        return await self._connect_any(channel)

    async def refresh(self, topics: Iterable[TopicName] | None = None, *, auto_create: bool = False) -> ClusterMetadata:
        """Ask for metadata of `topics` (None: all), keep it and return it."""
        wanted = None if topics is None else [Message(name=name, topic_id=None) for name in topics]
        request = Message(
            topics=wanted,
            allow_auto_topic_creation=auto_create,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        newer = read_metadata(await self.call(ApiKey.METADATA, request))
        self.metadata = self.metadata.merged(newer, complete=topics is None)
        self._stale_topics -= newer.topics.keys()
        return newer

    async def leader(self, partition: TopicPartition) -> NodeId:
        """The node that leads a partition, from the metadata we have, refreshed if it is stale or knows no leader."""
        leader = self.metadata.leader(*partition)
        if leader is None or partition.topic in self._stale_topics:
            newer = await self.refresh([partition.topic])
            leader = newer.leader(*partition)
        if leader is not None:
            return leader
        topic = self.metadata.topics[partition.topic]
        if topic.error != ErrorCode.NONE:
            raise ApiError(topic.error, f"topic {partition.topic}")
        if partition.partition >= len(topic.partitions):
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {partition.topic} has {len(topic.partitions)} partitions, there is no {partition.partition}",
            )
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} has no leader")

    async def retry(
        self,
        operation: Callable[[], Awaitable[Result]],
        *,
        timeout_s: float | None = None,
        retriable: Callable[[ErrorCode], bool] = lambda code: code.retriable,
    ) -> Result:
        """Run `operation` until it ends in something other than a retriable error, or time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self.timeout_s if timeout_s is None else timeout_s)
        attempt = 0
        while True:
            try:
                return await operation()
            except ApiError as error:
                pause_s = backoff_s(attempt)
                if not retriable(error.code) or loop.time() + pause_s >= deadline:
                    raise
            self.forget_leaders()
            await asyncio.sleep(pause_s)
            attempt += 1

    def forget_leaders(self) -> None:
        """Something moved: the next look-up of a leader or of the controller asks again."""
        self._stale_topics.update(self.metadata.topics)
        self.metadata = replace(self.metadata, controller_id=NO_NODE)

    async def _connect(self, address: Address, channel: str) -> Connection:
        async with self._opening.setdefault((address, channel), asyncio.Lock()):
            connection = self._connections.get((address, channel))
            if connection is None or connection.is_closed:
                timeout_s = min(_CONNECT_TIMEOUT_S, self.timeout_s)
                connection = await Connection.open(address, client_id=self._client_id, timeout_s=timeout_s)
                self._connections[address, channel] = connection
            return connection

    async def _connect_any(self, channel: str) -> Connection:
        failure: ApiError | None = None
        known = [broker.address for broker in self.metadata.brokers.values()]
        for address in dict.fromkeys([*known, *self._bootstrap]):
            try:
                return await self._connect(address, channel)
            except ApiError as error:
                failure = error
        assert failure is not None, "there is at least one bootstrap address"
        raise failure
