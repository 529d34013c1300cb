"""`rookery log repair`: finds damage in a node's log directories, plans what can be saved, and carries out the plan.

`plan_repair` only reads. It locks the directories, so that no broker can start meanwhile. `execute` makes the changes
and keeps a copy of every file that it changes. `close` unlocks the directories.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rookery.base.errors import CorruptionError, InvalidBatchError, RookeryError
from rookery.base.files import DirectoryLock, Files, make_synced_directory, replace_file
from rookery.base.types import LeaderEpoch, Offset, TimestampMs, TopicId, TopicPartition
from rookery.base.values import value_class
from rookery.metadata.image import EMPTY_IMAGE, ClusterImage
from rookery.metadata.records import NoOpRecord, RemoveTopicRecord, decode_record, encode_record
from rookery.node.identity import META_FILE, release_directories
from rookery.quorum.committed import CommittedOffsetFile, first_offset
from rookery.quorum.snapshots import Snapshot, SnapshotFiles
from rookery.records.batch import read_header
from rookery.records.record import Record, build_batch, decode_records
from rookery.storage.checkpoints import (
    COMMITTED_FILE,
    HIGH_WATERMARK_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    decode_partition_metadata,
    encode_offsets,
    read_offsets,
)
from rookery.storage.damage import DamagedLogError
from rookery.storage.manifest import MANIFEST_FILE, ListedLog, clip, encode_line, encode_manifest, read_manifest
from rookery.storage.names import METADATA_PARTITION, partition_of
from rookery.storage.repair import ACCEPT, LogPlan, Problem, execute_plan, plan_log

REPAIR_SUFFIX = "-repair"


class RepairError(RookeryError):
    """The directories cannot be read or repaired; the text is for the operator."""


class _MetadataRules:
    """Replays the readable batches of the metadata log, and rejects those that depend on lost ones.

    A start does not replay the log before the end of the snapshot: nothing is lost with a batch there.
    """

    def __init__(self, snapshot: Snapshot | None) -> None:
        values = snapshot.values if snapshot is not None else ()
        self.image: ClusterImage = EMPTY_IMAGE.apply(map(decode_record, values))[0]
        self.removed: set[TopicId] = set()
        self._snapshot_end: Offset = snapshot.position.offset if snapshot is not None else 0

    def reject(self, batch: bytes) -> str | None:
        """Return why a batch cannot be kept, None if it can."""
        header = read_header(batch)
        if header.is_control:
            return None
        try:
            records = [decode_record(record.value or b"") for record in decode_records(batch)]
            if header.base_offset >= self._snapshot_end:
                self.image, _ = self.image.apply(records)
        except (CorruptionError, InvalidBatchError) as error:
            return f"it depends on a lost batch: {error}"
        self.removed.update(record.topic_id for record in records if isinstance(record, RemoveTopicRecord))
        return None

    def fill(self, offset: Offset, end_offset: Offset, leader_epoch: LeaderEpoch) -> bytes:
        """Return a batch of no-op records for lost offsets: the metadata log must not have gaps."""
        value = encode_record(NoOpRecord())
        records = [Record(each, 0, None, value) for each in range(offset, end_offset)]
        return bytes(build_batch(records, base_offset=offset, leader_epoch=leader_epoch))


@value_class
class LogRepair:
    """A log with problems, and the plan for it."""

    log_directory: Path
    partition: TopicPartition
    plan: LogPlan
    is_missing: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "log_directory": str(self.log_directory),
            "log": str(self.partition),
            "end_offset": self.plan.end_offset,
            "problems": [_problem_json(problem) for problem in self.plan.problems],
        }


def _problem_json(problem: Problem) -> dict[str, Any]:
    lost = problem.lost_offsets
    return {
        "file": str(problem.path),
        "position": problem.position,
        "size_bytes": problem.size_bytes,
        "reason": problem.reason,
        "remedy": problem.remedy,
        "lost_offsets": lost,
        "first_lost_offset": problem.offset if lost else None,
        "last_lost_offset": problem.end_offset - 1 if lost else None,
    }


class Repair:
    """The damage in log directories and the plan to repair it; created by `plan_repair`."""

    def __init__(self, files: Files, log_directories: Sequence[Path], locks: Sequence[DirectoryLock]) -> None:
        self._files = files
        self._log_directories = log_directories
        self._locks = locks
        self.logs: list[LogRepair] = []
        # Topics that have partition directories but are not in the readable part of the metadata log.
        self.unknown_topics: list[str] = []

    @property
    def is_needed(self) -> bool:
        return any(log.plan.is_damaged for log in self.logs)

    def survey(self, only: Iterable[TopicPartition] = ()) -> None:
        """Find the damage in the metadata log and in the partitions of `only`, or in all if it is empty."""
        wanted = frozenset(only)
        on_disk: dict[str, TopicId | None] = {}
        rules: _MetadataRules | None = None
        for log_directory in self._log_directories:
            manifest, points = _read(self._files, log_directory)
            found = self._partitions_in(log_directory)
            if METADATA_PARTITION in found or self._files.exists(log_directory / COMMITTED_FILE):
                rules = self._plan_metadata(log_directory)
            for partition in sorted({*found, *manifest} - {METADATA_PARTITION}):
                if partition in found:
                    on_disk[partition.topic] = _topic_id(self._files, log_directory / str(partition))
                if not wanted or partition in wanted:
                    is_missing = partition not in found
                    self._plan_partition(log_directory, partition, manifest, points, is_missing=is_missing)
        if rules is not None:
            self.unknown_topics = sorted(
                name for name, topic_id in on_disk.items() if not _is_in_metadata(rules, topic_id)
            )

    def _partitions_in(self, log_directory: Path) -> set[TopicPartition]:
        names = self._files.list_directory(log_directory)
        found = {partition_of(name) for name in names if self._files.is_directory(log_directory / name)}
        return {partition for partition in found if partition is not None}

    def _plan_metadata(self, log_directory: Path) -> _MetadataRules:
        directory = log_directory / str(METADATA_PARTITION)
        snapshots, first = SnapshotFiles(self._files, directory), first_offset(self._files, directory)
        try:
            snapshot = snapshots.load_newest(first)
        except DamagedLogError as error:
            raise RepairError(f"the metadata cannot be repaired, restore it from a copy: {error}") from error
        covered = snapshot.position.offset if snapshot is not None else 0
        rules = _MetadataRules(snapshot)
        committed = max(CommittedOffsetFile(self._files, log_directory).read(), covered)
        plan = plan_log(self._files, directory, recovery_point=committed, rules=rules)
        if first > 0 and not any(first <= position.offset <= plan.end_offset for position in snapshots.positions()):
            raise RepairError(
                f"the metadata cannot be repaired, restore {directory} from a copy: the log ends at {plan.end_offset}, "
                f"its records before {first} were removed, and no snapshot is from between. Nothing was changed."
            )
        if plan.problems:
            self.logs.append(LogRepair(log_directory, METADATA_PARTITION, plan, is_missing=False))
        return rules

    def _plan_partition(
        self,
        log_directory: Path,
        partition: TopicPartition,
        manifest: Mapping[TopicPartition, ListedLog],
        points: Mapping[TopicPartition, Offset],
        *,
        is_missing: bool,
    ) -> None:
        recovery_point, listed = points.get(partition, 0), manifest.get(partition)
        listed = clip(listed, recovery_point) if listed is not None else None
        directory = log_directory / str(partition)
        if is_missing:
            start = listed.start_offset if listed is not None else 0
            problem = Problem(directory, 0, 0, start, recovery_point, "the directory is missing", ACCEPT)
            plan = LogPlan([problem] if recovery_point > start else [], {}, 0)
        else:
            plan = plan_log(self._files, directory, recovery_point=recovery_point, listed=listed)
        if plan.problems:
            self.logs.append(LogRepair(log_directory, partition, plan, is_missing))

    def execute(self, now_ms: TimestampMs) -> list[Path]:
        """Make the changes; returns the directories with the copies of the changed files."""
        if any(log.partition == METADATA_PARTITION and not log.plan.end_offset for log in self.logs):
            raise RepairError("nothing of the metadata log can be read: restore it from a copy. Nothing was changed.")
        kept = []
        for log_directory in self._log_directories:
            damaged = [log for log in self.logs if log.log_directory == log_directory and log.plan.is_damaged]
            if damaged:
                copies = log_directory / f"{now_ms}{REPAIR_SUFFIX}"
                make_synced_directory(self._files, copies)
                self._accept(log_directory, damaged, copies)
                kept.append(copies)
        return kept

    def _accept(self, log_directory: Path, damaged: Sequence[LogRepair], copies: Path) -> None:
        """Repair the logs, then the checkpoint files.

        If the repair is interrupted, the next start still reports damage, because the checkpoints do not agree with the
        logs yet. In the reverse order, it could leave damage that a start does not notice.
        """
        manifest, points = _read(self._files, log_directory)
        high_watermarks = _read_offsets(self._files, log_directory / HIGH_WATERMARK_FILE)
        for name in (MANIFEST_FILE, RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, COMMITTED_FILE):
            if self._files.exists(log_directory / name):
                replace_file(self._files, copies / name, self._files.read_file(log_directory / name))
        for log in damaged:
            execute_plan(self._files, log.plan, copies / str(log.partition))
            manifest.pop(log.partition, None)
            if log.partition == METADATA_PARTITION:
                self._move_snapshots(log_directory, log.plan.end_offset, copies)
                CommittedOffsetFile(self._files, log_directory).write_synced(log.plan.end_offset)
            for offsets in (points, high_watermarks):
                if log.partition in offsets:
                    offsets[log.partition] = min(offsets[log.partition], log.plan.end_offset)
        lines = [encode_line(partition, listed) for partition, listed in manifest.items()]
        replace_file(self._files, log_directory / MANIFEST_FILE, encode_manifest(lines))
        replace_file(self._files, log_directory / HIGH_WATERMARK_FILE, encode_offsets(high_watermarks))
        replace_file(self._files, log_directory / RECOVERY_POINT_FILE, encode_offsets(points))

    def _move_snapshots(self, log_directory: Path, end_offset: Offset, copies: Path) -> None:
        """Move the snapshots from beyond the end of the metadata log to the copies: the log cannot continue them."""
        directory, target = log_directory / str(METADATA_PARTITION), copies / str(METADATA_PARTITION)
        snapshots = SnapshotFiles(self._files, directory)
        for path in [snapshots.path(at) for at in snapshots.positions() if at.offset > end_offset]:
            make_synced_directory(self._files, target)
            self._files.rename(path, target / path.name)
            self._files.sync_directory(target)
            self._files.sync_directory(directory)

    def close(self) -> None:
        release_directories(self._locks)


def plan_repair(files: Files, log_directories: Sequence[Path], only: Iterable[TopicPartition] = ()) -> Repair:
    """Find the damage in the log directories of one node; raises RepairError if a broker uses one of them."""
    locks: list[DirectoryLock] = []
    repair = Repair(files, log_directories, locks)
    try:
        for directory in log_directories:
            if not files.exists(directory / META_FILE):
                raise RepairError(f"{directory} is not a log directory: it has no {META_FILE}")
            lock = files.lock_directory(directory)
            if lock is None:
                raise RepairError(f"a broker uses {directory}: stop it first")
            locks.append(lock)
        repair.survey(only)
    except BaseException:
        repair.close()
        raise
    return repair


def parse_partition(name: str) -> TopicPartition:
    """Return the partition with this directory name, such as orders-0; raises RepairError if it is not one."""
    partition = partition_of(name)
    if partition is None:
        raise RepairError(f"{name} is not a partition: give the name of its directory, such as orders-0")
    return partition


def _read(files: Files, log_directory: Path) -> tuple[dict[TopicPartition, ListedLog], dict[TopicPartition, Offset]]:
    """Return the manifest and the recovery points. As at the start of a node, an unreadable file counts as empty."""
    manifest: dict[TopicPartition, ListedLog] = {}
    with suppress(CorruptionError):
        manifest = read_manifest(files, log_directory)
    return manifest, _read_offsets(files, log_directory / RECOVERY_POINT_FILE)


def _read_offsets(files: Files, path: Path) -> dict[TopicPartition, Offset]:
    try:
        return read_offsets(files, path)
    except CorruptionError:
        return {}


def _topic_id(files: Files, directory: Path) -> TopicId | None:
    try:
        return decode_partition_metadata(files.read_file(directory / PARTITION_METADATA_FILE))
    except (CorruptionError, FileNotFoundError):
        return None


def _is_in_metadata(rules: _MetadataRules, topic_id: TopicId | None) -> bool:
    return topic_id is None or topic_id in rules.image.topic_names or topic_id in rules.removed
