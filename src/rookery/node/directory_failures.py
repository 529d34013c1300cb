"""Reacts to log directories that fail while the node runs, as Kafka does (KIP-858).

The controller is informed by a heartbeat that is sent at once, so that other replicas lead the partitions in it. A node
of a cluster ends if it cannot go on: its metadata log is lost, no log directory is left, or the controller could not be
informed within `log.dir.failure.timeout.ms` and still counts on the replicas in the directory.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from rookery.broker.lifecycle_task import BrokerLifecycle
from rookery.storage.directory import LogDirectory

_START_AGAIN: Final = "Free space or repair the disk, then start again."


class DirectoryFailures:
    """Watches the directories of a node. `end` is called with the reason for which the node must end."""

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        metadata_directory: LogDirectory,
        *,
        ids: Mapping[Path, UUID],
        timeout_s: float,
        end: Callable[[str], None],
    ) -> None:
        self._directories = directories
        self._metadata_directory = metadata_directory
        self._ids = ids
        self._timeout_s = timeout_s
        self._end = end
        self._lifecycle: BrokerLifecycle | None = None
        loop = asyncio.get_running_loop()

        def watch(directory: LogDirectory) -> None:
            # Most failures happen in worker threads.
            directory.on_failure = lambda: loop.call_soon_threadsafe(self._handle, directory)

        for each in {*directories, metadata_directory}:
            watch(each)

    def report_with(self, lifecycle: BrokerLifecycle) -> None:
        """Inform the controller with this broker's heartbeats. Without a broker, only the metadata log matters."""
        self._lifecycle = lifecycle

    def _handle(self, directory: LogDirectory) -> None:
        if directory is self._metadata_directory:
            self._end(f"the metadata log's directory, {directory.path}, failed: {directory.failure}. {_START_AGAIN}")
        elif not any(each.is_online for each in self._directories):
            self._end(f"the last log directory, {directory.path}, failed: {directory.failure}. {_START_AGAIN}")
        else:
            if self._lifecycle is not None:
                self._lifecycle.report()
            asyncio.get_running_loop().call_later(self._timeout_s, self._check_reported, directory)

    def _check_reported(self, directory: LogDirectory) -> None:
        reported = () if self._lifecycle is None else self._lifecycle.reported_directories
        if self._ids[directory.path] not in reported:
            self._end(
                f"the controller could not be informed within {self._timeout_s:g} s that the log directory "
                f"{directory.path} failed: {directory.failure}. {_START_AGAIN}"
            )
