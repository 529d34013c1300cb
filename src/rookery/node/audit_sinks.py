"""Where the lines of the audit log go: to a file, or to a topic that only super users read."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from itertools import pairwise
from pathlib import Path
from typing import Final, Protocol

from rookery.base.errors import ApiError, ErrorCode, StorageError
from rookery.base.files import File, Files
from rookery.base.types import TopicName, TopicPartition
from rookery.base.values import value_class
from rookery.broker.context import Services
from rookery.metadata.requests import NewTopic
from rookery.net.peers import Peers
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import PartitionProduceData, ProduceRequest, TopicProduceData
from rookery.records.record import Record, build_batch
from rookery.replication.replica import Replica

_PARTITION: Final = 0
_ACKS: Final = 1
_TIMEOUT_S: Final = 10.0


class AuditSink(Protocol):
    async def write(self, lines: Sequence[bytes]) -> None:
        """Write lines, all or none. Raises ApiError or StorageError if they have to be written again later."""
        ...


class FileSink:
    """Appends lines to a file, and renames it to `.1`, `.2` and so on when it has `bytes_max`; the oldest is removed.

    A file that was moved away by another program is noticed with the next rotation only.
    """

    def __init__(self, files: Files, path: Path, *, bytes_max: int, count: int, executor: Executor | None) -> None:
        self._files = files
        self._path = path
        self._bytes_max = bytes_max
        self._count = count
        self._executor = executor
        self._file: File | None = None

    async def write(self, lines: Sequence[bytes]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._executor, self._write, lines)

    def _write(self, lines: Sequence[bytes]) -> None:
        try:
            if self._file is None:
                self._file = self._files.open(self._path, create=True)
            if self._bytes_max and self._file.size() >= self._bytes_max:
                self._rotate()
                self._file = self._files.open(self._path, create=True)
            self._file.append(b"".join(line + b"\n" for line in lines))
        except OSError as error:
            self._file = None
            raise StorageError(f"cannot write the audit log {self._path}: {error}") from error

    def _rotate(self) -> None:
        """Rename the file, and those before it; `count` is how many exist together."""
        numbered = [self._path, *(self._path.with_name(f"{self._path.name}.{n}") for n in range(1, self._count))]
        self._files.remove(numbered[-1])
        for source, target in reversed(list(pairwise(numbered))):
            if self._files.exists(source):
                self._files.rename(source, target)


@value_class(kw_only=True)
class AuditTopic:
    name: TopicName
    replication_factor: int
    retention_ms: int


class TopicSink:
    """Writes lines to the only partition of a topic, also if another broker leads it."""

    def __init__(self, services: Services, peers: Peers | None, topic: AuditTopic) -> None:
        self._services = services
        self._peers = peers
        self._topic = topic
        self._partition = TopicPartition(topic.name, _PARTITION)

    async def write(self, lines: Sequence[bytes]) -> None:
        services = self._services
        if self._topic.name not in services.image.topics:
            await self._create()
        leader, _ = services.current_leader(self._partition)
        now_ms = services.clock.now_ms()
        batch = build_batch([Record(number, now_ms, None, line) for number, line in enumerate(lines)])
        if leader == services.node_id:
            self._append(batch)
        elif self._peers is None or leader < 0:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{self._topic.name} has no leader")
        else:
            await self._send(self._peers, leader, bytes(batch))

    async def _create(self) -> None:
        live = sum(not broker.fenced for broker in self._services.image.brokers.values())
        topic = NewTopic(
            name=self._topic.name,
            partition_count=1,
            replication_factor=min(self._topic.replication_factor, max(live, 1)),
            configs=(("cleanup.policy", "delete"), ("retention.ms", str(self._topic.retention_ms))),
        )
        (created,) = await self._services.broker_requests.create_topics([topic])
        if created.outcome.code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise ApiError(created.outcome.code, created.outcome.message)

    def _append(self, batch: bytearray) -> None:
        replica = self._services.replicas.find(self._partition)
        if not isinstance(replica, Replica):
            raise ApiError(replica)
        appended = replica.append(batch, acks=_ACKS, now_ms=self._services.clock.now_ms(), is_inspected=True)
        if appended.error_code is not ErrorCode.NONE:
            raise ApiError(appended.error_code, appended.message)

    async def _send(self, peers: Peers, leader: int, batch: bytes) -> None:
        topic_id = self._services.image.topics[self._topic.name].topic_id
        data = TopicProduceData(
            name=self._topic.name,
            topic_id=topic_id,
            partition_data=[PartitionProduceData(index=_PARTITION, records=batch)],
        )
        request = ProduceRequest(
            transactional_id=None, acks=_ACKS, timeout_ms=int(_TIMEOUT_S * 1000), topic_data=[data]
        )
        response = await peers.request(leader, ApiKey.PRODUCE, request, timeout_s=_TIMEOUT_S)
        code = ErrorCode(response.responses[0].partition_responses[0].error_code)
        if code is not ErrorCode.NONE:
            raise ApiError(code)
