"""The progress display of a running pipeline, in terminals of any size."""

import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from rookery.pipelines.display import FlowTable, duration_text, figures_line
from rookery.pipelines.progress import Figures

# Figures with the widest cells.
BUSY = Figures(
    flow="page-views-by-country",
    state="restarting",
    batches=120,
    rows_in=1_234_567_890,
    rows_out=1_234_567_890,
    rows_in_per_s=123_456,
    rows_out_per_s=123_456,
    batch_ms=12_345,
    lags={"page-views-0": 12_345_678},
    lag_s=5000.0,
    dead_letters=1_234,
    error="the table orders refuses a row: " + "new row violates a check constraint, " * 4 + "the end",
)


def rendered(figures: Sequence[Figures], *, width: int, height: int = 24, is_live: bool = True) -> list[str]:
    shown = io.StringIO()
    Console(file=shown, width=width, height=height).print(FlowTable("p", figures, is_live=is_live))
    return shown.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_figures_are_not_truncated_at_any_width(width: int) -> None:
    lines = rendered([BUSY, replace(BUSY, flow="out", state="running", error=None)], width=width)
    assert all(len(each.rstrip()) <= width for each in lines)
    (row,) = [each.split() for each in lines if "restarting" in each]
    assert row[1:3] == ["restarting", "123,456"]
    assert "12,345,678" in row
    assert "…" not in "".join(lines)
    text = " ".join(" ".join(lines).split())
    assert BUSY.error is not None
    assert f"{BUSY.flow}: {BUSY.error}" in text, "errors are wrapped, not truncated"


def test_a_terminal_of_80_columns_shows_the_important_figures() -> None:
    (row,) = [each.split() for each in rendered([BUSY], width=80) if "restarting" in each]
    assert row == ["page-views-by-country", "restarting", "123,456", "12,345,678", "1.4", "h", "1,234"]


def test_a_wide_terminal_shows_all_columns() -> None:
    (row,) = [each.split() for each in rendered([BUSY], width=160) if "restarting" in each]
    assert len(row) == 12, "ten columns, of which two have a unit"


def test_long_names_are_folded() -> None:
    lines = rendered([replace(BUSY, flow="n" * 60)], width=80)
    parts = [each.split()[0] for each in lines if each.startswith("nnn") and ":" not in each]
    assert "".join(parts) == "n" * 60


def test_more_flows_than_lines() -> None:
    flows = [Figures(flow=f"flow-{number}", state="running") for number in range(40)]
    flows[35] = replace(flows[35], state="failed", error="no broker")
    lines = rendered(flows, width=80)
    assert len(lines) <= 24
    assert any(each.startswith("flow-35 ") for each in lines), "the failed flow is shown"
    assert any("more: rookery pipelines status p" in each for each in lines)
    assert sum(each.startswith("flow-") for each in rendered(flows, width=80, is_live=False)) == 41


def test_the_line_of_a_flow_in_a_log() -> None:
    assert figures_line(Figures(flow="out")) == "out: starting"
    assert figures_line(Figures(flow="out", state="restarting", error="no broker")) == "out: restarting, no broker"
    figures = Figures(
        flow="out", state="running", batches=1, rows_in=1234, rows_out=10, batch_ms=250, lags={"views-0": 7}, lag_s=90.0
    )
    assert figures_line(figures) == (
        "out: running, in/s 0, out/s 0, rows in 1,234, rows out 10, batch 250 ms, lag 7, behind 1.5 min, dead letters 0"
    )
    assert figures_line(replace(figures, state="finished", lags=None, lag_s=None)) == (
        "out: finished, rows in 1,234, rows out 10, batch 250 ms, dead letters 0"
    )
    assert duration_text(7200) == "2.0 h"


def test_errors_are_not_interpreted_as_markup() -> None:
    """rich would interpret brackets in a plain string."""
    shown = io.StringIO()
    table = FlowTable("p", [Figures(flow="out", state="failed", error="no [/red] and no [bold]x[/bold]")])
    Console(file=shown, width=200).print(table)
    assert "out: no [/red] and no [bold]x[/bold]" in shown.getvalue()
