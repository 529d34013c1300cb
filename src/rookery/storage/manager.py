"""All logs of a node, in one or several log directories.

A partition's log lives in one directory, chosen when it is created (the one with the fewest partitions). Directories
fail independently: an OSError takes one offline, with all logs in it, and the others continue to serve. At a clean stop
every log is closed, the checkpoints are written, and then a marker file; the next start removes the marker before it
opens anything, so that a crash is always noticed.

A deleted partition's directory is renamed and its files are removed later: the name can be used again immediately, and
fetches that are being sent keep their open files.

A partition whose log is damaged below its recovery point, or whose directory is missing, is *quarantined*: it is not
served, its files and its lines in the checkpoints stay as they are, and no empty log is created in its place.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid4

import structlog

from rookery.base.clock import Clock
from rookery.base.errors import CorruptionError, StartupError, StorageError
from rookery.base.files import Files, make_synced_directory, remove_tree, replace_file
from rookery.base.types import NO_BROKER_EPOCH, NO_TOPIC_ID, Offset, TimestampMs, TopicId, TopicName, TopicPartition
from rookery.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    COMMITTED_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    START_OFFSET_FILE,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_offsets,
    encode_partition_metadata,
    read_offsets,
)
from rookery.storage.config import LogConfig
from rookery.storage.damage import log_damage, log_missing
from rookery.storage.directory import LogDirectory
from rookery.storage.log import Log
from rookery.storage.manifest import MANIFEST_FILE, ListedLog, encode_line, encode_manifest, read_manifest
from rookery.storage.manifest_entries import list_key, list_log
from rookery.storage.names import (
    DELETED_DIRECTORY_SUFFIX,
    METADATA_PARTITION,
    STRAY_DIRECTORY_SUFFIX,
    TEMPORARY_SUFFIX,
    directory_name_aside,
    partition_of,
    stem_of_deleted,
)
from rookery.storage.segment import Segment
from rookery.storage.shutdown import kept_epoch, take_clean_shutdown, write_registration
from rookery.storage.threads import map_in_threads

logger = structlog.get_logger(__name__)

PRODUCER_EXPIRATION_MS = 86_400_000


class LoadSummary(NamedTuple):
    partitions: int
    # Whether all directories had the marker of a clean stop.
    is_clean: bool
    # The epoch of the broker's last registration if the logs still have all that was written to them, else -1.
    broker_epoch: int


class _Found(NamedTuple):
    """A partition's directory as it was found at start."""

    partition: TopicPartition
    log_directory: LogDirectory
    is_clean: bool
    recovery_point: Offset
    start_offset: Offset
    listed: ListedLog | None


class _Quarantined(NamedTuple):
    """A partition that is not served, with its lines in the checkpoints."""

    log_directory: LogDirectory
    topic_id: TopicId
    recovery_point: Offset
    start_offset: Offset
    listed: ListedLog | None
    reason: str
    is_missing: bool = False


