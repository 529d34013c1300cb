"""A broker without sockets: real services on a directory, and requests as the frames that a client would send."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID, uuid4

from rookery.base.clock import Clock, ManualClock
from rookery.base.errors import ErrorCode
from rookery.base.files import File, Files, FileSlice, OsFile, OsFiles
from rookery.base.types import TopicPartition
from rookery.broker.context import Services
from rookery.broker.dispatch import Dispatcher
from rookery.broker.fetch_sessions import FetchSessions
from rookery.controller.service import Controller
from rookery.metadata.features import SUPPORTED_FEATURES
from rookery.metadata.log_config import broker_layers, log_config
from rookery.metadata.publisher import ImageListener, MetadataPublisher
from rookery.metadata.records import BrokerEndpoint
from rookery.metadata.requests import BrokerHeartbeat, Registration
from rookery.net.connection import ConnectionInfo
from rookery.net.send import Reply
from rookery.node.access import start_access
from rookery.node.coordinators import Coordinators, build_coordinators
from rookery.node.quorum_config import sole_voter
from rookery.protocol.api import SERVED, ApiKey
from rookery.protocol.codec import decode_response, encode_request
from rookery.protocol.framing import RequestHeader, encode_request_frame, parse_response_header
from rookery.protocol.message import Message
from rookery.quorum.driver import QuorumDriver
from rookery.records.record import Record, build_batch
from rookery.replication.flusher import Flusher
from rookery.replication.manager import ReplicaManager
from rookery.replication.pending import Pending
from rookery.replication.replica import Replica
from rookery.storage.directory import LogDirectory
from rookery.storage.manager import LogManager

NODE_ID = 1
LOG_DIRECTORY = UUID(int=1000)
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
CORRELATION_ID = 77
_SIZE_PREFIX = 4


class UnsyncedFile(OsFile):
    def sync(self) -> None:
        """Do nothing: a test that does not crash needs no fsync."""


class UnsyncedFiles(OsFiles):
    """The operating system's files, without fsync."""

    def open(self, path: Path, *, create: bool = False) -> File:
        return UnsyncedFile(path, create=create)

    def sync_directory(self, path: Path) -> None:
        pass


class Broker:
    """One node's services, and a client's view of them."""

    def __init__(
        self,
        services: Services,
        logs: LogManager,
        quorum: QuorumDriver,
        flusher: Flusher,
        coordinators: Coordinators,
        controller: Controller,
    ) -> None:
        self.services = services
        self.logs = logs
        self.dispatcher = Dispatcher(services)
        self.connection = ConnectionInfo("127.0.0.1", 50_000, "PLAINTEXT")
        self._quorum = quorum
        self._flusher = flusher
        self._coordinators = coordinators
        self._controller = controller

    def send(self, api_key: int, version: int, **fields: Any) -> Reply | Awaitable[Reply | None] | None:
        """Return the dispatcher's result for one request, and overwrite the frame, as a connection would."""
        frame = request_frame(api_key, version, **fields)
        answer = self.dispatcher.handle(memoryview(frame), self.connection)
        frame[:] = b"\xee" * len(frame)
        return answer

    async def call(self, api_key: int, version: int, **fields: Any) -> Message:
        answer = self.send(api_key, version, **fields)
        if not isinstance(answer, list):
            assert answer is not None
            answer = await answer
        assert answer is not None
        return decode(api_key, version, answer)

    def call_now(self, api_key: int, version: int, **fields: Any) -> Message:
        """Return the response to a request that must be answered in stage 1, without waiting."""
        answer = self.send(api_key, version, **fields)
        assert isinstance(answer, list), "the response had to wait"
        return decode(api_key, version, answer)

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> UUID:
        response = await self.call(
            19,
            7,
            topics=[
                Message(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    assignments=[],
                    configs=[Message(name=key.replace("_", "."), value=value) for key, value in configs.items()],
                )
            ],
            timeout_ms=60_000,
        )
        assert response.topics[0].error_code == ErrorCode.NONE, response.topics[0].error_message
        topic_id: UUID = response.topics[0].topic_id
        return topic_id

    def replica(self, topic: str, partition: int = 0) -> Replica:
        found = self.services.replicas.find(TopicPartition(topic, partition))
        assert isinstance(found, Replica)
        return found

    def append(self, topic: str, *values: bytes, partition: int = 0, **fields: Any) -> int:
        """Append one batch as the leader; return its base offset."""
        data = bytearray(batch(*values, **fields))
        appended = self.replica(topic, partition).append(
            data, acks=1, now_ms=self.services.clock.now_ms(), is_inspected=True
        )
        assert appended.error_code is ErrorCode.NONE, appended.message
        return appended.base_offset

    async def close(self) -> None:
        await self._coordinators.close()
        await self._flusher.wait()
        await self._controller.close()
        await self.services.replicas.checkpoint_high_watermarks()
        self.logs.close(broker_epoch=self.services.metadata.image.brokers[NODE_ID].broker_epoch)
        await self._quorum.close()


@asynccontextmanager
async def running(
    path: Path, *, config: Mapping[str, str] | None = None, files: Files | None = None, directories: int = 1
) -> AsyncIterator[Broker]:
    broker = await start(path, config=config or {}, files=files or UnsyncedFiles(), directories=directories)
    try:
        yield broker
    finally:
        await broker.close()


