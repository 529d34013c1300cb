"""The small text files that Kafka keeps next to its logs, byte for byte as Kafka writes them.

An offset checkpoint is a version line (0), a line with the number of entries, and one line `topic partition offset` per
entry. A leader-epoch checkpoint has `epoch start-offset` lines instead. `partition.metadata` holds the topic's id.
Readers raise CorruptionError for anything else. Writers replace the file, so that a crash leaves the old or the new
one.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rookery.base.errors import CorruptionError
from rookery.base.files import Files, replace_file
from rookery.base.types import Buffer, LeaderEpoch, Offset, TopicId, TopicPartition, decode_uuid, encode_uuid

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
START_OFFSET_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
# The end of the committed part of the metadata log.
COMMITTED_FILE = "metadata-recovery-point-checkpoint"
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
REGISTRATION_FILE = ".rookery_registration"

_VERSION = 0
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_DIGITS_MAX = 19


class EpochStart(NamedTuple):
    epoch: LeaderEpoch
    start_offset: Offset


def encode_offsets(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    return _encode(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())


def decode_offsets(data: Buffer) -> dict[TopicPartition, Offset]:
    rows = _decode(data, fields_count=3)
    indexes = _numbers([row[1] for row in rows], _INT32_MAX)
    offsets = _numbers([row[2] for row in rows], _INT64_MAX)
    return {TopicPartition(row[0], index): offset for row, index, offset in zip(rows, indexes, offsets, strict=True)}


def read_offsets(files: Files, path: Path) -> dict[TopicPartition, Offset]:
    """Return the offsets of a checkpoint; empty if the file does not exist."""
    try:
        return decode_offsets(files.read_file(path))
    except FileNotFoundError:
        return {}


def write_offsets(files: Files, path: Path, offsets: Mapping[TopicPartition, Offset]) -> None:
    replace_file(files, path, encode_offsets(offsets))


def encode_epochs(entries: Iterable[EpochStart]) -> bytes:
    return _encode(f"{epoch} {start_offset}" for epoch, start_offset in entries)


def decode_epochs(data: Buffer) -> list[EpochStart]:
    """Decode the entries; raises CorruptionError unless epochs and start offsets increase from line to line."""
    entries: list[EpochStart] = []
    for epoch_text, offset_text in _decode(data, fields_count=2):
        entry = EpochStart(_number(epoch_text, _INT32_MAX), _number(offset_text, _INT64_MAX))
        if entries and (entry.epoch <= entries[-1].epoch or entry.start_offset <= entries[-1].start_offset):
            raise CorruptionError(f"{entry} does not follow {entries[-1]}")
        entries.append(entry)
    return entries


def encode_partition_metadata(topic_id: TopicId) -> bytes:
    return f"version: {_VERSION}\ntopic_id: {encode_uuid(topic_id)}".encode()


def decode_partition_metadata(data: Buffer) -> TopicId:
    lines = _text(data).split("\n")
    if len(lines) < 2 or lines[0].strip() != f"version: {_VERSION}" or not lines[1].startswith("topic_id: "):
        raise CorruptionError("not a partition.metadata file")
    identifier = lines[1].removeprefix("topic_id: ").strip()
    try:
        return decode_uuid(identifier)
    except ValueError as error:
        raise CorruptionError(f"not a topic id: {identifier!r}") from error


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    return json.dumps({"version": _VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_clean_shutdown(data: Buffer) -> int:
    """Return the broker epoch of the node that stopped cleanly; -1 if the file, of an older version, has none."""
    try:
        content = json.loads(_text(data) or "{}")
        epoch = content.get("brokerEpoch", -1)
    except (ValueError, AttributeError, RecursionError) as error:
        raise CorruptionError("not a clean-shutdown file") from error
    if not isinstance(epoch, int):
        raise CorruptionError(f"not a broker epoch: {epoch!r}")
    return epoch


def encode_registration(broker_epoch: int, boot_id: str) -> bytes:
    content = {"version": _VERSION, "brokerEpoch": broker_epoch, "bootId": boot_id}
    return json.dumps(content, separators=(",", ":")).encode()


def decode_registration(data: Buffer) -> tuple[int, str]:
    """Return the epoch of a broker's last registration, and the boot of its machine at that time."""
    try:
        content = json.loads(_text(data))
        epoch, boot_id = content["brokerEpoch"], content["bootId"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptionError("not a registration file") from error
    if not isinstance(epoch, int) or not isinstance(boot_id, str):
        raise CorruptionError(f"not a broker epoch and a boot id: {epoch!r}, {boot_id!r}")
    return epoch, boot_id


def _encode(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "".join(f"{line}\n" for line in (str(_VERSION), str(len(body)), *body)).encode()


def _decode(data: Buffer, *, fields_count: int) -> list[list[str]]:
    lines = _text(data).splitlines()
    if len(lines) < 2 or _number(lines[0], _INT32_MAX) != _VERSION:
        raise CorruptionError("not a checkpoint of version 0")
    rows = [line.split() for line in lines[2:]]
    if _number(lines[1], _INT32_MAX) != len(rows):
        raise CorruptionError(f"the checkpoint announces {lines[1]} entries and has {len(rows)}")
    if any(len(row) != fields_count for row in rows):
        raise CorruptionError("a line of the checkpoint has the wrong number of fields")
    return rows


def _text(data: Buffer) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError as error:
        raise CorruptionError("not text") from error


def _numbers(texts: Sequence[str], maximum: int) -> list[int]:
    """Return `_number` of each text, checked in bulk: a node may have three files of ten thousand lines each."""
    together = "".join(texts)
    if together.isascii() and together.isdigit() and max(map(len, texts)) <= _DIGITS_MAX:
        values = list(map(int, texts))
        if max(values) <= maximum:
            return values
    return [_number(text, maximum) for text in texts]


def _number(text: str, maximum: int) -> int:
    """Parse a plain decimal number; int() alone would also accept underscores and digits of other scripts."""
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) <= _DIGITS_MAX) or int(stripped) > maximum:
        raise CorruptionError(f"not a number in range: {text[:40]!r}")
    return int(stripped)
