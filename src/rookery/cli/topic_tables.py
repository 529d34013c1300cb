"""The output of `rookery topics describe`: partitions with leaders, replicas and offsets, as tables and as JSON."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rookery.base.codes import ConfigSource, ResourceType
from rookery.base.types import PartitionIndex, TopicName, TopicPartition, encode_uuid
from rookery.cli.output import Cell, Styled, print_table
from rookery.cli.partition_states import PartitionState, TopicState, load_partitions, nodes_text
from rookery.client.admin import EARLIEST, LATEST, Admin, ConfigResource, OffsetResult

_COLUMNS = ("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "ELR")
_STYLES = {"offline": "bold red", "under min ISR": "red", "under-replicated": "yellow"}


class Filter(NamedTuple):
    """Which partitions to show: those that are in one of the chosen states; all if none is chosen."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_in_sync: bool = False
    at_min_in_sync: bool = False

    def keeps(self, partition: PartitionState) -> bool:
        states = (
            partition.is_under_replicated,
            partition.is_offline,
            partition.is_under_min_in_sync,
            partition.is_at_min_in_sync,
        )
        return not any(self) or any(chosen and state for chosen, state in zip(self, states, strict=True))


async def describe(admin: Admin, names: Sequence[TopicName], shown: Filter) -> list[dict[str, Any]]:
    """Return topics as JSON values. With a filter, topics without a matching partition are left out.

    A filter is for a cluster in trouble, so that offsets are not requested then: leaders may not answer.
    """
    described = []
    for topic in await load_partitions(admin, names):
        kept = [partition for partition in topic.partitions if shown.keeps(partition)]
        if kept or not any(shown):
            rows = await _rows(admin, kept, with_offsets=not any(shown))
            described.append(_summary(topic) | {"configs": await _configs(admin, topic), "partitions": rows})
    return described


async def _rows(admin: Admin, partitions: Sequence[PartitionState], *, with_offsets: bool) -> list[dict[str, Any]]:
    led = [partition.partition for partition in partitions if with_offsets and not partition.is_offline]
    earliest = await admin.list_offsets(dict.fromkeys(led, EARLIEST)) if led else {}
    latest = await admin.list_offsets(dict.fromkeys(led, LATEST)) if led else {}
    return [
        partition.as_json()
        | {
            "earliest_offset": _offset(earliest, partition.partition),
            "latest_offset": _offset(latest, partition.partition),
        }
        for partition in partitions
    ]


def _offset(found: Mapping[TopicPartition, OffsetResult], tp: TopicPartition) -> int | None:
    result = found.get(tp)
    return None if result is None or result.offset < 0 else result.offset


async def _configs(admin: Admin, topic: TopicState) -> dict[str, str | None]:
    (configs,) = await admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic.details.name)])
    return {
        entry.name: entry.value
        for entry in configs.check().entries
        if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    }


def _summary(topic: TopicState) -> dict[str, Any]:
    details = topic.details
    return {
        "topic": details.name,
        "topic_id": encode_uuid(details.topic_id),
        "replication_factor": max((len(partition.replicas) for partition in details.partitions), default=0),
        "min_in_sync_replicas": topic.partitions[0].min_in_sync if topic.partitions else None,
        "internal": details.is_internal,
    }


def print_description(topic: dict[str, Any]) -> None:
    configs = ", ".join(f"{key}={value}" for key, value in topic["configs"].items()) or "none set"
    title = f"{topic['topic']}  (id {topic['topic_id']}, configs: {configs})"
    rows = topic["partitions"]
    optional: dict[str, Callable[[dict[str, Any]], Cell]] = {
        "MOVING": lambda row: moving_text(row["adding_replicas"], row["removing_replicas"]),
        "EARLIEST": lambda row: row["earliest_offset"],
        "LATEST": lambda row: row["latest_offset"],
        "PROBLEM": lambda row: problem_cell(row["problems"]),
    }
    shown = [name for name, cell in optional.items() if any(cell(row) is not None for row in rows)]
    cells = [(*partition_cells(row), *(optional[name](row) for name in shown)) for row in rows]
    print_table([*_COLUMNS, *shown], cells, title=title)


def partition_cells(row: dict[str, Any]) -> tuple[Cell, ...]:
    """Return the cells of a partition from its index to its eligible leader replicas."""
    index: PartitionIndex = row["partition"]
    missing = len(row["in_sync_replicas"]) < len(row["replicas"])
    return (
        index,
        Styled("none", "bold red") if row["leader"] is None else row["leader"],
        nodes_text(row["replicas"]),
        Styled(nodes_text(row["in_sync_replicas"]) or "-", "yellow" if missing else ""),
        nodes_text(row["eligible_leader_replicas"]),
    )


def problem_cell(problems: Sequence[str]) -> Cell:
    return Styled(", ".join(problems), _STYLES[problems[0]]) if problems else None


def moving_text(adding: Sequence[int], removing: Sequence[int]) -> str | None:
    """Return what a reassignment adds and removes: `+4 -1`."""
    return " ".join([*(f"+{node}" for node in adding), *(f"-{node}" for node in removing)]) or None
