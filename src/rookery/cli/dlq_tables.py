"""The output of `rookery dlq`: topics of dead letters, the letters, and the report of a redrive."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from rookery.base.types import TimestampMs
from rookery.cli.dlq_values import FRAME_SIZE, RegistryValues, schema_id_of
from rookery.cli.lines import json_bytes, json_header
from rookery.cli.output import Cell, Styled, note, print_json, print_json_line, print_table
from rookery.dead_letters.letters import DeadLetter, Summary, short_class
from rookery.dead_letters.redrive import Report

_CLASSES_SHOWN = 3
_PREVIEW_LENGTH = 48
_UNNAMED = "unknown"


def print_summaries(summaries: Mapping[str, Summary], *, as_json: bool) -> None:
    if as_json:
        print_json([_summary_as_json(topic, summary) for topic, summary in summaries.items()])
        return
    rows = [
        (
            topic,
            summary.origins,
            Styled(str(summary.waiting), "yellow" if summary.waiting else "green"),
            summary.total,
            _time(summary.newest_ms),
            _classes(summary),
        )
        for topic, summary in summaries.items()
    ]
    print_table(["TOPIC", "FAILED", "WAITING", "LETTERS", "NEWEST", "ERRORS"], rows)
    if not rows:
        note("no topic ends in .dlq; give the names of your topics if they are different")


def _summary_as_json(topic: str, summary: Summary) -> dict[str, Any]:
    return {
        "topic": topic,
        "failed": summary.origins,
        "waiting": summary.waiting,
        "letters": summary.total,
        "newest_ms": summary.newest_ms,
        "errors": dict(summary.error_classes()),
    }


def _classes(summary: Summary) -> str | None:
    classes = summary.error_classes()
    texts = [f"{short_class(name) or _UNNAMED} {count}" for name, count in classes[:_CLASSES_SHOWN]]
    more = len(classes) - _CLASSES_SHOWN
    return ", ".join(texts + ([f"{more} more"] if more > 0 else [])) or None


def print_letters(letters: Iterable[DeadLetter], *, values: RegistryValues | None, as_json: bool) -> None:
    if as_json:
        for letter in letters:
            print_json_line(_letter_as_json(letter, values))
        return
    columns = ["AT", "FAILED", "ORIGIN", "STAGE", "ERROR", "TRIED", "PIPELINE", "KEY", "VALUE"]
    print_table(columns, [_letter_row(letter, values) for letter in letters])


def _letter_row(letter: DeadLetter, values: RegistryValues | None) -> tuple[Cell, ...]:
    record, failure = letter.record, letter.failure
    position = f"{record.partition}:{record.offset}"
    content = tuple(
        preview(data) if text is None else _cut(text)
        for data, text in zip((record.key, record.value), _decoded(letter, values), strict=True)
    )
    if failure is None:
        return (position, _time(record.timestamp_ms), None, None, None, None, None, *content)
    error = f"{short_class(failure.error_class) or _UNNAMED}: {_cut(failure.message)}"
    return (
        position,
        _time(record.timestamp_ms),
        None if letter.origin is None else f"{letter.origin.topic}-{letter.origin.partition}:{letter.origin.offset}",
        failure.stage or None,
        Styled(error, "red"),
        failure.attempt,
        failure.pipeline,
        *content,
    )


def _decoded(letter: DeadLetter, values: RegistryValues | None) -> tuple[str | None, str | None]:
    """Return key and value as JSON; None for each that the registry's schemas cannot decode."""
    record = letter.record
    if values is None:
        return None, None
    topic = record.topic if letter.origin is None else letter.origin.topic
    return values.decode(topic, record.key), values.decode(topic, record.value)


def _letter_as_json(letter: DeadLetter, values: RegistryValues | None) -> dict[str, Any]:
    record, failure = letter.record, letter.failure
    found: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "origin": None if letter.origin is None else letter.origin._asdict(),
    }
    if failure is not None:
        found |= {
            "error_class": failure.error_class,
            "message": failure.message,
            "stage": failure.stage,
            "pipeline": failure.pipeline,
            "attempt": failure.attempt,
        }
    names = ("key_decoded", "value_decoded")
    found |= {name: text for name, text in zip(names, _decoded(letter, values), strict=True) if text is not None}
    headers = [json_header(name, data) for name, data in record.headers]
    return found | json_bytes("key", record.key) | json_bytes("value", record.value) | {"headers": headers}


def preview(data: bytes | None) -> str | None:
    """Return the beginning of a key or value, as text or as hexadecimal bytes, with its schema id if it has one."""
    if data is None:
        return None
    schema_id = schema_id_of(data)
    if schema_id is not None:
        return f"schema {schema_id}: {_hexadecimal(data[FRAME_SIZE:])}"
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return _hexadecimal(data)
    return _cut(text)


def _hexadecimal(data: bytes) -> str:
    return _cut(data[:_PREVIEW_LENGTH].hex())


def _cut(text: str) -> str:
    """Shorten a text to one line, and replace characters that could control a terminal."""
    line = "".join(character if character.isprintable() else " " for character in text[: _PREVIEW_LENGTH + 1])
    return line if len(line) <= _PREVIEW_LENGTH else line[: _PREVIEW_LENGTH - 1] + "…"


def _time(timestamp_ms: TimestampMs | None) -> str | None:
    if timestamp_ms is None:
        return None
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError):
        # A producer may set any number as timestamp.
        return str(timestamp_ms)


def print_report(report: Report, *, executed: bool, as_json: bool) -> None:
    if as_json:
        skipped = {skip.name.lower(): count for skip, count in sorted(report.skipped.items())}
        print_json({"executed": executed, "sent": dict(sorted(report.sent.items())), "left_out": skipped})
        return
    done = "sent" if executed else "would send"
    rows: list[tuple[Cell, ...]] = [
        (Styled(done, "green"), count, f"to {topic}") for topic, count in sorted(report.sent.items())
    ]
    rows += [(Styled("left out", "dim"), count, str(skip)) for skip, count in sorted(report.skipped.items())]
    print_table(["", "RECORDS", ""], rows)
    if not executed and report.sent:
        note("nothing was sent: remove --dry-run to send")
