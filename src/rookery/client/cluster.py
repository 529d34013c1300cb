"""The cluster as a client sees it: bootstrap, the newest metadata, a connection per broker, and retries.

`Cluster.call` sends one request to a given node or to any node. `Cluster.retry` repeats an operation while it raises a
retriable `ApiError`, with growing pauses, until its deadline. The admin client, the producer and the consumer are built
from these two and `metadata`.

A topic's metadata is stale after `mark_stale` or `forget_leaders`. The next look-up of a leader then requests it again;
concurrent look-ups share one request. A separate task refreshes the watched topics when one of them becomes stale, and
when their metadata is older than `metadata.max.age.ms`.

A closed cluster stays closed. Every call that needs a connection then raises `ClientStateError`, and a retry that
pauses ends immediately.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from random import Random
from types import TracebackType
from typing import Self, TypeVar

from rookery.base.codes import EndpointType
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NO_TOPIC_ID, LeaderEpoch, NodeId, TopicName, TopicPartition
from rookery.client.backoff import Backoff
from rookery.client.connection_pool import ConnectionPool, closed_error
from rookery.client.errors import AuthenticationError, HandshakeError
from rookery.client.metadata import NO_NODE, Broker, ClusterMetadata, read_controllers, read_metadata
from rookery.client.settings.common import CommonSettings
from rookery.net.address import parse_addresses
from rookery.net.channel import Channel, ChannelObserver
from rookery.protocol.api import ApiKey
from rookery.protocol.dialect import NodeEndpoint
from rookery.protocol.message import Request, ResponseT
from rookery.protocol.messages import (
    DescribeClusterRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

Result = TypeVar("Result")

DEFAULT_CLIENT_ID = "rookery"
DEFAULT_TIMEOUT_S = 30.0
_NEVER_S = float("-inf")
# The pause of the watch after a failed authentication, if no client has subscribed to such failures.
_AUTHENTICATION_PAUSE_S = 10.0


class Cluster:
    """The connections and the metadata of one client.

    `request_timeout_s` bounds one request, `timeout_s` a whole operation with its retries.
    """

    def __init__(
        self,
        settings: CommonSettings,
        *,
        observer: ChannelObserver | None = None,
        randomness: Random | None = None,
    ) -> None:
        self.settings = settings
        self.metadata = ClusterMetadata()
        # Increases with every change of the metadata.
        self.metadata_version = 0
        self.on_refresh: list[Callable[[ClusterMetadata], None]] = []
        self.timeout_s = settings.default_api_timeout_ms / 1000
        self.request_timeout_s = settings.request_timeout_ms / 1000
        self._backoff = Backoff(settings.retry_backoff_ms / 1000, settings.retry_backoff_max_ms / 1000)
        self._randomness = randomness
        self._pool = ConnectionPool(settings, observer=observer, randomness=randomness)
        self._stale_topics: set[TopicName] = set()
        self._refresh_lock = asyncio.Lock()
        self._closed = asyncio.Event()
        # The number of consecutive REBOOTSTRAP_REQUIRED responses.
        self._rebootstrap_count = 0
        # The watched topics (None: all), and when they were last requested.
        self._watched: frozenset[TopicName] | None = frozenset()
        self._watched_s = _NEVER_S
        # The authentication error that stopped the watch, the callbacks for it, and the event that allows a retry.
        self._authentication_error: AuthenticationError | None = None
        self.on_authentication_error: list[Callable[[], None]] = []
        self._authentication_retry = asyncio.Event()
        self._watch_wake = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None

    @classmethod
    def at(cls, bootstrap: str, *, client_id: str = DEFAULT_CLIENT_ID, timeout_s: float = DEFAULT_TIMEOUT_S) -> Self:
        """Create a cluster from `host:port,host:port`. `timeout_s` bounds each request and each whole operation."""
        return cls(plain_settings(bootstrap, client_id=client_id, timeout_s=timeout_s))

    async def __aenter__(self) -> Self:
        """Connect to one broker. Raises immediately, without retries, if none can be reached."""
        await self.connection()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close for good. May be called again, for example to wait for the end after a cancelled call."""
        self._closed.set()
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait([self._watcher])
        await self._pool.close()

    # Requests

    async def call(
        self,
        api_key: ApiKey,
        message: Request[ResponseT],
        *,
        node: NodeId | None = None,
        timeout_s: float | None = None,
        lane: str = "",
        version_max: int | None = None,
    ) -> ResponseT:
        """Send one request to `node`, or to any broker, without retries.

        Requests of one lane share a connection, on which a long poll delays the requests after it.
        """
        connection = await self.connection(node, lane)
        api_version = None if version_max is None else min(version_max, connection.version(api_key))
        limit_s = self.request_timeout_s if timeout_s is None else timeout_s
        return await connection.request(api_key, message, timeout_s=limit_s, api_version=api_version)

    async def call_controller(self, api_key: ApiKey, message: Request[ResponseT]) -> ResponseT:
        """Send one request to the active controller, or to a broker, which forwards it."""
        if self.metadata.controller_id not in self.metadata.brokers:
            await self.refresh(topics=())
        known = self.metadata.controller_id in self.metadata.brokers
        if not known and self.settings.bootstrap_is_controllers:
            # Controllers do not forward requests.
            raise ApiError(ErrorCode.NOT_CONTROLLER, "the quorum has no leader at the moment")
        return await self.call(api_key, message, node=self.metadata.controller_id if known else None)

    async def connection(self, node: NodeId | None = None, lane: str = "") -> Channel:
        """Return a connection to `node`, or to any broker: an open one, else the first that can be opened."""
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
        """Run `operation` until it returns or raises an error that is not retriable.

        The last error is raised when the next pause would exceed `timeout_s`.
        """
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
        """Return the pause after attempt `attempt`, by `retry.backoff.ms` and `retry.backoff.max.ms`."""
        return self._backoff.pause_s(attempt, self._randomness)

    async def _pause(self, pause_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._closed.wait()
        if self._closed.is_set():
            raise closed_error()

    # Metadata

    async def refresh(self, topics: Iterable[TopicName] | None = None, *, auto_create: bool = False) -> ClusterMetadata:
        """Request the metadata of `topics` (None: all), store it and return the merged metadata of these topics."""
        if self.settings.bootstrap_is_controllers:
            return await self._refresh_controllers(topics)
        # Sorted, so that the bytes of a request do not depend on the iteration order of sets.
        wanted = (
            None
            if topics is None
            else [MetadataRequestTopic(name=name, topic_id=NO_TOPIC_ID) for name in sorted(topics)]
        )
        request = MetadataRequest(
            topics=wanted,
            allow_auto_topic_creation=auto_create,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        connection = await self.connection()
        response = await connection.request(ApiKey.METADATA, request, timeout_s=self.request_timeout_s)
        self._check_metadata(response, connection)
        newer = read_metadata(response)
        # A response about all topics also settles the topics that it does not contain: they were deleted.
        self._stale_topics -= self._stale_topics if topics is None else newer.topics.keys()
        self._store(self.metadata.merged(newer, complete=topics is None))
        return replace(newer, topics={name: self.metadata.topics[name] for name in newer.topics})

    async def _refresh_controllers(self, topics: Iterable[TopicName] | None) -> ClusterMetadata:
        """Request the controllers, which take the place of brokers. Controllers do not serve Metadata (KIP-919)."""
        if topics != ():
            message = "controllers do not describe topics: set bootstrap.servers instead of bootstrap.controllers"
            raise ApiError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, message)
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False,
            endpoint_type=EndpointType.CONTROLLER,
            include_fenced_brokers=False,
        )
        response = await self.call(ApiKey.DESCRIBE_CLUSTER, request)
        if response.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(response.error_code), response.error_message or "the cluster's controllers")
        self._store(read_controllers(response))
        return self.metadata

    async def leader(self, partition: TopicPartition) -> NodeId:
        """Return the leader of a partition, from the metadata, which is refreshed if it is stale or has no leader."""
        found = (await self.leaders([partition]))[partition]
        if isinstance(found, ApiError):
            raise found
        return found

    async def leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, NodeId | ApiError]:
        """Return the leader of each partition, or the error why there is none. One request covers all unknown ones."""
        topics = {tp.topic for tp in partitions if self.metadata.leader(*tp) is None or tp.topic in self._stale_topics}
        if topics:
            await self._refresh_once(topics)
        return {tp: self.metadata.leader_or_error(tp) for tp in partitions}

    def forget_leaders(self) -> None:
        """Make the next look-up of a leader or of the controller request the metadata again."""
        self._stale_topics.update(self.metadata.topics)
        self.metadata = replace(self.metadata, controller_id=NO_NODE)
        self._watch_wake.set()

    def is_stale(self, topic: TopicName) -> bool:
        """Whether the metadata of a topic is missing or out of date."""
        return topic in self._stale_topics or topic not in self.metadata.topics

    def mark_stale(self, topic: TopicName) -> None:
        """Mark a topic's metadata as out of date; if it is watched, it is refreshed soon."""
        self._stale_topics.add(topic)
        self._watch_wake.set()

    def learn_leader(
        self,
        partition: TopicPartition,
        leader: NodeId,
        leader_epoch: LeaderEpoch,
        endpoints: Iterable[NodeEndpoint] = (),
    ) -> bool:
        """Store the leader that a broker named which does not lead the partition itself (KIP-951).

        Returns whether it was newer than the metadata.
        """
        brokers = [Broker(*endpoint) for endpoint in endpoints]
        changed = self.metadata.with_leader(partition, leader, leader_epoch, brokers)
        if changed is self.metadata:
            return False
        self._store(changed)
        return True

    def watch(self, topics: Iterable[TopicName] | None) -> None:
        """Keep the metadata of `topics` (None: all) fresh from now on, instead of those watched before."""
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

    def _check_metadata(self, response: MetadataResponse, connection: Channel) -> None:
        code = ErrorCode(response.get("error_code", ErrorCode.NONE))
        if code == ErrorCode.REBOOTSTRAP_REQUIRED:
            # The known brokers do not belong to this cluster any more (KIP-1102): forget them, and use the bootstrap
            # servers.
            self.metadata = ClusterMetadata()
            self._pool.drop_all(connection.address, self.backoff_s(self._rebootstrap_count))
            self._rebootstrap_count += 1
        if code != ErrorCode.NONE:
            raise ApiError(code, "the cluster's metadata")
        self._rebootstrap_count = 0

    def _store(self, metadata: ClusterMetadata) -> None:
        self.metadata = metadata
        self.metadata_version += 1
        # A broker answered, so the watch may try again.
        self._authentication_retry.set()
        self._pool.set_nodes({broker.address: broker.node_id for broker in metadata.brokers.values()})
        for notify in self.on_refresh:
            notify(metadata)

    async def _refresh_once(self, topics: Collection[TopicName]) -> None:
        """Refresh `topics`, unless a concurrent call has done so while this one waited for the lock."""
        version = self.metadata_version
        async with self._refresh_lock:
            is_refreshed = version != self.metadata_version and not any(map(self.is_stale, topics))
            if not is_refreshed:
                await self.refresh(topics)

    async def _keep_fresh(self) -> None:
        """Refresh the watched topics until the task is cancelled."""
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            await self._wait_until_due()
            self._watched_s = loop.time()
            if self._watched != frozenset():
                failures = 0 if await self._refresh_watched() else failures + 1
            if failures:
                self._watched_s = _NEVER_S
            if self._authentication_error is not None:
                await self._wait_to_authenticate()
            # Limit the rate, however often topics are marked as stale: each failed fetch or batch marks one.
            await asyncio.sleep(self.backoff_s(max(failures - 1, 0)))

    async def _wait_until_due(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._watch_wake.clear()
            due_s = self._watched_s + self.settings.metadata_max_age_ms / 1000 - loop.time()
            if due_s <= 0 or self._has_stale_watched():
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(due_s):
                    await self._watch_wake.wait()

    async def _wait_to_authenticate(self) -> None:
        """Pause after a failed authentication, because repeated logins with a wrong password can lock an account.

        A client with a callback in `on_authentication_error` ends the pause by calling `take_authentication_error`
        (a consumer does so in `poll`). Without a callback (a producer), the pause is short.
        """
        has_callback = bool(self.on_authentication_error)
        pause_s = self.settings.metadata_max_age_ms / 1000 if has_callback else _AUTHENTICATION_PAUSE_S
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._authentication_retry.wait()

    def _has_stale_watched(self) -> bool:
        if self._watched is None:
            return bool(self._stale_topics)
        return not self._stale_topics.isdisjoint(self._watched)

    async def _refresh_watched(self) -> bool:
        """Refresh the watched topics; return whether the response named all leaders."""
        try:
            newer = await self.refresh(self._watched)
        except AuthenticationError as error:
            self._authentication_error = error
            self._authentication_retry.clear()
            for notify in self.on_authentication_error:
                notify()
            return False
        except ApiError:
            # A caller that needs the metadata gets the error from its own request; the watch only tries again.
            return False
        self._authentication_error = None
        return not any(topic.is_incomplete for topic in newer.topics.values())

    def take_authentication_error(self) -> AuthenticationError | None:
        """Return the authentication error of the watch; None if it succeeded, or no broker could be reached.

        Returns the error once; the next call triggers a new attempt.
        """
        error, self._authentication_error = self._authentication_error, None
        if error is None:
            self._authentication_retry.set()
        return error

    async def _connect_any(self, lane: str) -> Channel:
        nodes = {broker.address: broker.node_id for broker in self.metadata.brokers.values()}
        if self.settings.metadata_rebootstrap or not nodes:
            # As in Kafka, the bootstrap servers are the nodes -1, -2 and so on, until their node ids are known.
            for index, address in enumerate(self.settings.bootstrap_servers):
                nodes.setdefault(address, -1 - index)
        failure: ApiError | None = None
        for address in self._pool.by_availability(nodes):
            try:
                return await self._pool.connect(address, lane, nodes[address])
            except ApiError as error:
                if isinstance(error, AuthenticationError) and not isinstance(error, HandshakeError):
                    # The other brokers would reject the same login, and each attempt counts towards a locked account.
                    raise
                failure = failure if isinstance(failure, HandshakeError) else error
        assert failure is not None, "there is at least one bootstrap address"
        raise failure


def plain_settings(bootstrap: str, *, client_id: str, timeout_s: float) -> CommonSettings:
    """Return Kafka's defaults, with shorter retry pauses, for clients that have no settings object."""
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
