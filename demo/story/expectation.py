"""Computes the expected output of the pipeline in a few lines of plain Python. Pure."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from demo.story.activity import UNKNOWN_COUNTRY, Act

# The number of views by (start of the minute, country).
Counts = Counter[tuple[datetime, str]]
# (Number of the view, page, country, referrer).
Enriched = tuple[int, str, str, str | None]


@dataclass(frozen=True)
class Expectation:
    counts: Counts
    enriched: Counter[Enriched]
    malformed: Counter[bytes]
    late_count: int

    def closed_before(self, minute: datetime) -> int:
        """Return how many records the windows before `minute` produce."""
        return sum(1 for begin, _ in self.counts if begin < minute)


def expect(acts: list[Act]) -> Expectation:
    """Compute the output: a view has its user's country of the same act; late views are stored, but not counted."""
    countries: dict[str, str] = {}
    counts: Counts = Counter()
    enriched: Counter[Enriched] = Counter()
    for act in acts:
        countries |= {name: person["country"] for name, person in act.users.items()}
        for view in act.views:
            country = countries.get(view.user, UNKNOWN_COUNTRY)
            enriched[(view.view, view.page, country, view.referrer)] += 1
            if not view.is_late and act is not acts[-1]:
                counts[(minute_of(view.at), country)] += 1
    return Expectation(
        counts,
        enriched,
        Counter(some for act in acts for some in act.malformed),
        sum(view.is_late for act in acts for view in act.views),
    )


def minute_of(at: datetime) -> datetime:
    """Return the start of the window that contains `at`."""
    return at.replace(second=0, microsecond=0)
