"""What must come out of the pipeline, computed a second time in a few lines of plain Python. Pure."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from demo.story.activity import NOBODY, Act

# (start of the minute, country): how many views.
Counts = Counter[tuple[datetime, str]]
# (number of the view, page, country, referrer).
Enriched = tuple[int, str, str, str | None]


@dataclass(frozen=True)
class Expectation:
    counts: Counts
    enriched: Counter[Enriched]
    malformed: Counter[bytes]
    late_count: int

    def closed_before(self, minute: datetime) -> int:
        """How many records the windows before it make."""
        return sum(1 for begin, _ in self.counts if begin < minute)


def expect(acts: list[Act]) -> Expectation:
    """A view belongs to the country that its user has in its act; late ones are not counted, but kept."""
    countries: dict[str, str] = {}
    counts: Counts = Counter()
    enriched: Counter[Enriched] = Counter()
    for act in acts:
        countries |= {name: person["country"] for name, person in act.users.items()}
        for view in act.views:
            country = countries.get(view.user, NOBODY)
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
    """Where the window begins that it falls into."""
    return at.replace(second=0, microsecond=0)
