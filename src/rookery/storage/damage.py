"""Damage in a log below its recovery point: bytes that were synced and can no longer be read.

A crash can tear bytes that were not synced, and recovery truncates those. It cannot harm bytes below the recovery
point. A log that is damaged there stays as it is and is not opened, because truncating it would turn one bad byte into
the loss of every record after it. `rookery log repair` shows what can be saved.
"""

from pathlib import Path

import structlog

from rookery.base.errors import CorruptionError
from rookery.base.types import Offset, TopicPartition
from rookery.base.values import value_class

logger = structlog.get_logger(__name__)

_WHAT_TO_DO = "restore the directory from a copy, or stop the broker and run `rookery log repair`"


@value_class
class Damage:
    """`offset` is the first offset that cannot be read, `end_offset` the one after the last that was synced."""

    path: Path
    position: int
    offset: Offset
    end_offset: Offset
    reason: str

    def __str__(self) -> str:
        return f"{self.path}, byte {self.position}, offset {self.offset}: {self.reason}"

    @property
    def unreachable(self) -> int:
        """The number of offsets that cannot be read, counted without looking for further damage after this one."""
        return max(1, self.end_offset - self.offset)


class DamagedLogError(CorruptionError):
    """A log is damaged below its recovery point; nothing was changed."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(str(damage))
        self.damage = damage


def log_damage(partition: TopicPartition, directory: Path, error: CorruptionError) -> None:
    """Log that a partition is not served, and why."""
    if isinstance(error, DamagedLogError):
        damage = error.damage
        found: dict[str, object] = {
            "file": str(damage.path),
            "position": damage.position,
            "offset": damage.offset,
            "unreachable_records": damage.unreachable,
            "reason": damage.reason,
        }
    else:
        found = {"directory": str(directory), "reason": str(error)}
    logger.error(
        "a log is damaged: its partition is offline, nothing was changed",
        partition=str(partition),
        to_do=_WHAT_TO_DO,
        **found,
    )


def log_missing(partition: TopicPartition, directory: Path, start_offset: Offset, end_offset: Offset) -> None:
    """Log that a partition is not served because its directory is gone."""
    logger.error(
        "the directory of a log is missing: its partition is offline",
        partition=str(partition),
        directory=str(directory),
        offset=start_offset,
        unreachable_records=end_offset - start_offset,
        to_do=_WHAT_TO_DO,
    )
