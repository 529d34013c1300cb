"""Damages a node's files and observes what the node then serves, for tests of the checks at start.

A `Harm` changes one file of a copied data directory. `observe` starts a node on it and returns the outcome: everything
is served, the start fails, or missing parts are reported. Records are read like a consumer reads them, with a check of
each batch's checksum.
"""

import asyncio
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from rookery.base.errors import ErrorCode, RookeryError, StartupError
from rookery.base.types import Offset, TopicPartition
from rookery.metadata.image import ClusterImage
from rookery.node.node import Node
from rookery.records.batch import HEADER_SIZE, check_batch, iterate_headers
from rookery.records.record import decode_records
from rookery.replication.replica import Replica
from tests.broker.harness import UnsyncedFiles
from tests.node.test_node import make_node
from tests.support.logs import captured_logs

# The position of one byte in each field of a batch header; the last one is in the records.
FIELDS = {
    "base offset": 7,
    "length": 11,
    "leader epoch": 15,
    "magic": 16,
    "crc": 18,
    "attributes": 22,
    "last offset delta": 26,
    "timestamp": 34,
    "producer": 50,
    "count": 60,
    "records": HEADER_SIZE + 5,
}

Records = dict[TopicPartition, list[tuple[Offset, bytes | None]]]


class Harm(NamedTuple):
    name: str
    do: Callable[[Path], None]

    def __str__(self) -> str:
        return self.name


class Observation(NamedTuple):
    # Why the start failed, None if the node served.
    startup_error: str | None
    topics: frozenset[str]
    # The records of the partitions that could be read to their end.
    records: Records
    # The logged errors, and the errors of the reads.
    reported: list[str]


def flip(relative: str, position: int, bits: int = 0x01) -> Harm:
    def do(data_dir: Path) -> None:
        path = data_dir / relative
        data = bytearray(path.read_bytes())
        data[position] ^= bits
        path.write_bytes(data)

    return Harm(f"flip {bits:#x} in byte {position} of {relative}", do)


def cut(relative: str, size: int) -> Harm:
    def do(data_dir: Path) -> None:
        path = data_dir / relative
        path.write_bytes(path.read_bytes()[:size])

    return Harm(f"cut {relative} to {size} bytes", do)


def remove(relative: str) -> Harm:
    def do(data_dir: Path) -> None:
        path = data_dir / relative
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()

    return Harm(f"remove {relative}", do)


def harms_of_log(data_dir: Path, relative: str, *, skipped: Collection[str] = ()) -> Iterator[Harm]:
    """Yield a bit flip in every field of every batch, a cut at and inside every batch, and the removal of the file."""
    data = (data_dir / relative).read_bytes()
    for position, header in iterate_headers(data):
        for field, place in FIELDS.items():
            if field not in skipped:
                yield flip(relative, position + min(place, header.size_bytes - 1))
        yield cut(relative, position)
        yield cut(relative, position + header.size_bytes // 2)
    yield remove(relative)


def harms_of_small_file(data_dir: Path, relative: str) -> Iterator[Harm]:
    data = (data_dir / relative).read_bytes()
    for position in sorted({0, len(data) // 2, len(data) - 2, len(data) - 1}):
        if 0 <= position < len(data):
            yield flip(relative, position)
    yield cut(relative, 0)
    yield cut(relative, len(data) // 2)
    yield remove(relative)


def contents_of(data_dir: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(data_dir)): path.read_bytes()
        for path in sorted(data_dir.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def observe(data_dir: Path) -> Observation:
    return asyncio.run(_observe(data_dir))


async def _observe(data_dir: Path) -> Observation:
    node = make_node(data_dir, files=UnsyncedFiles())
    with captured_logs() as lines:
        try:
            await node.start()
        except (StartupError, RookeryError) as error:
            return Observation(str(error), frozenset(), {}, [])
        records, reported = _read_everything(node)
        topics = frozenset(_image(node).topics)
        await node.stop()
    reported += [str(line) for line in lines if line["log_level"] == "error"]
    return Observation(None, topics, records, reported)


def _image(node: Node) -> ClusterImage:
    return node._metadata.image


def _read_everything(node: Node) -> tuple[Records, list[str]]:
    assert node._broker is not None
    records: Records = {}
    reported: list[str] = []
    for topic in _image(node).topics.values():
        for index in topic.partitions:
            partition = TopicPartition(topic.name, index)
            replica = node._broker.replicas.find(partition)
            if isinstance(replica, ErrorCode):
                reported.append(f"{partition}: {replica.name}")
                continue
            try:
                records[partition] = list(_read_log(replica))
            except RookeryError as error:
                reported.append(f"{partition}: {error}")
    return records, reported


def _read_log(replica: Replica) -> Iterator[tuple[Offset, bytes | None]]:
    """Yield all committed records of a partition, read in small fetches."""
    offset = replica.log.start_offset
    while offset < replica.state.high_watermark:
        found = replica.read(offset, 300)
        if found.error_code is not ErrorCode.NONE:
            raise RookeryError(found.error_code.name)
        data = b"".join(part.file.read_at(part.position, part.size) for part in found.slices)
        before = offset
        for position, header in iterate_headers(data):
            batch = data[position : position + header.size_bytes]
            check_batch(batch)
            if not header.is_control:
                yield from ((record.offset, record.value) for record in decode_records(batch))
            offset = max(offset, header.last_offset + 1)
        if offset == before:
            raise RookeryError(f"no progress at {offset}")
