"""The end of the demo: a table that compares output and expectation, and a bar chart."""

from collections import Counter
from dataclasses import dataclass

from rich.bar import Bar
from rich.console import Console
from rich.table import Table

from demo.story.expectation import Counts, Enriched, Expectation


@dataclass(frozen=True)
class Output:
    counts: Counts
    count_records: int
    enriched: Counter[Enriched]
    malformed: Counter[bytes]
    lag: int | None


def show(console: Console, expected: Expectation, found: Output) -> bool:
    """Print both; return whether they agree."""
    rows = [
        ("views counted by minute and country, in the output topic", expected.counts, found.counts),
        ("records in that topic: one for each minute and country", len(expected.counts), found.count_records),
        ("views in Parquet, each once, with the user's country at that time", expected.enriched, found.enriched),
        ("dead letters, with their original bytes", expected.malformed, found.malformed),
        ("lag of the consumer group", 0, found.lag),
    ]
    table = Table(title="Output", title_justify="left")
    table.add_column("")
    table.add_column("")
    table.add_column("expected", justify="right")
    table.add_column("found", justify="right")
    for title, expectation, output in rows:
        table.add_row("[green]✓[/]" if expectation == output else "[red]✗[/]", title, _size(expectation), _size(output))
    console.print()
    console.print(_bar_chart(found.counts))
    console.print(
        f"{expected.late_count} views arrived too late to be counted, and are only in Parquet.", highlight=False
    )
    console.print(table)
    for title, expectation, output in rows:
        if isinstance(expectation, Counter) and isinstance(output, Counter) and expectation != output:
            console.print(
                f"{title}: missing {_some(expectation - output)}, unexpected {_some(output - expectation)}",
                highlight=False,
            )
    return all(expectation == output for _, expectation, output in rows)


def _size(value: object) -> str:
    return f"{sum(value.values()):,}" if isinstance(value, Counter) else f"{value:,}" if value is not None else "none"


def _some(values: Counter[object]) -> str:
    return f"{sum(values.values())} (such as {list(values)[:3]})"


def _bar_chart(counts: Counts) -> Table:
    countries: Counter[str] = Counter()
    for (_, country), views in counts.items():
        countries[country] += views
    table = Table(title="Views by country, from the output topic", title_justify="left", box=None, show_header=False)
    most = max(countries.values(), default=1)
    for country, views in countries.most_common():
        table.add_row(country, f"{views:,}", Bar(most, 0, views, width=40, color="green"))
    return table
