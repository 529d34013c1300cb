"""The plots of the report, as SVG: text is stored as text, so that they are small; equal results give equal bytes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.model import Metric
from bench.results import KAFKA, ROOKERY, Results, RowResult

THROUGHPUT, LATENCY, FOOTPRINT = "throughput", "latency", "footprint"

_COLORS = {ROOKERY: "#2b6cb0", KAFKA: "#a0aec0"}
_AHEAD, _BEHIND = "#2f855a", "#c53030"
_NAMES = {ROOKERY: "Rookery", KAFKA: "Apache Kafka"}
_STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "rookery", "font.size": 9, "font.family": "sans-serif"}
_LINE_HEIGHT_INCHES = 0.24

Measured = list[tuple[RowResult, Metric]]


def draw(results: Results, directory: Path) -> list[str]:
    """Draw the plots that have results; returns their names."""
    figures = {
        THROUGHPUT: (_draw_ratios, _compared(results, _is_throughput)),
        LATENCY: (_draw_bars, _compared(results, _is_latency)),
        FOOTPRINT: (_draw_bars, _compared(results, _is_footprint)),
    }
    drawn = []
    with mpl.rc_context(_STYLE):
        for name, (draw_figure, measured) in figures.items():
            if measured:
                figure = draw_figure(measured)
                # Without the date, which would change the file with every run.
                figure.savefig(directory / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")
                drawn.append(name)
    return drawn


def _is_throughput(row: RowResult, metric: Metric) -> bool:
    # Records/s have the same ratio as the MB/s of the row.
    return metric.better == "higher" and metric.unit != "records/s" and row.ratio(metric) is not None


def _is_latency(row: RowResult, metric: Metric) -> bool:
    return row.family == "Latency"


def _is_footprint(row: RowResult, metric: Metric) -> bool:
    return row.family in {"Start", "Memory"} and "CPU" not in metric.name


def _compared(results: Results, wanted: Callable[[RowResult, Metric], bool]) -> Measured:
    return [
        (row, metric)
        for row in results.rows
        for metric in row.metrics
        if wanted(row, metric) and any(row.median(metric, system) is not None for system in (ROOKERY, KAFKA))
    ]


def _draw_ratios(measured: Measured) -> Figure:
    """Draw a bar for each row, from 1 to its ratio, on a logarithmic axis."""
    ratios = [(row, metric, row.ratio(metric) or 1.0) for row, metric in measured]
    figure = Figure(figsize=(9, 1 + _LINE_HEIGHT_INCHES * len(ratios)))
    axes = figure.subplots()
    for position, (_, _, ratio) in enumerate(ratios):
        color = _AHEAD if ratio >= 1 else _BEHIND
        axes.barh(position, ratio - 1, left=1, color=color, height=0.7)
        # The text is on the side where the bar ends.
        axes.text(ratio, position, f" {ratio:.2f} ", va="center", ha="left" if ratio >= 1 else "right", fontsize=8)
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(0.25, *(ratio * 0.7 for _, _, ratio in ratios)), max(4.0, *(r * 1.4 for _, _, r in ratios)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(ratios)), [_label(row, metric) for row, metric, _ in ratios])
    axes.invert_yaxis()
    axes.set_xlabel("Rookery divided by Apache Kafka (more is better)")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _draw_bars(measured: Measured) -> Figure:
    """Draw the medians of both systems side by side, with one scale for the metrics of each unit."""
    units = list(dict.fromkeys(metric.unit for _, metric in measured))
    groups = [[(row, metric) for row, metric in measured if metric.unit == unit] for unit in units]
    figure = Figure(figsize=(9, 0.6 + 0.5 * len(units) + 2 * _LINE_HEIGHT_INCHES * len(measured)), layout="constrained")
    heights = [len(group) for group in groups]
    for axes, group in zip(
        figure.subplots(len(units), squeeze=False, height_ratios=heights)[:, 0], groups, strict=True
    ):
        _draw_group(axes, group)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower right", ncols=2, frameon=False)
    return figure


def _draw_group(axes: Axes, group: Measured) -> None:
    for offset, system in ((-0.2, ROOKERY), (0.2, KAFKA)):
        medians = [row.median(metric, system) or 0.0 for row, metric in group]
        positions = [position + offset for position in range(len(group))]
        axes.barh(positions, medians, height=0.38, color=_COLORS[system], label=_NAMES[system])
        for position, median, (_, metric) in zip(positions, medians, group, strict=True):
            shown = f" {median:,.3g} {metric.unit}" if median else " not measured"
            axes.text(median, position, shown, va="center", fontsize=8)
    axes.set_yticks(range(len(group)), [_label(row, metric) for row, metric in group])
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel(f"{group[0][1].unit} (less is better)")
    axes.spines[["top", "right"]].set_visible(False)


def _label(row: RowResult, metric: Metric) -> str:
    return f"{row.family}: {row.title}, {metric.name.partition(': ')[2] or metric.unit}"
