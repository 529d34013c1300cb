"""The names of a partition's files, as in Kafka: the base offset in twenty digits and a suffix."""

from rookery.base.types import Offset, TopicPartition

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
ABORTED_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
# The last one exists only if a transaction was aborted in the segment.
SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_INDEX_SUFFIX)

# The stages of a segment that replaces others, see `replacement`.
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DELETED_SUFFIX = ".deleted"
STAGE_SUFFIXES = (CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX)

# A crash during `replace_file` leaves a file with this suffix.
TEMPORARY_SUFFIX = ".tmp"

DELETED_DIRECTORY_SUFFIX = "-delete"
STRAY_DIRECTORY_SUFFIX = "-stray"
METADATA_PARTITION = TopicPartition("__cluster_metadata", 0)

_DIGITS = 20
_NAME_LENGTH_MAX = 255
_UNIQUE_LENGTH = 32


def file_name(base_offset: Offset, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def offset_of(name: str) -> Offset | None:
    """Return the base offset in a file's name, None if it has none: `00000000000000000042.log` gives 42."""
    digits = name[:_DIGITS]
    if len(name) > _DIGITS and name[_DIGITS] == "." and digits.isascii() and digits.isdigit():
        return int(digits)
    return None


def suffix_of(name: str) -> str:
    return name[_DIGITS:]


def partition_of(name: str) -> TopicPartition | None:
    """Return the partition whose directory has this name, None if it is not a partition's."""
    topic, dash, index = name.rpartition("-")
    if not topic or not dash or not (index.isascii() and index.isdigit()):
        return None
    return TopicPartition(topic, int(index))


def directory_name_aside(partition: TopicPartition, unique: str, suffix: str) -> str:
    """Return the name of a directory that is no longer that of a partition; `unique` has 32 hexadecimal digits."""
    end = f"-{partition.partition}.{unique}{suffix}"
    return partition.topic[: _NAME_LENGTH_MAX - len(end)] + end


def stem_of_deleted(deleted: TopicPartition | str) -> str:
    """Return the part of a deleted directory's name, or of those of a partition, that all deletions have in common."""
    if isinstance(deleted, TopicPartition):
        deleted = directory_name_aside(deleted, "0" * _UNIQUE_LENGTH, DELETED_DIRECTORY_SUFFIX)
    return deleted.rpartition(".")[0]
