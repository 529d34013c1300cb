"""The end of the story: what came out beside what must come out, and a picture of it."""

from collections import Counter
from dataclasses import dataclass

from rich.bar import Bar
from rich.console import Console
from rich.table import Table

from demo.story.expectation import Counts, Enriched, Expectation


@dataclass(frozen=True)
class Found:
    counts: Counts
    count_records: int
    enriched: Counter[Enriched]
    malformed: Counter[bytes]
    lag: int | None


def show(console: Console, expected: Expectation, found: Found) -> bool:
    """Print both; whether they agree."""
    rows = [
        ("views counted by minute and country, in the output topic", expected.counts, found.counts),
        ("records there: one of each minute and country", len(expected.counts), found.count_records),
        ("views in Parquet, each once, with the user's country at that time", expected.enriched, found.enriched),
        ("dead letters, with their original bytes", expected.malformed, found.malformed),
        ("lag of the consumer group", 0, found.lag),
    ]
    table = Table(title="What came out", title_justify="left")
    table.add_column("")
    table.add_column("")
    table.add_column("must be", justify="right")
    table.add_column("is", justify="right")
    for title, must, is_ in rows:
        table.add_row("[green]✓[/]" if must == is_ else "[red]✗[/]", title, _size(must), _size(is_))
    console.print()
    console.print(_picture(found.counts))
    console.print(f"{expected.late_count} views came too late to be counted, and are in Parquet only.", highlight=False)
    console.print(table)
    for title, must, is_ in rows:
        if isinstance(must, Counter) and isinstance(is_, Counter) and must != is_:
            console.print(f"{title}: missing {_some(must - is_)}, too many {_some(is_ - must)}", highlight=False)
    return all(must == is_ for _, must, is_ in rows)


def _size(value: object) -> str:
    return f"{sum(value.values()):,}" if isinstance(value, Counter) else f"{value:,}" if value is not None else "none"


def _some(values: Counter[object]) -> str:
    return f"{sum(values.values())} (such as {list(values)[:3]})"


def _picture(counts: Counts) -> Table:
    countries: Counter[str] = Counter()
    for (_, country), views in counts.items():
        countries[country] += views
    table = Table(title="Views by country, from the output topic", title_justify="left", box=None, show_header=False)
    most = max(countries.values(), default=1)
    for country, views in countries.most_common():
        table.add_row(country, f"{views:,}", Bar(most, 0, views, width=40, color="green"))
    return table
