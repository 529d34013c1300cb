"""Counts for readers: the table of docs/cost.md, the table of a run, and sentences about operations that changed."""

from collections.abc import Iterable
from pathlib import Path

from rich.table import Table

from bench.cost.baseline import Baseline, Comparison, Row
from bench.cost.operations import OPERATIONS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cost.md"

_TITLES = {operation.name: operation.title for operation in OPERATIONS}
_BEGIN = "<!-- Written by make cost UPDATE=1, from bench/cost/baseline.json -->"
_END = "<!-- End -->"
_ADVICE = (
    "Find the change that causes it (`make cost OPERATIONS=...` counts some operations alone, `make profile` shows "
    "where time goes) and undo it. If it is worth its cost, renew the baseline with `make cost UPDATE=1` and give the "
    "reason in the commit."
)


def markdown(baseline: Baseline) -> str:
    environment = ", ".join(f"{name} {value}" for name, value in baseline.environment.items())
    rows = [f"| {_TITLES[name]} | `{name}` | {count:,} |" for name, count in baseline.instructions.items()]
    head = ["| operation | name | instructions |", "| --- | --- | ---: |"]
    return "\n".join([*head, *rows, "", f"Counted with: {environment}."])


def refresh(page: str, baseline: Baseline) -> str:
    """Replace the table in the text of docs/cost.md."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"the page has no table between {_BEGIN} and {_END}")
    return f"{before}{begin}\n\n{markdown(baseline)}\n\n{end}{after}"


def table(comparison: Comparison) -> Table:
    shown = Table("operation", "name", box=None)
    for name in ("instructions", "baseline", "ratio"):
        shown.add_column(name, justify="right")
    for row in comparison.rows:
        style = "red" if comparison.is_dearer(row) else "green" if comparison.is_cheaper(row) else ""
        expected = "none" if row.expected is None else f"{row.expected:,}"
        ratio = "" if row.ratio is None else f"{row.ratio:.3f}"
        shown.add_row(_TITLES[row.name], row.name, f"{row.counted:,}", expected, ratio, style=style)
    return shown


def explain_environment(comparison: Comparison) -> str:
    """Say how the counts were compared."""
    allowed = f"At most {comparison.tolerance:.0%} more than the baseline is allowed."
    if not comparison.differences:
        return f"The environment is the baseline's. {allowed}"
    reasons = "; ".join(comparison.differences)
    return f"The environment is not the baseline's ({reasons}): its counts are converted by the calibration. {allowed}"


def failures(comparison: Comparison) -> list[str]:
    """Return a sentence for each operation that became dearer than allowed, and one that says what to do."""
    dearer = [_explain_dearer(row, comparison.tolerance) for row in comparison.rows if comparison.is_dearer(row)]
    return [*dearer, _ADVICE] if dearer else []


def improvements(comparison: Comparison) -> list[str]:
    """Return a sentence for each operation that became so much cheaper that the baseline guards it no longer."""
    return [
        f"{_named(row)} takes {_change(row)} instructions than the baseline: renew it with `make cost UPDATE=1`, "
        "so that the gain is guarded."
        for row in comparison.rows
        if comparison.is_cheaper(row)
    ]


def _explain_dearer(row: Row, tolerance: float) -> str:
    if row.expected is None:
        return f"{_named(row)} has no baseline."
    return (
        f"{_named(row)} takes {row.counted:,} instructions, {_change(row)} than the baseline's {row.expected:,}; "
        f"{tolerance:.0%} more is allowed."
    )


def _named(row: Row) -> str:
    return f"{row.name} ({_TITLES[row.name]})"


def _change(row: Row) -> str:
    assert row.ratio is not None
    return f"{abs(row.ratio - 1):.1%} {'more' if row.ratio > 1 else 'fewer'}"


def join(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)
