"""The checkpoints of high watermarks: one file in each log directory, as in Kafka (`replication-offset-checkpoint`).

They are read once, at the start; later partitions are new and have none. `write` runs in a worker thread.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from rookery.base.errors import CorruptionError
from rookery.base.types import Offset, TopicPartition
from rookery.replication.replica import Replica
from rookery.storage.checkpoints import HIGH_WATERMARK_FILE, read_offsets, write_offsets
from rookery.storage.directory import LogDirectory
from rookery.storage.manager import LogManager

logger = structlog.get_logger(__name__)


class HighWatermarkCheckpoints:
    """The checkpoints of all log directories. `is_hosted` returns whether a replica is still one of this node."""

    def __init__(self, logs: LogManager, *, is_hosted: Callable[[Replica], bool]) -> None:
        self._logs = logs
        self._is_hosted = is_hosted
        # What was found at the start, until all replicas of the image are created.
        self._found: dict[TopicPartition, Offset] = {}
        # The content of the checkpoint files: an idle node does not rewrite them.
        self._written: dict[Path, dict[TopicPartition, Offset]] = {}

    def read(self) -> None:
        """Read all files, at the start."""
        for directory in self._logs.directories:
            try:
                self._written[directory.path] = read_offsets(self._logs.files, directory.path / HIGH_WATERMARK_FILE)
                self._found |= self._written[directory.path]
            except CorruptionError as error:
                # The high watermark then starts at the log's start and catches up with the in-sync replicas.
                logger.warning("ignoring a checkpoint", directory=str(directory.path), reason=str(error))
            except OSError as error:
                directory.fail(error)

    def found(self, partition: TopicPartition) -> Offset:
        """Return the high watermark that was found at the start, 0 if there is none."""
        return self._found.get(partition, 0)

    def end_start(self) -> None:
        """All replicas that were found at the start are created."""
        self._found = {}

    def forget(self, partition: TopicPartition) -> None:
        """Remove the checkpoint of a deleted partition whose name a new one has got.

        After a crash the new partition would start from it: consumers could read records that were never committed.
        """
        self._found.pop(partition, None)
        for directory in self._logs.directories:
            with directory.checkpoint_lock:
                written = self._written.get(directory.path, {})
                if partition in written:
                    # All partitions of a deleted topic at once: there may be thousands.
                    kept = {each: offset for each, offset in written.items() if self._logs.get(each) is not None}
                    kept.pop(partition, None)
                    self._write(directory, kept)

    def write(self, replicas: Iterable[Replica]) -> None:
        """Write the files. A high watermark may advance meanwhile; each value that it had is valid."""
        by_directory: dict[LogDirectory, list[Replica]] = {}
        for replica in replicas:
            by_directory.setdefault(replica.log.log_directory, []).append(replica)
        for directory, hosted in by_directory.items():
            with directory.checkpoint_lock:
                offsets = {
                    replica.state.topic_partition: replica.state.high_watermark
                    for replica in hosted
                    # It may have been removed, and its name be that of another replica, since this thread was started.
                    if self._is_hosted(replica)
                }
                self._write(directory, offsets)

    def _write(self, directory: LogDirectory, offsets: dict[TopicPartition, Offset]) -> None:
        """Replace a directory's file, if it has changed. The caller holds the directory's lock."""
        if directory.is_online and self._written.get(directory.path) != offsets:
            try:
                write_offsets(self._logs.files, directory.path / HIGH_WATERMARK_FILE, offsets)
            except OSError as error:
                directory.fail(error)
            else:
                self._written[directory.path] = offsets
