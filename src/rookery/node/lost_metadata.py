"""Checks at start that the metadata log of the log directories is not lost.

A node that starts with an empty metadata log is a new, empty cluster: without an error it would serve none of the
topics whose records are in its directories. So the start fails if anything shows that there was a metadata log before.
"""

from collections.abc import Sequence
from pathlib import Path

from rookery.base.errors import CorruptionError, StartupError
from rookery.base.files import Files
from rookery.quorum.committed import CommittedOffsetFile, has_batches
from rookery.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    COMMITTED_FILE,
    HIGH_WATERMARK_FILE,
    RECOVERY_POINT_FILE,
    decode_clean_shutdown,
)
from rookery.storage.damage import Damage
from rookery.storage.names import (
    DELETED_DIRECTORY_SUFFIX,
    METADATA_PARTITION,
    STRAY_DIRECTORY_SUFFIX,
    partition_of,
)


def check_metadata_exists(files: Files, log_directories: Sequence[Path], metadata_directory: Path) -> None:
    """Raise StartupError if the metadata log is missing or empty although the directories show that there was one."""
    if has_batches(files, metadata_directory):
        return
    trace = _find_trace(files, log_directories, metadata_directory)
    if trace is not None:
        raise StartupError(
            f"the metadata log {metadata_directory / str(METADATA_PARTITION)} is missing or empty, but {trace} shows "
            "that this node had one. Nothing was changed. Restore the directory from a copy, or correct "
            "metadata.log.dir and log.dirs if it is elsewhere. To begin an empty cluster, use another directory."
        )


def metadata_damage_error(damage: Damage, metadata_directory: Path) -> StartupError:
    """Return the error for the operator when a committed part of the metadata log cannot be read."""
    return StartupError(
        f"the metadata log is damaged: {damage}. The damaged part was committed, so nothing was cut or changed. "
        f"`rookery log repair {metadata_directory}` shows what can be saved and what would be lost; "
        f"or restore {damage.path.parent} from a copy."
    )


def _find_trace(files: Files, log_directories: Sequence[Path], metadata_directory: Path) -> str | None:
    """Return a file or directory that exists only if a node has served from these directories, else None.

    All of them are written after the metadata log.
    """
    if CommittedOffsetFile(files, metadata_directory).read() > 0:
        return str(metadata_directory / COMMITTED_FILE)
    for directory in log_directories:
        for name in files.list_directory(directory):
            if _is_trace(files, directory, name):
                return str(directory / name)
    return None


def _is_trace(files: Files, directory: Path, name: str) -> bool:
    if name in (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE):
        return True
    if name == CLEAN_SHUTDOWN_FILE:
        return _has_broker_epoch(files, directory / name)
    if name.endswith((DELETED_DIRECTORY_SUFFIX, STRAY_DIRECTORY_SUFFIX)):
        return True
    return partition_of(name) not in (None, METADATA_PARTITION)


def _has_broker_epoch(files: Files, marker: Path) -> bool:
    """Return whether the node had been registered when it wrote this file: only then it had a metadata log."""
    try:
        return decode_clean_shutdown(files.read_file(marker)) >= 0
    except CorruptionError:
        return False
