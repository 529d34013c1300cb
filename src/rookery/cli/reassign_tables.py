"""The output of `rookery reassign` and `rookery brokers drain`: plans, running moves and their state."""

from collections.abc import Mapping

import typer

from rookery.base.types import NodeId, TopicPartition
from rookery.cli.output import Cell, Styled, note, print_json, print_table
from rookery.cli.partition_states import nodes_text
from rookery.cli.reassign_runs import DIFFERENT, DONE, MISSING, MOVING, moves_as_json
from rookery.cli.reassignment_plans import Assignment, format_plan
from rookery.cli.sizes import size_text
from rookery.cli.topic_tables import moving_text
from rookery.client.admin import Reassignment

_STYLES = {DONE: "green", MOVING: "yellow", DIFFERENT: "red", MISSING: "bold red"}


def print_moves(current: Assignment, targets: Assignment, copied_bytes: int | None, *, as_json: bool) -> None:
    """Print a plan: as a table of changes, or in the JSON form of Kafka's tool."""
    if as_json:
        print_json(format_plan(targets))
    else:
        rows = [
            (tp.topic, tp.partition, nodes_text(current[tp]), nodes_text(nodes), _moving(current[tp], nodes))
            for tp, nodes in sorted(targets.items())
        ]
        if not rows:
            typer.echo("nothing to move")
            return
        print_table(["TOPIC", "PARTITION", "REPLICAS", "PLANNED", "MOVING"], rows)
    added = sum(len(set(nodes) - set(current[tp])) for tp, nodes in targets.items())
    size = size_text(copied_bytes) or "of unknown size"
    note(f"{len(targets)} of {len(current)} partitions change, {added} replicas are copied ({size})")


def _moving(before: tuple[NodeId, ...], after: tuple[NodeId, ...]) -> str | None:
    adding = [node for node in after if node not in before]
    removing = [node for node in before if node not in after]
    return moving_text(adding, removing) or "order only"


def print_running(
    moves: Mapping[TopicPartition, Reassignment], copied: Mapping[TopicPartition, tuple[int, int]], *, as_json: bool
) -> None:
    if as_json:
        rows = moves_as_json(moves)
        for row, tp in zip(rows, moves, strict=True):
            row["copied_bytes"], row["total_bytes"] = copied.get(tp, (None, None))
        print_json(rows)
        return
    cells: list[tuple[Cell, ...]] = [
        (tp.topic, tp.partition, nodes_text(move.replicas), moving_text(move.adding, move.removing), _share(copied, tp))
        for tp, move in moves.items()
    ]
    print_table(["TOPIC", "PARTITION", "REPLICAS", "MOVING", "COPIED"], cells)


def _share(copied: Mapping[TopicPartition, tuple[int, int]], tp: TopicPartition) -> str | None:
    if tp not in copied:
        return None
    done, total = copied[tp]
    return f"{size_text(done)} of {size_text(total)}"


def print_states(states: Mapping[TopicPartition, str], *, as_json: bool) -> None:
    if as_json:
        print_json([{"topic": tp.topic, "partition": tp.partition, "state": state} for tp, state in states.items()])
        return
    rows = [(tp.topic, tp.partition, Styled(state, _STYLES[state])) for tp, state in states.items()]
    print_table(["TOPIC", "PARTITION", "STATE"], rows)
    done = sum(state == DONE for state in states.values())
    typer.echo(f"{done} of {len(states)} partitions are as planned")