async def register(controller: Controller, *, previous_broker_epoch: int) -> None:
    registered = await controller.register_broker(
        Registration(
            node_id=NODE_ID,
            cluster_id=CLUSTER_ID,
            incarnation_id=uuid4(),
            endpoints=(BrokerEndpoint("PLAINTEXT", "localhost", 9092, 0),),
            features=SUPPORTED_FEATURES,
            log_directories=(LOG_DIRECTORY,),
            previous_broker_epoch=previous_broker_epoch,
        )
    )
    epoch = registered.broker_epoch
    await controller.heartbeat(BrokerHeartbeat(node_id=NODE_ID, broker_epoch=epoch, metadata_offset=epoch))


async def start_quorum(directory: Path, metadata: MetadataPublisher, clock: Clock) -> QuorumDriver:
    """Return a quorum of one that leads, and publishes what is committed."""
    quorum = QuorumDriver.open(
        UnsyncedFiles(), LogDirectory(directory), node_id=NODE_ID, voters=sole_voter(NODE_ID), clock=clock
    )
    await quorum.start()
    await metadata.start(quorum.batches())
    quorum.follow(metadata.commit, from_offset=quorum.high_watermark)
    return quorum


async def start(path: Path, *, config: Mapping[str, str], files: Files, directories: int = 1) -> Broker:
    clock, random = ManualClock(), Random(0)
    paths = [path / f"disk{number}" for number in range(directories)]
    metadata_directory = path / "metadata"
    for directory in (*paths, metadata_directory):
        directory.mkdir(parents=True, exist_ok=True)
    metadata = MetadataPublisher()
    access = start_access(metadata, broker_layers(metadata.image, NODE_ID, config))
    quorum = await start_quorum(metadata_directory, metadata, clock)
    controller = Controller(
        quorum, metadata, node_id=NODE_ID, cluster_id=CLUSTER_ID, static=config, random=random, clock=clock
    )
    controller.activate(quorum.leader_epoch)
    layers = broker_layers(metadata.image, NODE_ID, config)
    logs = LogManager(files, clock, paths)
    summary = logs.load(lambda topic: log_config(metadata.image.topic_config(topic), layers))
    pending, flusher = Pending(asyncio.get_running_loop()), Flusher()
    replicas = ReplicaManager(logs, node_id=NODE_ID, static_config=config, pending=pending, flusher=flusher)
    await replicas.start(metadata.image, metadata.removed_topics)
    metadata.add(ImageListener("replicas", replicas.apply, prepare=replicas.prepare, finish=replicas.finish))
    coordinators = build_coordinators(
        layers,
        node_id=NODE_ID,
        controller=controller,
        metadata=metadata,
        replicas=replicas,
        pending=pending,
        clock=clock,
        new_uuid=lambda: UUID(int=random.getrandbits(128)),
    )
    await register(controller, previous_broker_epoch=summary.broker_epoch)
    coordinators.start(metadata)
    services = Services(
        node_id=NODE_ID,
        cluster_id=CLUSTER_ID,
        clock=clock,
        metadata=metadata,
        controller=controller,
        broker_requests=controller,
        quorum=quorum,
        replicas=replicas,
        pending=pending,
        fetch_sessions=FetchSessions(
            slots_max=layers.integer("max.incremental.fetch.session.cache.slots"),
            random_id=lambda: random.randrange(1, 2**31),
        ),
        producer_ids=coordinators.producer_ids,
        groups=coordinators.groups,
        markers=coordinators.markers,
        transactions=coordinators.transactions,
        partition_transactions=coordinators.partition_transactions,
        static_config=config,
        fetch_max_bytes=layers.integer("fetch.max.bytes"),
        access=access,
    )
    return Broker(services, logs, quorum, flusher, coordinators, controller)


def play(
    path: Path, scene: Callable[[Broker], Coroutine[Any, Any, None]], defaults: Mapping[str, str], **config: str
) -> None:
    """Run `scene` with a broker. `config` takes precedence over `defaults`; its names have underscores for dots."""

    async def main() -> None:
        settings = {**defaults, **{key.replace("_", "."): value for key, value in config.items()}}
        async with running(path, config=settings) as broker:
            await scene(broker)

    asyncio.run(main())


async def settle() -> None:
    """Run all callbacks that are ready."""
    for _ in range(10):
        await asyncio.sleep(0)


def versions(key: ApiKey, since: int = 0) -> range:
    """Return the versions of an API that are served, from `since` on."""
    return range(max(SERVED[key].minimum, since), SERVED[key].maximum + 1)


def request_frame(api_key: int, version: int, **fields: Any) -> bytearray:
    """Return a request frame without its size field, in memory that can be overwritten."""
    body = encode_request(api_key, version, Message(**fields))
    header = RequestHeader(api_key, version, CORRELATION_ID, "test")
    return bytearray(encode_request_frame(header, body)[_SIZE_PREFIX:])


def decode(api_key: int, version: int, reply: Reply) -> Message:
    data = joined(reply)
    assert int.from_bytes(data[:_SIZE_PREFIX], "big") == len(data) - _SIZE_PREFIX
    frame = data[_SIZE_PREFIX:]
    correlation_id, position = parse_response_header(api_key, version, frame)
    assert correlation_id == CORRELATION_ID
    return decode_response(api_key, version, frame, position)


def joined(reply: Reply) -> bytes:
    """Return the bytes that the connection would send."""
    return b"".join(
        part.file.read_at(part.position, part.size) if isinstance(part, FileSlice) else part for part in reply
    )


def batch(*values: bytes, timestamp_ms: int = 1_700_000_000_000, key: bytes | None = b"k", **fields: Any) -> bytes:
    records = [Record(index, timestamp_ms + index, key, value) for index, value in enumerate(values)]
    return bytes(build_batch(records, **fields))
