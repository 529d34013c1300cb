"""The cluster as a client sees it: bootstrap, the newest metadata, a connection per broker, and retries.

`Cluster.call` sends one request to a node, or to any. `Cluster.retry` runs an operation again while it ends in a
retriable `ApiError`, with growing pauses, until its deadline. Everything above (admin, producer, consumer) is built
from these two and `metadata`.

Metadata is stale where somebody said so (`mark_stale`, `forget_leaders`): the next look-up of a leader asks again, and
all who look at the same time share one request. What is watched is asked for by a task of its own: when it becomes
stale, and whenever it is older than `metadata.max.age.ms`.

A closed cluster stays closed. Whatever needs a connection is `ClientStateError` from then on; a retry that pauses ends
at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from random import Random
from types import TracebackType
from typing import Self, TypeVar

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import LeaderEpoch, NodeId, TopicName, TopicPartition
from rookery.client.backoff import Backoff
from rookery.client.connection_pool import ConnectionPool, closed_error
from rookery.client.errors import AuthenticationError, HandshakeError
from rookery.client.metadata import NO_NODE, Broker, ClusterMetadata, read_metadata
from rookery.client.settings.common import CommonSettings
from rookery.net.address import parse_addresses
from rookery.net.channel import Channel, ChannelObserver
from rookery.protocol.api import ApiKey
from rookery.protocol.dialect import NodeEndpoint
from rookery.protocol.message import Message

Result = TypeVar("Result")

DEFAULT_CLIENT_ID = "rookery"
DEFAULT_TIMEOUT_S = 30.0
_NEVER_S = float("-inf")
# How long nobody is asked after a refusal, if there is nobody who says when to ask again.
_REFUSAL_PAUSE_S = 10.0


class Cluster:
    """`request_timeout_s` bounds one request, `timeout_s` a whole operation with its retries."""

    def __init__(
        self,
        settings: CommonSettings,
        *,
        observer: ChannelObserver | None = None,
        randomness: Random | None = None,
    ) -> None:
        self.settings = settings
        self.metadata = ClusterMetadata()
        # Rises whenever the metadata changes.
        self.metadata_version = 0
        self.on_refresh: list[Callable[[ClusterMetadata], None]] = []
        self.timeout_s = settings.default_api_timeout_ms / 1000
        self.request_timeout_s = settings.request_timeout_ms / 1000
        self._backoff = Backoff(settings.retry_backoff_ms / 1000, settings.retry_backoff_max_ms / 1000)
        self._randomness = randomness
        self._pool = ConnectionPool(settings, observer=observer, randomness=randomness)
        self._stale_topics: set[TopicName] = set()
        self._asking = asyncio.Lock()
        self._closed = asyncio.Event()
        # In a row: answers that said that the cluster is elsewhere.
        self._rebootstrap_count = 0
        # Of the watch: the topics (None: all), when they were asked for last, and the task.
        self._watched: frozenset[TopicName] | None = frozenset()
        self._watched_s = _NEVER_S
        # Why no broker let the watch in, who wants to hear of it, and whether somebody asked since.
        self._refusal: AuthenticationError | None = None
        self.on_refusal: list[Callable[[], None]] = []
        self._refusal_wake = asyncio.Event()
        self._watch_wake = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None

    @classmethod
    def at(cls, bootstrap: str, *, client_id: str = DEFAULT_CLIENT_ID, timeout_s: float = DEFAULT_TIMEOUT_S) -> Self:
        """From `host:port,host:port`, with one time-out for a request as well as for a whole operation."""
        return cls(plain_settings(bootstrap, client_id=client_id, timeout_s=timeout_s))

    async def __aenter__(self) -> Self:
        """Connect to one broker: that nobody is there is told at once and not retried."""
        await self.connection()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """For good. May be called again, also to wait for the end after it was cancelled."""
        self._closed.set()
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait([self._watcher])
        await self._pool.close()

    # Requests

    async def call(
        self,
        api_key: ApiKey,
        message: Message,
        *,
        node: NodeId | None = None,
        timeout_s: float | None = None,
        lane: str = "",
        version_max: int | None = None,
    ) -> Message:
        """One request to `node`, or to any broker; no retry.

        Requests of one lane share a connection, where a long poll holds up what comes behind it.
        """
        connection = await self.connection(node, lane)
        api_version = None if version_max is None else min(version_max, connection.version(api_key))
        patience_s = self.request_timeout_s if timeout_s is None else timeout_s
        return await connection.request(api_key, message, timeout_s=patience_s, api_version=api_version)

    async def call_controller(self, api_key: ApiKey, message: Message) -> Message:
        """One request to the active controller, or to a broker that forwards to it."""
        if self.metadata.controller_id not in self.metadata.brokers:
            await self.refresh(topics=())
        known = self.metadata.controller_id in self.metadata.brokers
        return await self.call(api_key, message, node=self.metadata.controller_id if known else None)

    async def connection(self, node: NodeId | None = None, lane: str = "") -> Channel:
        """A connection to `node`, or to any broker: one that is open, else the first that answers."""
        if node is None:
            return self._pool.find(lane) or await self._connect_any(lane)
        broker = self.metadata.brokers.get(node)
        if broker is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node} is not in the cluster's metadata")
        return await self._pool.connect(broker.address, lane, node)

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
                pause_s = self.backoff_s(attempt)
                if not retriable(error.code) or loop.time() + pause_s >= deadline:
                    raise
            self.forget_leaders()
            await self._pause(pause_s)
            attempt += 1

    def backoff_s(self, attempt: int) -> float:
        """The pause before attempt `attempt` + 1, by `retry.backoff.ms` and `retry.backoff.max.ms`."""
        return self._backoff.pause_s(attempt, self._randomness)

    async def _pause(self, pause_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._closed.wait()
        if self._closed.is_set():
            raise closed_error()

    # Metadata

    async def refresh(self, topics: Iterable[TopicName] | None = None, *, auto_create: bool = False) -> ClusterMetadata:
        """Ask for metadata of `topics` (None: all), keep it and return what is known of these."""
        # In order: what a client sends does not depend on how sets are iterated.
        wanted = None if topics is None else [Message(name=name, topic_id=None) for name in sorted(topics)]
        request = Message(
            topics=wanted,
            allow_auto_topic_creation=auto_create,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        connection = await self.connection()
        response = await connection.request(ApiKey.METADATA, request, timeout_s=self.request_timeout_s)
        self._check_metadata(response, connection)
        newer = read_metadata(response)
        # Of all topics: those that are gone, too.
        self._stale_topics -= self._stale_topics if topics is None else newer.topics.keys()
        self._keep(self.metadata.merged(newer, complete=topics is None))
        return replace(newer, topics={name: self.metadata.topics[name] for name in newer.topics})

    async def leader(self, partition: TopicPartition) -> NodeId:
        """The node that leads a partition, from the metadata we have, refreshed if it is stale or knows no leader."""
        found = (await self.leaders([partition]))[partition]
        if isinstance(found, ApiError):
            raise found
        return found

    async def leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, NodeId | ApiError]:
        """The leader of each partition, or why it has none; asked for in one request as far as they are not known."""
        topics = {tp.topic for tp in partitions if self.metadata.leader(*tp) is None or tp.topic in self._stale_topics}
        if topics:
            await self._ask_again(topics)
        return {tp: self.metadata.leader_or_error(tp) for tp in partitions}

    def forget_leaders(self) -> None:
        """Something moved: the next look-up of a leader or of the controller asks again."""
        self._stale_topics.update(self.metadata.topics)
        self.metadata = replace(self.metadata, controller_id=NO_NODE)
        self._watch_wake.set()

    def is_stale(self, topic: TopicName) -> bool:
        """Whether what is known of a topic, if anything, should not be relied on."""
        return topic in self._stale_topics or topic not in self.metadata.topics

    def mark_stale(self, topic: TopicName) -> None:
        """Something of the topic moved; a watched topic is asked for soon."""
        self._stale_topics.add(topic)
        self._watch_wake.set()

    def learn_leader(
        self,
        partition: TopicPartition,
        leader: NodeId,
        leader_epoch: LeaderEpoch,
        endpoints: Iterable[NodeEndpoint] = (),
    ) -> bool:
        """Take a hint from a broker that does not lead (any more), see KIP-951; whether it was news."""
        brokers = [Broker(*endpoint) for endpoint in endpoints]
        changed = self.metadata.with_leader(partition, leader, leader_epoch, brokers)
        if changed is self.metadata:
            return False
        self._keep(changed)
        return True

    def watch(self, topics: Iterable[TopicName] | None) -> None:
        """Keep metadata of these topics fresh from now on (None: of all), in place of those watched before."""
        if self._closed.is_set():
            raise closed_error()
        watched = None if topics is None else frozenset(topics)
        if watched == self._watched:
            return
        self._watched = watched
        if watched is None or any(map(self.is_stale, watched)):
            self._watched_s = _NEVER_S
            self._watch_wake.set()
        if self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(self._keep_fresh())

    def _check_metadata(self, response: Message, connection: Channel) -> None:
        code = ErrorCode(response.get("error_code", ErrorCode.NONE))
        if code == ErrorCode.REBOOTSTRAP_REQUIRED:
            # The brokers that we know belong to another cluster by now (KIP-1102).
            self.metadata = ClusterMetadata()
            self._pool.start_over(connection.address, self.backoff_s(self._rebootstrap_count))
            self._rebootstrap_count += 1
        if code != ErrorCode.NONE:
            raise ApiError(code, "the cluster's metadata")
        self._rebootstrap_count = 0

    def _keep(self, metadata: ClusterMetadata) -> None:
        self.metadata = metadata
        self.metadata_version += 1
        self._refusal_wake.set()
        self._pool.name_nodes({broker.address: broker.node_id for broker in metadata.brokers.values()})
        for tell in self.on_refresh:
            tell(metadata)

    async def _ask_again(self, topics: Collection[TopicName]) -> None:
        """Refresh, unless somebody else just did while we waited for our turn."""
        version = self.metadata_version
        async with self._asking:
            is_answered = version != self.metadata_version and not any(map(self.is_stale, topics))
            if not is_answered:
                await self.refresh(topics)

    async def _keep_fresh(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            await self._wait_until_old()
            self._watched_s = loop.time()
            if self._watched != frozenset():
                failures = 0 if await self._refresh_watched() else failures + 1
            if failures:
                self._watched_s = _NEVER_S
            if self._refusal is not None:
                await self._wait_until_asked()
            # Never faster than this, however often somebody says that something moved.
            await asyncio.sleep(self.backoff_s(max(failures - 1, 0)))

    async def _wait_until_old(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._watch_wake.clear()
            due_s = self._watched_s + self.settings.metadata_max_age_ms / 1000 - loop.time()
            if due_s <= 0 or self._has_stale_watched():
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(due_s):
                    await self._watch_wake.wait()

    async def _wait_until_asked(self) -> None:
        """A wrong password that is tried again and again locks accounts. Who listens to refusals asks by polls."""
        pause_s = self.settings.metadata_max_age_ms / 1000 if self.on_refusal else _REFUSAL_PAUSE_S
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._refusal_wake.wait()

    def _has_stale_watched(self) -> bool:
        if self._watched is None:
            return bool(self._stale_topics)
        return not self._stale_topics.isdisjoint(self._watched)

    async def _refresh_watched(self) -> bool:
        """Whether the answer is there, and says where everything is."""
        try:
            newer = await self.refresh(self._watched)
        except AuthenticationError as error:
            self._refusal = error
            self._refusal_wake.clear()
            for tell in self.on_refusal:
                tell()
            return False
        except ApiError:
            # Whoever needs the metadata will see the error; here it is only a reason to try again.
            return False
        self._refusal = None
        return not any(topic.is_unsettled for topic in newer.topics.values())

    def take_refusal(self) -> AuthenticationError | None:
        """Why no broker tells about the watched topics; None if they told, or could not be reached.

        It is told once. Who asks again wants it to be tried again.
        """
        refusal, self._refusal = self._refusal, None
        if refusal is None:
            self._refusal_wake.set()
        return refusal

    async def _connect_any(self, lane: str) -> Channel:
        nodes = {broker.address: broker.node_id for broker in self.metadata.brokers.values()}
        if self.settings.metadata_rebootstrap or not nodes:
            # Kafka, too, counts the bootstrap servers as the nodes -1, -2 and so on, until it knows them.
            for index, address in enumerate(self.settings.bootstrap_servers):
                nodes.setdefault(address, -1 - index)
        failure: ApiError | None = None
        for address in self._pool.by_patience(nodes):
            try:
                return await self._pool.connect(address, lane, nodes[address])
            except ApiError as error:
                if isinstance(error, AuthenticationError) and not isinstance(error, HandshakeError):
                    # The others would say the same.
                    raise
                failure = failure if isinstance(failure, HandshakeError) else error
        assert failure is not None, "there is at least one bootstrap address"
        raise failure


def plain_settings(bootstrap: str, *, client_id: str, timeout_s: float) -> CommonSettings:
    """Kafka's defaults for those who bring no settings of their own, but quicker to try again."""
    timeout_ms = int(timeout_s * 1000)
    return CommonSettings(
        bootstrap_servers=tuple(parse_addresses(bootstrap)),
        client_id=client_id,
        client_rack="",
        request_timeout_ms=timeout_ms,
        default_api_timeout_ms=timeout_ms,
        retry_backoff_ms=50,
        retry_backoff_max_ms=1000,
        reconnect_backoff_ms=50,
        reconnect_backoff_max_ms=1000,
        socket_connection_setup_timeout_ms=10_000,
        socket_connection_setup_timeout_max_ms=30_000,
        connections_max_idle_ms=540_000,
        metadata_max_age_ms=300_000,
        metadata_rebootstrap=True,
        metadata_rebootstrap_trigger_ms=300_000,
        send_buffer_bytes=131_072,
        receive_buffer_bytes=65_536,
        metrics_num_samples=2,
        metrics_sample_window_ms=30_000,
    )
