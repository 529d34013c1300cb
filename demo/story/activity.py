"""Generates the activity on a website from a seed: page views, some malformed, some late, some with a newer schema.

There are three acts. In the *morning*, all views arrive in time. In the *afternoon*, some users have moved to another
country, newer programs write a field `referrer`, and phones that had no network send views of the morning, too late to
be counted. One view of the *next day* closes all windows. Pure: the same seed gives the same activity.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

VIEW: Final = {
    "type": "record",
    "name": "PageView",
    "namespace": "website",
    "fields": [
        {"name": "view", "type": "long"},
        {"name": "user", "type": "string"},
        {"name": "page", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
REFERRER: Final = {"name": "referrer", "type": ["null", "string"], "default": None}
NEWER_VIEW: Final[dict[str, Any]] = {**VIEW, "fields": [*VIEW["fields"], REFERRER]}
USER: Final = {
    "type": "record",
    "name": "User",
    "namespace": "website",
    "fields": [{"name": "name", "type": "string"}, {"name": "country", "type": "string"}],
}

COUNTRIES: Final = ("Czechia", "France", "Kenya", "Japan", "Peru")
PAGES: Final = ("/", "/news", "/shop", "/about")
UNKNOWN_COUNTRY: Final = "unknown"

MORNING: Final = datetime(2026, 3, 14, 9, 0, tzinfo=UTC)
ACT_LENGTH: Final = timedelta(minutes=5)
# Views are out of order by less than the delay of the pipeline's watermark.
DISORDER: Final = timedelta(seconds=5)
_NEWER_SHARE: Final = 0.4
_MALFORMED_SHARE: Final = 0.01
_LATE_SHARE: Final = 0.01
_UNKNOWN_USER_SHARE: Final = 0.02


@dataclass(frozen=True)
class View:
    view: int
    user: str
    page: str
    at: datetime
    referrer: str | None = None
    is_newer: bool = False
    is_late: bool = False

    def fields(self) -> dict[str, Any]:
        """Return the fields of the Avro record."""
        older = {"view": self.view, "user": self.user, "page": self.page, "at": self.at}
        return older | {"referrer": self.referrer} if self.is_newer else older


@dataclass(frozen=True)
class Act:
    """Records that are sent together: first users, then views and malformed records."""

    name: str
    users: dict[str, dict[str, str]]
    views: list[View]
    malformed: list[bytes]


def acts(seed: int, *, views: int, users: int) -> list[Act]:
    """Return morning, afternoon and next day, with `views` views in each of the first two."""
    choose = random.Random(seed)
    people = {f"user-{number}": _person(number, choose) for number in range(users)}
    moved = {name: {**person, "country": choose.choice(COUNTRIES)} for name, person in list(people.items())[::3]}
    afternoon = MORNING + ACT_LENGTH
    closing = View(2 * views, "user-0", "/", MORNING + timedelta(days=1))
    return [
        Act("morning", people, list(_views(choose, 0, views, users, MORNING)), list(_malformed(choose, views))),
        Act(
            "afternoon",
            moved,
            list(_views(choose, views, views, users, afternoon, afternoon=True)),
            list(_malformed(choose, views)),
        ),
        Act("next day", {}, [closing], []),
    ]


def _person(number: int, choose: random.Random) -> dict[str, str]:
    return {"name": f"Person {number}", "country": choose.choice(COUNTRIES)}


def _views(
    choose: random.Random, first: int, count: int, users: int, begin: datetime, *, afternoon: bool = False
) -> Iterator[View]:
    for number in range(count):
        # The last view of an act has no disorder: it closes the windows before it, so that late views are surely late.
        at = begin + ACT_LENGTH * ((number + 1) / count) - DISORDER * choose.random() * (number + 1 < count)
        is_late = afternoon and choose.random() < _LATE_SHARE
        is_newer = afternoon and choose.random() < _NEWER_SHARE
        known = choose.random() >= _UNKNOWN_USER_SHARE
        yield View(
            view=first + number,
            user=f"user-{choose.randrange(users)}" if known else f"unknown-{number}",
            page=choose.choice(PAGES),
            at=_whole_milliseconds(MORNING + timedelta(minutes=1) * choose.random() if is_late else at),
            referrer=choose.choice((None, "https://example.org")) if is_newer else None,
            is_newer=is_newer,
            is_late=is_late,
        )


def _whole_milliseconds(at: datetime) -> datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def _malformed(choose: random.Random, views: int) -> Iterator[bytes]:
    """Yield texts, records with an unknown schema id, and truncated records, in turn."""
    for number in range(round(views * _MALFORMED_SHARE)):
        yield (
            b"GET /favicon.ico",
            b"\x00\x00\x01\x86\x9f" + choose.randbytes(12),
            b"\x00\x00\x00\x00\x01\x02",
        )[number % 3]