class LogManager:
    def __init__(
        self,
        files: Files,
        clock: Clock,
        directories: Sequence[Path],
        *,
        worker_threads: int = 1,
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
        skipped: Iterable[TopicPartition] = (METADATA_PARTITION,),
        new_uuid: Callable[[], UUID] = uuid4,
        boot_id: str | None = None,
    ) -> None:
        """`skipped` partitions are in a log directory but managed elsewhere: the metadata log of the quorum.

        `boot_id` identifies the time since the machine was booted; None if it is unknown.
        """
        self.files = files
        self.clock = clock
        self.directories = [LogDirectory(path) for path in directories]
        self._worker_threads = worker_threads
        self._producer_expiration_ms = producer_expiration_ms
        self._skipped = frozenset(skipped)
        self._new_uuid = new_uuid
        self._boot_id = boot_id
        self._logs: dict[TopicPartition, Log] = {}
        self._quarantined: dict[TopicPartition, _Quarantined] = {}
        # Directories of deleted partitions and files of expired segments, with the time from which they may be removed.
        self._deleted: list[tuple[LogDirectory, Path, TimestampMs]] = []
        self._is_closed = False
        # The contents of the checkpoint files of each directory; a file is written only if they change.
        self._written: dict[Path, bytes] = {}
        self._checkpointed: dict[Path, set[TopicPartition]] = {}
        # The manifest's line of each log, with the key (`list_key`) and the recovery point for which it was made.
        self._lines: dict[TopicPartition, tuple[tuple[object, ...], Offset, str]] = {}
        # Used during `load`: the partitions of one topic have equal metadata files and share one id object.
        self._topic_ids: dict[bytes, TopicId] = {}

    def configure(self, *, worker_threads: int, producer_expiration_ms: int) -> None:
        self._worker_threads = worker_threads
        self._producer_expiration_ms = producer_expiration_ms

    # Starting and stopping

    def load(self, config_for_topic: Callable[[TopicName], LogConfig]) -> LoadSummary:
        """Open all logs and recover them after an unclean stop. Blocks: call it before serving."""
        found: list[_Found] = []
        epochs: list[int | None] = []
        kept_epochs: set[int] = set()
        manifests: list[tuple[LogDirectory, dict[TopicPartition, ListedLog]]] = []
        for log_directory in self.directories:
            try:
                make_synced_directory(self.files, log_directory.path)
                epochs.append(take_clean_shutdown(self.files, log_directory.path))
                kept_epochs.add(kept_epoch(self.files, log_directory.path, epochs[-1], self._boot_id))
                manifests.append((log_directory, self._read_manifest(log_directory.path)))
                found.extend(self._find_partitions(*manifests[-1], is_clean=epochs[-1] is not None))
            except OSError as error:
                log_directory.fail(error)
        self._refuse_duplicates(found)
        self._quarantine_missing(manifests, {item.partition for item in found})
        is_clean = bool(epochs) and None not in epochs
        # After a clean stop, opening is short system calls and Python code: threads would only wait for each other.
        threads = 1 if is_clean else self._worker_threads
        configs = {topic: config_for_topic(topic) for topic in {item.partition.topic for item in found}}
        for log in map_in_threads(lambda item: self._open(item, configs[item.partition.topic]), found, threads=threads):
            if log is not None:
                self._adopt(log)
        self._topic_ids.clear()
        # Directories of different epochs: one of them was away for a while, and may lack records.
        broker_epoch = kept_epochs.pop() if len(kept_epochs) == 1 else NO_BROKER_EPOCH
        return LoadSummary(len(self._logs), is_clean, broker_epoch)

    def cancel_load(self) -> None:
        """Make a `load` in another thread end soon, with StartupError; completed repairs stay."""
        self._is_closed = True

    def keep_registration(self, broker_epoch: int) -> None:
        """Note the epoch of this broker's registration, for the next start after a kill. Blocks.

        Call it before the broker serves: until then, the last note is of an epoch that the controller has replaced.
        """
        if self._boot_id is None:
            return
        for log_directory in self.directories:
            if log_directory.is_online:
                try:
                    write_registration(self.files, log_directory.path, broker_epoch, self._boot_id)
                except OSError as error:
                    log_directory.fail(error)

    def _find_partitions(
        self, log_directory: LogDirectory, manifest: Mapping[TopicPartition, ListedLog], *, is_clean: bool
    ) -> list[_Found]:
        path = log_directory.path
        recovery_points = self._read_checkpoint(path / RECOVERY_POINT_FILE)
        start_offsets = self._read_checkpoint(path / START_OFFSET_FILE)
        self._checkpointed[path] = {*recovery_points, *start_offsets, *manifest}
        found = []
        for name in self.files.list_directory(path):
            if name.endswith(DELETED_DIRECTORY_SUFFIX):
                self._deleted.append((log_directory, path / name, self.clock.now_ms()))
            elif name.endswith(TEMPORARY_SUFFIX):
                # The quorum already runs, and its rename of this file would fail: the directory would go offline.
                if name != COMMITTED_FILE + TEMPORARY_SUFFIX:
                    self.files.remove(path / name)
            elif (partition := partition_of(name)) is not None and partition not in self._skipped:
                recovery_point, listed = recovery_points.get(partition, 0), manifest.get(partition)
                if is_clean and listed is not None and listed.recovery_point != recovery_point:
                    # Both were written at the clean stop, so either another program has written here since or one file
                    # is damaged.
                    logger.warning("ignoring a segment manifest that was not written at the last stop", log=name)
                    listed = None
                # The manifest has a checksum, the other file has none: one wrong digit in it would remove segments.
                start_offset = start_offsets.get(partition, 0) if listed is None else listed.start_offset
                found.append(_Found(partition, log_directory, is_clean, recovery_point, start_offset, listed))
        return found

    def _read_manifest(self, path: Path) -> dict[TopicPartition, ListedLog]:
        try:
            return read_manifest(self.files, path)
        except CorruptionError as error:
            logger.warning("ignoring a damaged segment manifest", directory=str(path), reason=str(error))
            return {}

    def _quarantine_missing(
        self, manifests: Iterable[tuple[LogDirectory, Mapping[TopicPartition, ListedLog]]], found: set[TopicPartition]
    ) -> None:
        """Quarantine logs that had records and have no directory; `resolve_missing` forgets those of deleted topics."""
        missing = [
            (log_directory, partition, listed)
            for log_directory, manifest in manifests
            for partition, listed in manifest.items()
            if partition not in found and listed.has_content
        ]
        # A replica that was moved away, and back while this node was down: its log was deleted after the manifest was
        # written. Without this, it would never be copied again.
        deleted = self._deleted_logs() if missing else set()
        for log_directory, partition, listed in missing:
            if (stem_of_deleted(partition), listed.topic_id) not in deleted:
                reason = f"its directory {log_directory.path / str(partition)} is missing"
                offsets = listed.recovery_point, listed.start_offset
                self._quarantined[partition] = _Quarantined(
                    log_directory, listed.topic_id, *offsets, listed, reason, is_missing=True
                )

    def _deleted_logs(self) -> set[tuple[str, TopicId]]:
        """Return the names without their unique parts, and the topic ids, of the deleted directories."""
        found = set()
        for log_directory, path, _ in self._deleted:
            with suppress(StorageError):
                found.add((stem_of_deleted(path.name), self._read_topic_id(log_directory, path)))
        return found

    def _read_checkpoint(self, path: Path) -> dict[TopicPartition, Offset]:
        """Read a checkpoint; one that is unreadable counts as empty, which costs a longer recovery but no data."""
        try:
            return read_offsets(self.files, path)
        except CorruptionError as error:
            logger.warning("ignoring a checkpoint", path=str(path), reason=str(error))
            return {}

    def _refuse_duplicates(self, found: Sequence[_Found]) -> None:
        places: dict[TopicPartition, Path] = {}
        for item in found:
            path = item.log_directory.path
            if item.partition in places:
                raise StartupError(
                    f"partition {item.partition} is in {places[item.partition]} and in {path}: remove one of the two"
                )
            places[item.partition] = path

    def _open(self, item: _Found, config: LogConfig) -> Log | None:
        if self._is_closed:
            raise StartupError("the start was cancelled")
        directory = item.log_directory.path / str(item.partition)
        topic_id = NO_TOPIC_ID
        try:
            topic_id = self._read_topic_id(item.log_directory, directory)
            log = Log.open(
                self.files,
                directory,
                config,
                clock=self.clock,
                partition=item.partition,
                topic_id=topic_id,
                recovery_point=item.recovery_point,
                start_offset=item.start_offset,
                clean=item.is_clean,
                log_directory=item.log_directory,
                listed=item.listed,
            )
        except StorageError:
            return None
        except CorruptionError as error:
            log_damage(item.partition, directory, error)
            found_in, offsets = item.log_directory, (item.recovery_point, item.start_offset)
            self._quarantined[item.partition] = _Quarantined(found_in, topic_id, *offsets, item.listed, str(error))
            return None
        return log

    def _read_topic_id(self, log_directory: LogDirectory, directory: Path) -> TopicId:
        try:
            data = self.files.read_file(directory / PARTITION_METADATA_FILE)
            topic_id = self._topic_ids.get(data)
            if topic_id is None:
                topic_id = self._topic_ids[data] = decode_partition_metadata(data)
            return topic_id
        except (FileNotFoundError, CorruptionError):
            # Lost in a crash before the first flush. The replica manager passes the id to `create`, which writes it
            # again.
            return NO_TOPIC_ID
        except OSError as error:
            raise log_directory.fail(error) from error

    def close(self, *, clean: bool = True, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Close all logs; `clean` writes what makes the next start quick, else the files stay as they are."""
        self._is_closed = True
        if not clean:
            for log in self._logs.values():
                log.abandon()
            return
        logs = [log for log in self._logs.values() if log.log_directory.is_online]
        is_closed = map_in_threads(self._close_log, logs, threads=self._worker_threads)
        self.checkpoint()
        unclean = {log.log_directory for log, closed in zip(logs, is_closed, strict=True) if not closed}
        for log_directory in self.directories:
            if log_directory.is_online and log_directory not in unclean:
                try:
                    replace_file(
                        self.files, log_directory.path / CLEAN_SHUTDOWN_FILE, encode_clean_shutdown(broker_epoch)
                    )
                except OSError as error:
                    log_directory.fail(error)

    def _close_log(self, log: Log) -> bool:
        try:
            log.close()
        except (StorageError, CorruptionError) as error:
            logger.warning("a log was not closed cleanly", partition=str(log.partition), reason=str(error))
            return False
        return True

    # Partitions

    def get(self, partition: TopicPartition) -> Log | None:
        return self._logs.get(partition)

    def __iter__(self) -> Iterator[Log]:
        return iter(self.logs())

    def logs(self) -> list[Log]:
        return list(self._logs.values())

    def is_online(self, partition: TopicPartition) -> bool:
        log = self._logs.get(partition)
        return log is not None and log.log_directory.is_online

    def create(self, partition: TopicPartition, topic_id: TopicId, config: LogConfig, *, is_new: bool = True) -> Log:
        """Return the partition's log; creates it if there is none.

        Raises StorageError if a partition that is not new may be in a directory that is offline: an empty log in its
        place would pass for the complete one.
        """
        log = self._logs.get(partition)
        if log is not None:
            if log.topic_id == NO_TOPIC_ID and topic_id != NO_TOPIC_ID:
                self._write_topic_id(log, topic_id)
            return log
        self._check_quarantine(partition, topic_id)
        online = [log_directory for log_directory in self.directories if log_directory.is_online]
        if not online or (not is_new and len(online) < len(self.directories)):
            raise StorageError(f"no log directory for {partition}: {len(online)} of {len(self.directories)} are online")
        if not is_new:
            logger.warning("a partition of the cluster has no files here and starts empty", partition=str(partition))
        log_directory = min(online, key=lambda candidate: (candidate.is_cordoned, candidate.partition_count))
        self._forget_checkpoints(log_directory, partition)
        log = Log.open(
            self.files,
            log_directory.path / str(partition),
            config,
            clock=self.clock,
            partition=partition,
            topic_id=topic_id,
            log_directory=log_directory,
        )
        self._adopt(log)
        return log

    def _check_quarantine(self, partition: TopicPartition, topic_id: TopicId) -> None:
        """Raise StorageError for a quarantined partition, unless it is of a deleted topic with the same name."""
        held = self._quarantined.get(partition)
        if held is not None and held.is_missing and held.topic_id != topic_id:
            del self._quarantined[partition]
        elif held is not None:
            raise StorageError(f"{partition} is not served: {held.reason}")

    def is_quarantined(self, partition: TopicPartition) -> bool:
        return partition in self._quarantined

    def quarantine(self, partition: TopicPartition, reason: str) -> None:
        """Stop serving a log, and leave its files as they are."""
        if partition in self._quarantined:
            return
        log = self._logs[partition]
        listed, offsets = list_log(log), (log.recovery_point, log.start_offset)
        self._forget(partition)
        self._quarantined[partition] = _Quarantined(log.log_directory, log.topic_id, *offsets, listed, reason)

    def resolve_missing(self, topic_id_of: Callable[[TopicPartition], TopicId | None]) -> None:
        """Forget the missing directories of topics that the metadata no longer has, and log the others."""
        for partition, held in list(self._quarantined.items()):
            if held.is_missing:
                if topic_id_of(partition) == held.topic_id:
                    directory = held.log_directory.path / str(partition)
                    log_missing(partition, directory, held.start_offset, held.recovery_point)
                else:
                    del self._quarantined[partition]

    def _adopt(self, log: Log) -> None:
        self._logs[log.partition] = log
        log.log_directory.partition_count += 1
        log.checkpoint_recovery_point = partial(self._write_checkpoints, log.log_directory)

    def _write_topic_id(self, log: Log, topic_id: TopicId) -> None:
        try:
            replace_file(self.files, log.directory / PARTITION_METADATA_FILE, encode_partition_metadata(topic_id))
        except OSError as error:
            raise log.log_directory.fail(error) from error
        log.topic_id = topic_id

    def _forget_checkpoints(self, log_directory: LogDirectory, partition: TopicPartition) -> None:
        """Remove a deleted partition's checkpoints before a new one with the same name could inherit its offsets."""
        with log_directory.checkpoint_lock:
            is_known = partition in self._checkpointed.get(log_directory.path, ())
        if is_known:
            self._checkpoint_directory(log_directory)

    def delete(self, partition: TopicPartition) -> bool:
        """Delete a partition; a later `purge_deleted` removes its files. False if it does not exist."""
        log = self._logs.get(partition)
        if log is None and partition not in self._quarantined:
            return False
        log_directory = log.log_directory if log is not None else self._quarantined[partition].log_directory
        target = self._rename_away(partition, DELETED_DIRECTORY_SUFFIX)
        if target is not None:
            due_ms = self.clock.now_ms() + (log.config.file_delete_delay_ms if log is not None else 0)
            self._deleted.append((log_directory, target, due_ms))
        return True

    def set_aside(self, partition: TopicPartition) -> None:
        """Stop serving the log of a removed topic but keep its files, under another name."""
        self._rename_away(partition, STRAY_DIRECTORY_SUFFIX)

    def _rename_away(self, partition: TopicPartition, suffix: str) -> Path | None:
        """Forget a partition and rename its directory; returns the new path, None if it is offline or missing."""
        log_directory = self._forget(partition)
        if log_directory is None or not log_directory.is_online:
            return None
        directory = log_directory.path / str(partition)
        target = directory.with_name(directory_name_aside(partition, self._new_uuid().hex, suffix))
        try:
            self.files.rename(directory, target)
        except OSError as error:
            raise log_directory.fail(error) from error
        return target

    def _forget(self, partition: TopicPartition) -> LogDirectory | None:
        """Forget a partition; returns its log directory, None if the partition's own directory is missing."""
        held = self._quarantined.pop(partition, None)
        if held is not None:
            return None if held.is_missing else held.log_directory
        log = self._logs.pop(partition)
        self._lines.pop(partition, None)
        log.abandon()
        log.log_directory.partition_count -= 1
        return log.log_directory

    def purge_deleted(self, now_ms: TimestampMs) -> int:
        """Remove deleted files whose delay has passed; returns how many. May run in any thread."""
        count = 0
        for item in [item for item in tuple(self._deleted) if item[2] <= now_ms]:
            if self._is_closed:
                # The next start continues.
                break
            count += 1
            self._deleted.remove(item)
            log_directory, path, _ = item
            if log_directory.is_online:
                try:
                    self._purge(path)
                except OSError as error:
                    log_directory.fail(error)
        return count

    def _purge(self, path: Path) -> None:
        if self.files.is_directory(path):
            remove_tree(self.files, path)
        elif self.files.exists(path):
            # If it no longer exists, it was removed with its partition.
            self.files.remove(path)

    def stored(self) -> dict[TopicPartition, TopicId]:
        """Return the partitions on disk, with their topic ids."""
        on_disk = {partition: log.topic_id for partition, log in self._logs.items()}
        return on_disk | {tp: held.topic_id for tp, held in self._quarantined.items() if not held.is_missing}

    # Periodic tasks

    def flush_due(self, now_ms: TimestampMs, logs: Iterable[Log] | None = None) -> list[Log]:
        """Return the logs to flush now, out of `logs` or all; see `flush.flush_in_executor`."""
        candidates = self._logs.values() if logs is None else logs
        return [log for log in candidates if log.flush_is_due(now_ms) and log.log_directory.is_online]

    def apply_retention(self, log: Log, now_ms: TimestampMs, stable_offset: Offset | None = None) -> list[Segment]:
        """Detach the expired segments of a log, which readers no longer see from then on.

        After this was called for all logs, call `checkpoint`, `retire_expired` and `purge_deleted`, in this order.
        """
        try:
            log.expire_producers(now_ms, self._producer_expiration_ms)
            return log.apply_retention(now_ms, stable_offset)
        except StorageError:
            return []
        except CorruptionError as error:
            logger.error("retention skips a damaged log", partition=str(log.partition), error=str(error))
            return []

    def retire_expired(self, now_ms: TimestampMs) -> None:
        """Pass the files of detached segments to `purge_deleted`; the new start offsets must be on disk."""
        for log in self._logs.values():
            if log.has_detached and log.log_directory.is_online:
                try:
                    paths = log.take_detached_files()
                except StorageError:
                    continue
                self._deleted += [(log.log_directory, path, now_ms) for path in paths]

    # Checkpoints

    def checkpoint(self) -> None:
        """Write recovery points and start offsets of all directories, if they have changed. May run in any thread."""
        for log_directory in self.directories:
            if log_directory.is_online:
                try:
                    self._checkpoint_directory(log_directory)
                except StorageError:
                    continue

    def _checkpoint_directory(self, log_directory: LogDirectory) -> None:
        try:
            self._write_checkpoints(log_directory, with_starts=True)
        except OSError as error:
            raise log_directory.fail(error) from error

    def _write_checkpoints(self, log_directory: LogDirectory, *, with_starts: bool = False) -> None:
        """Write the manifest, then the recovery points, under the directory's lock.

        Without the lock, a worker thread could restore a recovery point that a truncation has just lowered. In this
        order a recovery point may be too low for the manifest, but it never counts segments that are not listed.
        """
        with log_directory.checkpoint_lock:
            logs, held = self._logs_in(log_directory), self._quarantined_in(log_directory)
            starts = {log.partition: log.start_offset for log in logs if log.start_offset > 0}
            starts |= {partition: item.start_offset for partition, item in held.items() if item.start_offset > 0}
            points = {partition: item.recovery_point for partition, item in held.items()}
            lines = [encode_line(partition, item.listed) for partition, item in held.items() if item.listed is not None]
            for log in logs:
                points[log.partition], line = self._manifest_line(log)
                if points[log.partition] or log.partition in starts:
                    lines.append(line)
            self._write_checkpoint(log_directory, MANIFEST_FILE, encode_manifest(lines))
            if with_starts:
                self._write_checkpoint(log_directory, START_OFFSET_FILE, encode_offsets(starts))
            self._write_checkpoint(log_directory, RECOVERY_POINT_FILE, encode_offsets(points))
            self._checkpointed[log_directory.path] = set(points)

    def _manifest_line(self, log: Log) -> tuple[Offset, str]:
        """Return the recovery point and the manifest's line, cached: with thousands of logs most are idle."""
        key = list_key(log)
        known = self._lines.get(log.partition)
        if known is None or known[0] != key:
            listed = list_log(log)
            known = self._lines[log.partition] = key, listed.recovery_point, encode_line(log.partition, listed)
        return known[1], known[2]

    def _write_checkpoint(self, log_directory: LogDirectory, name: str, data: bytes) -> None:
        path = log_directory.path / name
        if self._written.get(path) != data:
            replace_file(self.files, path, data)
            self._written[path] = data

    def _logs_in(self, log_directory: LogDirectory) -> list[Log]:
        return [log for log in self.logs() if log.log_directory is log_directory]

    def _quarantined_in(self, log_directory: LogDirectory) -> dict[TopicPartition, _Quarantined]:
        held = dict(self._quarantined)
        return {partition: item for partition, item in held.items() if item.log_directory is log_directory}
