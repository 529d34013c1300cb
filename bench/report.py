"""Writes docs/performance.md from the results: the method, the goals, a table for each family, the plots.

The page is generated, except docs/performance/notes.md, which is written by hand and copied into it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import plots
from bench.model import FLOOR, Metric
from bench.results import CLIENTS, COMPILED, KAFKA, ROOKERY, Results, RowResult

PAGE_NAME = "performance.md"
PLOTS_DIRECTORY = "performance"
NOTES_NAME = "notes.md"

_INTRODUCTION = """\
# Rookery compared with Apache Kafka

Written by `make bench`. Both systems run on the same machine in the same run, on the loopback interface, with their
data on the same file system. The client is the same for both: librdkafka, called in batches so that the client limits
the figures as little as possible. The systems take turns, round by round. Each figure is the median of its rounds, and
± is half the distance between the lowest and the highest round, in percent of the median. A round that is not counted
precedes the others, so that Kafka's JVM is warm. Kafka runs as shipped: one node in KRaft mode with its
`config/server.properties`, a heap of 1 GB and the JVM options of `kafka-server-start.sh`; its logging is off. Rookery
runs as `rookery start` with its defaults. The ratio is Rookery's median divided by Kafka's. "Compiled" is the same
source with its hot modules compiled by mypyc ([decision 8](decisions/0008-hot-modules-can-be-compiled.md)), which
`pip install` does not install; the goals are for the uncompiled version.

