"""Reads a broker's files for `rookery log dump`: each becomes a stream of items, plain dictionaries.

The first key of an item, `kind`, says what it is. Data that fails a check becomes an item with a `problem`, and reading
continues where possible, since dumps are made when something is wrong. Files are opened for reading only, and a
segment is read batch by batch, so that its size does not matter.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from rookery.base.errors import CorruptionError, InvalidBatchError
from rookery.base.types import encode_uuid
from rookery.cli.lines import json_bytes, json_header
from rookery.records.batch import (
    HEADER_SIZE,
    LENGTH_PREFIX_SIZE,
    MAGIC_V2,
    BatchHeader,
    Codec,
    batch_size_at,
    compute_crc,
    read_header,
)
from rookery.records.control import ControlType, control_type, read_marker
from rookery.records.record import decode_records
from rookery.storage import checkpoints
from rookery.storage.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, OffsetIndex, TimeIndex
from rookery.storage.manifest import MANIFEST_FILE
from rookery.storage.names import (
    ABORTED_INDEX_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    STAGE_SUFFIXES,
    TIME_INDEX_SUFFIX,
    offset_of,
    suffix_of,
)
from rookery.storage.producers import ProducerStates
from rookery.storage.transactions import AbortedIndex

Item = dict[str, Any]

_CONTROL_TYPES = {int(kind): kind.name.lower().replace("_", " ") for kind in ControlType}
_METADATA_SNAPSHOT_SUFFIX = ".checkpoint"
_OFFSET_FILES = (
    checkpoints.RECOVERY_POINT_FILE,
    checkpoints.START_OFFSET_FILE,
    checkpoints.HIGH_WATERMARK_FILE,
    checkpoints.COMMITTED_FILE,
    "cleaner-offset-checkpoint",
)
_TEXT_FILES = (
    "meta.properties",
    "bootstrap.checkpoint.properties",
    "quorum-state",
    checkpoints.CLEAN_SHUTDOWN_FILE,
    MANIFEST_FILE,
)


def files_in(path: Path) -> list[Path]:
    """Return the path itself, or the files of a directory that have a reader, sorted by name."""
    if not path.is_dir():
        return [path]
    return sorted(child for child in path.iterdir() if child.is_file() and _reader(child) is not None)


def dump_file(path: Path, *, with_records: bool) -> Iterator[Item]:
    """Yield the items of a file. Raises CorruptionError if the file is of an unknown kind."""
    reader = _reader(path)
    if reader is None:
        raise CorruptionError(f"{path} is not a known kind of file of a log directory")
    try:
        yield from reader(path, with_records)
    except CorruptionError as error:
        yield {"kind": "damage", "problem": str(error)}


def _reader(path: Path) -> "Callable[[Path, bool], Iterator[Item]] | None":
    name = path.name
    if name.endswith(_METADATA_SNAPSHOT_SUFFIX):
        return _batches
    if offset_of(name) is not None:
        suffix = suffix_of(name)
        for stage in STAGE_SUFFIXES:
            suffix = suffix.removesuffix(stage)
        return _BY_SUFFIX.get(suffix)
    if name in _OFFSET_FILES:
        return _offset_checkpoint
    if name in _TEXT_FILES:
        return _text
    return _BY_NAME.get(name)


def _batches(path: Path, with_records: bool) -> Iterator[Item]:
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        position = 0
        while position < size_bytes:
            batch = _read_batch(file, size_bytes - position)
            if batch is None:
                problem = f"{size_bytes - position} bytes from position {position} on are not a whole batch"
                yield {"kind": "damage", "position": position, "problem": problem}
                return
            yield from _batch_items(batch, position, with_records=with_records)
            position += len(batch)


def _read_batch(file: BinaryIO, remaining_bytes: int) -> bytes | None:
    """Return the next batch; None if the next bytes cannot be one."""
    start = file.read(LENGTH_PREFIX_SIZE)
    if len(start) < LENGTH_PREFIX_SIZE:
        return None
    size_bytes = batch_size_at(start)
    if not HEADER_SIZE <= size_bytes <= remaining_bytes:
        return None
    return start + file.read(size_bytes - LENGTH_PREFIX_SIZE)


def _batch_items(batch: bytes, position: int, *, with_records: bool) -> Iterator[Item]:
    header = read_header(batch)
    item = _batch_item(header, position)
    item["crc_valid"] = compute_crc(batch) == header.crc
    if header.magic != MAGIC_V2:
        item["problem"] = f"message format v{header.magic}; only v2 can be read"
    elif not item["crc_valid"]:
        item["problem"] = "the checksum does not match"
    yield item
    if with_records and "problem" not in item:
        yield from _record_items(header, batch)


def _batch_item(header: BatchHeader, position: int) -> Item:
    known = header.codec_id <= max(Codec)
    return {
        "kind": "batch",
        "position": position,
        "size_bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "leader_epoch": header.leader_epoch,
        "base_timestamp_ms": header.base_timestamp_ms,
        "max_timestamp_ms": header.max_timestamp_ms,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "compression": Codec(header.codec_id).name.lower() if known else f"unknown {header.codec_id}",
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete_horizon_ms": header.delete_horizon_ms,
        "crc": header.crc,
    }


def _record_items(header: BatchHeader, batch: bytes) -> Iterator[Item]:
    try:
        records = decode_records(batch)
    except InvalidBatchError as error:
        yield {"kind": "damage", "problem": f"the batch at offset {header.base_offset} cannot be opened: {error}"}
        return
    for record in records:
        item: Item = {"kind": "record", "offset": record.offset, "timestamp_ms": record.timestamp_ms}
        if header.is_control:
            item |= _control_fields(batch)
        item |= json_bytes("key", record.key) | json_bytes("value", record.value)
        item["headers"] = [json_header(name, value) for name, value in record.headers]
        yield item


def _control_fields(batch: bytes) -> Item:
    try:
        code = control_type(batch)
        fields: Item = {"control_type": _CONTROL_TYPES.get(code, f"unknown {code}")} if code is not None else {}
        marker = read_marker(batch)
    except InvalidBatchError as error:
        return {"problem": str(error)}
    return fields if marker is None else fields | {"coordinator_epoch": marker.coordinator_epoch}


def _offset_index(path: Path, _: bool) -> Iterator[Item]:
    data = _without_preallocation(path.read_bytes(), OFFSET_ENTRY_SIZE)
    for offset, position in OffsetIndex.decode(_base_offset(path), data).entries():
        yield {"kind": "offset index", "offset": offset, "position": position}


def _time_index(path: Path, _: bool) -> Iterator[Item]:
    data = _without_preallocation(path.read_bytes(), TIME_ENTRY_SIZE)
    for entry in TimeIndex.decode(_base_offset(path), data).entries():
        yield {"kind": "time index", "timestamp_ms": entry.timestamp_ms, "offset": entry.offset}


def _aborted_index(path: Path, _: bool) -> Iterator[Item]:
    for entry in AbortedIndex.decode(_base_offset(path), path.read_bytes()):
        yield {"kind": "aborted transaction", **entry._asdict()}


def _without_preallocation(data: bytes, entry_size: int) -> bytes:
    """Drop the zeros at the end: Apache Kafka preallocates the index of the active segment at its full size."""
    used_bytes = len(data.rstrip(b"\0"))
    return data[: -(-used_bytes // entry_size) * entry_size]


def _base_offset(path: Path) -> int:
    return offset_of(path.name) or 0


def _producers(path: Path, _: bool) -> Iterator[Item]:
    for state in ProducerStates.decode(path.read_bytes()):
        yield {
            "kind": "producer",
            "producer_id": state.producer_id,
            "producer_epoch": state.epoch,
            "last_sequence": state.last_sequence,
            "last_offset": state.last_offset,
            "last_timestamp_ms": state.last_timestamp_ms,
            "coordinator_epoch": state.coordinator_epoch,
            "transaction_start_offset": state.current_transaction_offset,
        }


def _offset_checkpoint(path: Path, _: bool) -> Iterator[Item]:
    for tp, offset in checkpoints.decode_offsets(path.read_bytes()).items():
        yield {"kind": "checkpoint", "topic": tp.topic, "partition": tp.partition, "offset": offset}


def _epoch_checkpoint(path: Path, _: bool) -> Iterator[Item]:
    for entry in checkpoints.decode_epochs(path.read_bytes()):
        yield {"kind": "leader epoch", "leader_epoch": entry.epoch, "start_offset": entry.start_offset}


def _partition_metadata(path: Path, _: bool) -> Iterator[Item]:
    topic_id = checkpoints.decode_partition_metadata(path.read_bytes())
    yield {"kind": "partition metadata", "topic_id": encode_uuid(topic_id)}


def _text(path: Path, _: bool) -> Iterator[Item]:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        yield {"kind": "text", "line": line}


_BY_SUFFIX: "dict[str, Callable[[Path, bool], Iterator[Item]]]" = {
    LOG_SUFFIX: _batches,
    OFFSET_INDEX_SUFFIX: _offset_index,
    TIME_INDEX_SUFFIX: _time_index,
    ABORTED_INDEX_SUFFIX: _aborted_index,
    SNAPSHOT_SUFFIX: _producers,
}
_BY_NAME: "dict[str, Callable[[Path, bool], Iterator[Item]]]" = {
    checkpoints.LEADER_EPOCH_FILE: _epoch_checkpoint,
    checkpoints.PARTITION_METADATA_FILE: _partition_metadata,
}
