"""All logs of a node, over one or several log directories.

A partition's log lives in one directory, chosen when it is created (the one with the fewest partitions). Directories
fail independently: an IO error takes one offline, with all logs in it, and the others go on serving. At a clean stop
every log is closed, the checkpoints are written, and a marker file says so; the next start takes the marker away
before it opens anything, so that a crash is always noticed.

A deleted partition's directory is renamed and its files are removed later: the name is free at once, and fetches that
are being sent keep their open files.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar
from uuid import UUID, uuid4

import structlog

from rookery.base.clock import Clock
from rookery.base.errors import CorruptionError, StartupError, StorageError
from rookery.base.files import Files, make_synced_directory, remove_tree, replace_file
from rookery.base.types import NO_TOPIC_ID, Offset, TimestampMs, TopicId, TopicName, TopicPartition
from rookery.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    START_OFFSET_FILE,
    decode_clean_shutdown,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_offsets,
    encode_partition_metadata,
    read_offsets,
)
from rookery.storage.config import LogConfig
from rookery.storage.directory import LogDirectory
from rookery.storage.log import Log
from rookery.storage.names import (
    ASIDE_SUFFIX,
    DELETED_DIRECTORY_SUFFIX,
    METADATA_PARTITION,
    STRAY_DIRECTORY_SUFFIX,
    partition_of,
)
from rookery.storage.segment import Segment

logger = structlog.get_logger(__name__)

NO_BROKER_EPOCH = -1
PRODUCER_EXPIRATION_MS = 86_400_000
_NAME_LENGTH_MAX = 255

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class LoadSummary(NamedTuple):
    partitions: int
    # All directories carried the marker of a clean stop.
    is_clean: bool
    # The broker epoch that the marker tells, -1 if there is none.
    broker_epoch: int


class _Found(NamedTuple):
    """A partition's directory as it was found at start."""

    partition: TopicPartition
    log_directory: LogDirectory
    is_clean: bool
    recovery_point: Offset
    start_offset: Offset


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
    ) -> None:
        """`skipped` partitions live in a log directory but belong to someone else: the quorum's own log."""
        self.files = files
        self._clock = clock
        self.directories = [LogDirectory(path) for path in directories]
        self._worker_threads = worker_threads
        self._producer_expiration_ms = producer_expiration_ms
        self._skipped = frozenset(skipped)
        self._new_uuid = new_uuid
        self._logs: dict[TopicPartition, Log] = {}
        # Deleted partitions' directories and expired segments' files, and when they may go.
        self._deleted: list[tuple[LogDirectory, Path, TimestampMs]] = []
        self._is_closed = False
        # What the checkpoint files of each directory hold, so that they are only written when that changed.
        self._written: dict[Path, bytes] = {}
        self._checkpointed: dict[Path, set[TopicPartition]] = {}
        # While loading: the partitions of one topic have equal files and share one id.
        self._topic_ids: dict[bytes, TopicId] = {}

    def configure(self, *, worker_threads: int, producer_expiration_ms: int) -> None:
        self._worker_threads = worker_threads
        self._producer_expiration_ms = producer_expiration_ms

    # Starting and stopping

    def load(self, config_for_topic: Callable[[TopicName], LogConfig]) -> LoadSummary:
        """Open all logs; after an unclean stop they are recovered. Blocks: call it before serving."""
        found: list[_Found] = []
        epochs: list[int | None] = []
        for log_directory in self.directories:
            try:
                epochs.append(self._take_marker(log_directory.path))
                found.extend(self._find_partitions(log_directory, is_clean=epochs[-1] is not None))
            except OSError as error:
                log_directory.fail(error)
        self._refuse_duplicates(found)
        is_clean = bool(epochs) and None not in epochs
        # Opening what was left cleanly is short system calls and Python: threads would only wait for each other.
        threads = 1 if is_clean else self._worker_threads
        configs = {topic: config_for_topic(topic) for topic in {item.partition.topic for item in found}}
        for log in self._map(lambda item: self._open(item, configs[item.partition.topic]), found, threads=threads):
            if log is not None:
                self._adopt(log)
        self._topic_ids.clear()
        broker_epoch = max((epoch for epoch in epochs if epoch is not None), default=NO_BROKER_EPOCH)
        return LoadSummary(len(self._logs), is_clean, broker_epoch if is_clean else NO_BROKER_EPOCH)

    def cancel_load(self) -> None:
        """Make a `load` in another thread end soon, with StartupError; what it has repaired stays repaired."""
        self._is_closed = True

    def _take_marker(self, path: Path) -> int | None:
        """Whether this directory was left cleanly: the broker epoch at that time, or None."""
        make_synced_directory(self.files, path)
        marker = path / CLEAN_SHUTDOWN_FILE
        try:
            broker_epoch: int | None = decode_clean_shutdown(self.files.read_file(marker))
        except FileNotFoundError:
            return None
        except CorruptionError:
            broker_epoch = None
        self.files.remove(marker)
        self.files.sync_directory(path)
        return broker_epoch

    def _find_partitions(self, log_directory: LogDirectory, *, is_clean: bool) -> list[_Found]:
        path = log_directory.path
        recovery_points = self._read_checkpoint(path / RECOVERY_POINT_FILE)
        start_offsets = self._read_checkpoint(path / START_OFFSET_FILE)
        self._checkpointed[path] = {*recovery_points, *start_offsets}
        found = []
        for name in self.files.list_directory(path):
            if name.endswith(DELETED_DIRECTORY_SUFFIX):
                self._deleted.append((log_directory, path / name, self._clock.now_ms()))
            elif name.endswith(ASIDE_SUFFIX):
                self.files.remove(path / name)
            elif (partition := partition_of(name)) is not None and partition not in self._skipped:
                offsets = recovery_points.get(partition, 0), start_offsets.get(partition, 0)
                found.append(_Found(partition, log_directory, is_clean, *offsets))
        return found

    def _read_checkpoint(self, path: Path) -> dict[TopicPartition, Offset]:
        """A checkpoint that cannot be read costs a longer recovery, no data."""
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
            raise StartupError("the start was given up")
        directory = item.log_directory.path / str(item.partition)
        try:
            log = Log.open(
                self.files,
                directory,
                config,
                clock=self._clock,
                partition=item.partition,
                topic_id=self._read_topic_id(item.log_directory, directory),
                recovery_point=item.recovery_point,
                start_offset=item.start_offset,
                clean=item.is_clean,
                log_directory=item.log_directory,
            )
        except StorageError:
            return None
        except CorruptionError as error:
            raise StartupError(
                f"the log in {directory} cannot be read: {error}. Restore it, or move it out of the log directory."
            ) from error
        return log

    def _read_topic_id(self, log_directory: LogDirectory, directory: Path) -> TopicId:
        try:
            data = self.files.read_file(directory / PARTITION_METADATA_FILE)
            topic_id = self._topic_ids.get(data)
            if topic_id is None:
                topic_id = self._topic_ids[data] = decode_partition_metadata(data)
            return topic_id
        except (FileNotFoundError, CorruptionError):
            # Lost in a crash before the first flush: whoever knows the topic tells it again, see `create`.
            return NO_TOPIC_ID
        except OSError as error:
            raise log_directory.fail(error) from error

    def close(self, *, clean: bool = True, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Close all logs; `clean` writes everything that makes the next start quick, else files stay as they are."""
        self._is_closed = True
        if not clean:
            for log in self._logs.values():
                log.abandon()
            return
        logs = [log for log in self._logs.values() if log.log_directory.is_online]
        is_closed = self._map(self._close_log, logs, threads=self._worker_threads)
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

    @staticmethod
    def _map(function: Callable[[_Item], _Result], items: Sequence[_Item], *, threads: int) -> list[_Result]:
        """What `function` makes of each item, in threads that each take the next one; the first error ends it."""
        if threads == 1 or len(items) < 2:
            return [function(item) for item in items]
        waiting = deque(enumerate(items))
        results: dict[int, _Result] = {}

        def work() -> None:
            while True:
                try:
                    slot, item = waiting.popleft()
                except IndexError:
                    return
                try:
                    results[slot] = function(item)
                except BaseException:
                    waiting.clear()
                    raise

        with ThreadPoolExecutor(threads, "rookery-storage") as executor:
            for worker in [executor.submit(work) for _ in range(threads)]:
                worker.result()
        return [results[slot] for slot in range(len(items))]

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
        """The partition's log, made if there is none.

        A partition that is not new may lie in a directory that is offline: then StorageError, not an empty log.
        """
        log = self._logs.get(partition)
        if log is not None:
            if log.topic_id == NO_TOPIC_ID and topic_id != NO_TOPIC_ID:
                self._tell_topic_id(log, topic_id)
            return log
        online = [log_directory for log_directory in self.directories if log_directory.is_online]
        if not online or (not is_new and len(online) < len(self.directories)):
            raise StorageError(f"no log directory for {partition}: {len(online)} of {len(self.directories)} are online")
        log_directory = min(online, key=lambda candidate: candidate.partition_count)
        self._forget_checkpoints(log_directory, partition)
        log = Log.open(
            self.files,
            log_directory.path / str(partition),
            config,
            clock=self._clock,
            partition=partition,
            topic_id=topic_id,
            log_directory=log_directory,
        )
        self._adopt(log)
        return log

    def _adopt(self, log: Log) -> None:
        self._logs[log.partition] = log
        log.log_directory.partition_count += 1
        log.checkpoint_recovery_point = partial(self._checkpoint_recovery_points, log.log_directory)

    def _tell_topic_id(self, log: Log, topic_id: TopicId) -> None:
        try:
            replace_file(self.files, log.directory / PARTITION_METADATA_FILE, encode_partition_metadata(topic_id))
        except OSError as error:
            raise log.log_directory.fail(error) from error
        log.topic_id = topic_id

    def _forget_checkpoints(self, log_directory: LogDirectory, partition: TopicPartition) -> None:
        """A new partition must not inherit the offsets of a deleted one with the same name."""
        with log_directory.checkpoint_lock:
            is_known = partition in self._checkpointed.get(log_directory.path, ())
        if is_known:
            self._checkpoint_directory(log_directory)

    def delete(self, partition: TopicPartition) -> bool:
        """Take a partition away; its files go with a later `purge_deleted`. False if there is none."""
        log = self._logs.get(partition)
        if log is None:
            return False
        target = self._rename_away(log, DELETED_DIRECTORY_SUFFIX)
        if target is not None:
            due_ms = self._clock.now_ms() + log.config.file_delete_delay_ms
            self._deleted.append((log.log_directory, target, due_ms))
        return True

    def set_aside(self, partition: TopicPartition) -> None:
        """Take a stray away but keep its files: if the metadata is what was lost, they are all that is left."""
        self._rename_away(self._logs[partition], STRAY_DIRECTORY_SUFFIX)

    def _rename_away(self, log: Log, suffix: str) -> Path | None:
        """The directory's new name, or None if it is offline."""
        del self._logs[log.partition]
        log.abandon()
        log.log_directory.partition_count -= 1
        if not log.log_directory.is_online:
            return None
        suffix = f"-{log.partition.partition}.{self._new_uuid().hex}{suffix}"
        target = log.directory.with_name(log.partition.topic[: _NAME_LENGTH_MAX - len(suffix)] + suffix)
        try:
            self.files.rename(log.directory, target)
        except OSError as error:
            raise log.log_directory.fail(error) from error
        return target

    def purge_deleted(self, now_ms: TimestampMs) -> int:
        """Remove the files of what was deleted long enough ago; tells how many. In any thread."""
        count = 0
        for item in [item for item in tuple(self._deleted) if item[2] <= now_ms]:
            if self._is_closed:
                # The next start goes on.
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
            # Otherwise it went with its partition.
            self.files.remove(path)

    def strays(self, topic_id_of: Callable[[TopicPartition], TopicId | None]) -> list[TopicPartition]:
        """Partitions on disk that the metadata does not have here, or has with another topic id; `set_aside` them."""
        strays = []
        for partition, log in self._logs.items():
            expected = topic_id_of(partition)
            if expected is None or log.topic_id not in (expected, NO_TOPIC_ID):
                strays.append(partition)
        return strays

    # The regular chores

    def flush_due(self, now_ms: TimestampMs, logs: Iterable[Log] | None = None) -> list[Log]:
        """Logs to flush now, of all or of these; see `flush.flush_in_executor`."""
        candidates = self._logs.values() if logs is None else logs
        return [log for log in candidates if log.flush_is_due(now_ms) and log.log_directory.is_online]

    def apply_retention(self, log: Log, now_ms: TimestampMs, stable_offset: Offset | None = None) -> list[Segment]:
        """Give up what has expired of a log, for readers at once.

        After all logs, `checkpoint`, `retire_expired` and `purge_deleted` follow.
        """
        try:
            log.expire_producers(now_ms, self._producer_expiration_ms)
            return log.apply_retention(now_ms, stable_offset)
        except StorageError:
            return []
        except CorruptionError as error:
            logger.error("retention leaves a damaged log alone", partition=str(log.partition), error=str(error))
            return []

    def retire_expired(self, now_ms: TimestampMs) -> None:
        """Hand the files that retention gave up to `purge_deleted`; their logs' start offsets are on disk by now."""
        for log in self._logs.values():
            if log.has_doomed and log.log_directory.is_online:
                try:
                    paths = log.take_doomed()
                except StorageError:
                    continue
                self._deleted += [(log.log_directory, path, now_ms) for path in paths]

    # Checkpoints

    def checkpoint(self) -> None:
        """Write recovery points and start offsets of all directories, where they have changed; in any thread."""
        for log_directory in self.directories:
            if log_directory.is_online:
                try:
                    self._checkpoint_directory(log_directory)
                except StorageError:
                    continue

    def _checkpoint_directory(self, log_directory: LogDirectory) -> None:
        """Start offsets first: a recovery point may be too low, never too high."""
        try:
            with log_directory.checkpoint_lock:
                logs = self._logs_in(log_directory)
                starts = {log.partition: log.start_offset for log in logs if log.start_offset > 0}
                self._write_checkpoint(log_directory, START_OFFSET_FILE, starts)
                self._write_recovery_points(log_directory, logs)
        except OSError as error:
            raise log_directory.fail(error) from error

    def _checkpoint_recovery_points(self, log_directory: LogDirectory) -> None:
        with log_directory.checkpoint_lock:
            self._write_recovery_points(log_directory, self._logs_in(log_directory))

    def _write_recovery_points(self, log_directory: LogDirectory, logs: Sequence[Log]) -> None:
        """Read and written under the directory's lock: a worker thread must not put back what a truncation lowered."""
        self._write_checkpoint(log_directory, RECOVERY_POINT_FILE, {log.partition: log.recovery_point for log in logs})
        self._checkpointed[log_directory.path] = {log.partition for log in logs}

    def _write_checkpoint(
        self, log_directory: LogDirectory, name: str, offsets: Mapping[TopicPartition, Offset]
    ) -> None:
        path, data = log_directory.path / name, encode_offsets(offsets)
        if self._written.get(path) != data:
            replace_file(self.files, path, data)
            self._written[path] = data

    def _logs_in(self, log_directory: LogDirectory) -> list[Log]:
        return [log for log in self.logs() if log.log_directory is log_directory]
