"""The output of `rookery transactions`: transactions, producers and hanging transactions, as tables and as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from rookery.base.types import TimestampMs, TopicPartition
from rookery.cli.output import Cell, Styled, indexes_by_topic, indexes_text, note, print_json, print_table
from rookery.client.admin import (
    ENDING,
    ONGOING,
    ActiveProducer,
    OpenTransaction,
    TransactionDescription,
    TransactionListing,
)

_STATE_STYLES = {ONGOING: "green", **dict.fromkeys(ENDING, "yellow")}


def print_listings(listings: Sequence[TransactionListing], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "transactional_id": listing.transactional_id,
                    "coordinator": listing.coordinator,
                    "producer_id": listing.producer_id,
                    "state": listing.state,
                }
                for listing in listings
            ]
        )
        return
    rows = [(it.transactional_id, it.coordinator, it.producer_id, _state_cell(it.state)) for it in listings]
    print_table(["TRANSACTIONAL ID", "COORDINATOR", "PRODUCER ID", "STATE"], rows)


def print_descriptions(descriptions: Sequence[TransactionDescription], *, now_ms: TimestampMs, as_json: bool) -> None:
    rows = [_description_as_json(description, now_ms) for description in descriptions]
    if as_json:
        print_json(rows)
        return
    columns = ["TRANSACTIONAL ID", "COORDINATOR", "PRODUCER ID", "EPOCH", "STATE", "TIMEOUT", "RUNNING", "PARTITIONS"]
    print_table(
        columns,
        [
            (
                row["transactional_id"],
                row["coordinator"],
                row["producer_id"],
                row["producer_epoch"],
                _state_cell(row["state"]),
                duration_text(row["timeout_ms"]),
                _late_cell(row["duration_ms"], row["timeout_ms"]),
                indexes_text(row["partitions"]),
            )
            for row in rows
        ],
    )


def print_producers(found: Mapping[TopicPartition, Sequence[ActiveProducer]], *, as_json: bool) -> None:
    rows = [_producer_as_json(tp, producer) for tp in sorted(found) for producer in found[tp]]
    if as_json:
        print_json(rows)
        return
    columns = [
        "PARTITION",
        "PRODUCER ID",
        "EPOCH",
        "COORDINATOR EPOCH",
        "LAST SEQUENCE",
        "LAST TIMESTAMP",
        "TRANSACTION START",
    ]
    print_table(columns, [tuple(row.values())[1:] for row in rows])


def print_hanging(hanging: Sequence[OpenTransaction], *, now_ms: TimestampMs, as_json: bool) -> None:
    rows = [
        _producer_as_json(found.partition, found.producer)
        | {"duration_ms": max(0, now_ms - found.producer.last_timestamp_ms)}
        for found in hanging
    ]
    if as_json:
        print_json(rows)
        return
    columns = ["TOPIC", "PARTITION", "PRODUCER ID", "EPOCH", "COORDINATOR EPOCH", "START OFFSET", "LAST WRITE"]
    print_table(
        columns,
        [
            (
                row["topic"],
                row["partition"],
                row["producer_id"],
                row["producer_epoch"],
                row["coordinator_epoch"],
                row["transaction_start"],
                Styled(f"{duration_text(row['duration_ms'])} ago", "bold red"),
            )
            for row in rows
        ],
    )
    note(
        "abort one with: rookery transactions abort --topic T --partition P --start-offset N" if rows else "none hangs"
    )


def duration_text(duration_ms: int) -> str:
    """Return a duration in its two largest units, or in seconds with a fraction."""
    if duration_ms < 60_000:
        return f"{duration_ms / 1000:g}s"
    minutes, seconds = divmod(duration_ms // 1000, 60)
    if minutes < 60:
        return f"{minutes}m {seconds:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02}m" if hours < 24 else f"{hours // 24}d {hours % 24:02}h"


def _state_cell(state: str) -> Cell:
    return Styled(state, _STATE_STYLES.get(state, "dim"))


def _late_cell(duration_ms: int | None, timeout_ms: int) -> Cell:
    if duration_ms is None:
        return None
    return Styled(duration_text(duration_ms), "bold red" if duration_ms > timeout_ms else "")


def _description_as_json(description: TransactionDescription, now_ms: TimestampMs) -> dict[str, Any]:
    start_ms = description.start_ms
    return {
        "transactional_id": description.transactional_id,
        "coordinator": description.coordinator,
        "producer_id": description.producer_id,
        "producer_epoch": description.producer_epoch,
        "state": description.state,
        "timeout_ms": description.timeout_ms,
        "start_ms": start_ms,
        "duration_ms": max(0, now_ms - start_ms) if start_ms is not None and description.is_open else None,
        "partitions": indexes_by_topic(description.partitions),
    }


def _producer_as_json(tp: TopicPartition, producer: ActiveProducer) -> dict[str, Any]:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp_ms": producer.last_timestamp_ms,
        "transaction_start": producer.transaction_start,
    }