The raw values of every round are in [performance/results.json](performance/results.json).
[testing.md](testing.md#the-benchmark) describes how to run the benchmark, or a part of it.
"""

_FAMILY_TEXTS = {
    "Floor": "The speed of the machine without a broker, in the same run: no system can be faster.",
    "Produce": "From the first record passed to the client to the last acknowledgement; in bytes of the values.",
    "Consume": "A topic that is in the page cache, from its beginning to its end.",
    "Latency": "From the time at which a record is due to be sent until the consumer has it, at a steady rate.",
    "Transactions": "Begin, records, commit, by one producer unless stated otherwise; a commit waits for its records.",
    "Clients": "Rookery's Python client and others, in one process, with a broker of Rookery in another process; the "
    "same settings and guarantees: acks=all, idempotence, batch.size 500 kB, linger.ms 5, no keys, 6 partitions, no "
    "compression. Ratios are Rookery's figure divided by the other's.",
    "Columns": "Batches in memory to and from Arrow, on one core, without a broker: all columns, checksums checked.",
    "Registry": "The schema registry in the broker's process, with schemas of 20 fields; plain sockets request them.",
    "Spark": "Rookery's connector and Spark's (spark-sql-kafka), each in its own Spark session on two cores, with a "
    "broker of Rookery; 4 partitions, into Spark's noop sink, or written with batch.size 500 kB and linger.ms 5. Avro "
    "has eight plain fields in Confluent's framing; Spark's from_avro gets the bytes after the first five. Spark's "
    "connector writes at least once. Ratios are Rookery's figure divided by Spark's.",
    "Requests": "One request in flight on each connection.",
    "Security": "Both systems have the same certificate (P-256), and the protocols and ciphers of their defaults. "
    "Logins: processes that connect, log in and close. ACLs: two brokers of each system take turns, one without "
    "authorizer and one with an ACL for reading and one for writing of 500 users each; the figures are the second's.",
    "Start": "From starting the process until ApiVersions and Metadata succeed, and every partition has a leader.",
    "Memory": "Resident memory of the broker's process, in MB of 1,000,000 bytes.",
    "Connections": "Connections that requested ApiVersions once and stay open, while another one sends requests.",
    "Recovery": "From the start of the process until the partitions have the end offsets from before the kill.",
    "Compaction": "From allowing the cleaner to start until its checkpoint covers all closed segments of the log.",
}
_PLOT_TEXTS = {
    plots.THROUGHPUT: "Ratios of all rows where more is better: right of 1, Rookery is ahead.",
    plots.LATENCY: "End-to-end latency; lower is better.",
    plots.FOOTPRINT: "Start and memory; lower is better.",
}
_MARKS = {True: "✅ met", False: "❌ not met"}


@dataclass(frozen=True, slots=True)
class Goal:
    """One bound: of the ratio, or, with a unit, of Rookery's figure."""

    text: str
    # The title of the row.
    title: str
    # The bounded value, and its text; None if it was not measured.
    value: float | None
    shown: str
    is_met: bool | None


def write(results: Results, output: Path) -> None:
    """Write the page and its plots to `output`."""
    directory = output / PLOTS_DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    drawn = plots.draw(results, directory)
    notes_path = directory / NOTES_NAME
    notes = notes_path.read_text() if notes_path.exists() else ""
    (output / PAGE_NAME).write_text(render(results, drawn=drawn, notes=notes))


def render(results: Results, *, drawn: list[str], notes: str = "") -> str:
    """Return the text of the page."""
    if not results.rows:
        return f"{_INTRODUCTION}\nNothing is measured yet.\n"
    parts = [_INTRODUCTION, _machine(results), _goals(results)]
    parts += [f"![{_PLOT_TEXTS[name]}]({PLOTS_DIRECTORY}/{name}.svg)\n" for name in drawn]
    for family in dict.fromkeys(row.family for row in results.rows):
        parts.append(_family(family, [row for row in results.rows if row.family == family]))
    if notes:
        # The links in the notes are relative to the directory of the notes.
        moved = re.sub(r"\]\((?!\w+:|#)", f"]({PLOTS_DIRECTORY}/", notes.strip())
        parts.append(f"## What explains the rows that fall short\n\n{moved}\n")
    return "\n".join(parts)


def goals(row: RowResult, metric: Metric) -> list[Goal]:
    """Return the goals of a metric, whose text is comma separated, and whether each is met; None if unknown."""
    return [_judge(part.strip(), row, metric) for part in (metric.goal or "").split(",") if part.strip()]


def _judge(text: str, row: RowResult, metric: Metric) -> Goal:
    match = re.fullmatch(r"(<=|>=) ([\d_.]+)( .+)?", text)
    if match is None:
        raise ValueError(f"{metric.name}: not a goal: {text}")
    sign, bound, unit = match[1], float(match[2]), match[3] or ""
    client = unit.removeprefix(" x ")
    if client in CLIENTS:
        value = row.ratio(metric, to=client)
    else:
        value = row.median(metric, ROOKERY) if unit else row.ratio(metric)
    shown = _value(value, metric) if unit and client not in CLIENTS else _ratio(value)
    if value is None:
        return Goal(text, row.title, None, shown, None)
    return Goal(text, row.title, value, shown, value <= bound if sign == "<=" else value >= bound)


def _machine(results: Results) -> str:
    lines = [f"| {name} | {value} |" for name, value in results.machine.items()]
    return "\n".join(["## The machine", "", "| | |", "| --- | --- |", *lines, ""])


def _goals(results: Results) -> str:
    """Return a line for each goal, which several rows may share."""
    lines = ["## Goals", "", "| measured | goal | rows that meet it | lowest | highest | |"]
    lines.append("| --- | --- | ---: | ---: | ---: | --- |")
    judged: dict[tuple[str, str, str], list[Goal]] = {}
    for row in results.rows:
        for metric in row.metrics:
            for goal in goals(row, metric):
                judged.setdefault((row.family, _label(metric), goal.text), []).append(goal)
    for (family, label, text), found in judged.items():
        measured = f"{family}: {label}" if len(found) > 1 else f"{family}: {found[0].title}, {label}"
        known = sorted((goal for goal in found if goal.value is not None), key=lambda goal: goal.value or 0.0)
        met = sum(goal.is_met is True for goal in known)
        lowest, highest = (known[0].shown, known[-1].shown) if known else ("–", "–")
        mark = _MARKS[met == len(known)] if known else "not measured"
        goal_text = text if text[-1].isalpha() else f"ratio {text}"
        lines.append(_line([measured, goal_text, f"{met} of {len(known)}", lowest, highest, mark]))
    return "\n".join([*lines, ""])


def _family(family: str, rows: list[RowResult]) -> str:
    names = {name for row in rows for by_name in row.values.values() for name in by_name}
    names |= {name for row in rows for name in row.errors}
    clients = [name for name in CLIENTS if name in names]
    if clients:
        table = _client_table(rows, clients)
    elif KAFKA in names:
        table = _compared_table(rows, has_compiled=COMPILED in names)
    else:
        table = _lone_table(rows, FLOOR if FLOOR in names else ROOKERY)
    lines = [f"## {family}", "", _FAMILY_TEXTS.get(family, ""), "", *table, ""]
    lines += [*(f"- {line}" for line in _remarks(rows)), ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


def _lone_table(rows: list[RowResult], name: str) -> list[str]:
    """The table of rows that have no peer to compare with."""
    lines = [[row.title, _label(metric), _figure(row, metric, name)] for row in rows for metric in row.metrics]
    return ["| row | | median |", "| --- | --- | ---: |", *map(_line, lines)]


def _client_table(rows: list[RowResult], clients: list[str]) -> list[str]:
    lines = [["row", "", "Rookery", *clients, *(f"to {name}" for name in clients)]]
    lines += [["---", "---", *("---:" for _ in range(1 + 2 * len(clients)))]]
    for row in rows:
        for metric in row.metrics:
            figures = [_figure(row, metric, name) for name in (ROOKERY, *clients)]
            ratios = [_ratio(row.ratio(metric, to=name)) for name in clients]
            lines.append([row.title, _label(metric), *figures, *ratios])
    return [_line(cells) for cells in lines]


def _compared_table(rows: list[RowResult], *, has_compiled: bool) -> list[str]:
    extra = ["compiled", "ratio"] if has_compiled else []
    lines = [["row", "", "Rookery", "Apache Kafka", "ratio", "", *extra]]
    lines += [["---", "---", "---:", "---:", "---:", "---", *("---:" for _ in extra)]]
    lines += [cells for row in rows for cells in _compared_cells(row, has_compiled)]
    return [_line(cells) for cells in lines]


def _compared_cells(row: RowResult, has_compiled: bool) -> Iterator[list[str]]:
    for metric in row.metrics:
        ratio = row.ratio(metric)
        extra = [_figure(row, metric, COMPILED), _ratio(row.ratio(metric, COMPILED))] if has_compiled else []
        yield [
            row.title,
            _label(metric),
            _figure(row, metric, ROOKERY),
            _figure(row, metric, KAFKA),
            _ratio(ratio),
            _standing(ratio, metric),
            *extra,
        ]


def _standing(ratio: float | None, metric: Metric) -> str:
    if ratio is None:
        return f"{metric.better} is better"
    ahead = ratio >= 1 if metric.better == "higher" else ratio <= 1
    return f"{'🟢' if ahead else '🔴'} {metric.better} is better"


def _remarks(rows: list[RowResult]) -> Iterator[str]:
    """Yield the errors and notes of the rows, and the commit and date of the figures."""
    for row in rows:
        for system, error in row.errors.items():
            yield f"{row.title}: failed on {system}: {error.splitlines()[0]}"
        for note in row.notes:
            yield f"{row.title}: {note}"
    sources = dict.fromkeys((row.commit, row.timestamp[:10], row.scale) for row in rows)
    for commit, date, scale in sources:
        scaled = "" if scale == 1.0 else f", at {scale:g} of the full size"
        rounds = sorted({row.rounds(metric) for row in rows for metric in row.metrics} - {0})
        yield f"Measured {date} at commit {commit}{scaled}; rounds: {', '.join(map(str, rounds)) or 'none'}."


def _figure(row: RowResult, metric: Metric, system: str) -> str:
    if system in row.errors:
        return "failed"
    spread = row.spread(metric, system)
    shown = _value(row.median(metric, system), metric)
    return shown if spread is None else f"{shown} ±{spread * 50:.0f} %"


def _value(value: float | None, metric: Metric) -> str:
    if value is None:
        return "–"
    digits = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{digits} {metric.unit}"


def _ratio(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}"


def _label(metric: Metric) -> str:
    """Return the part of the metric's name after the colon."""
    return metric.name.partition(": ")[2] or metric.unit


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
