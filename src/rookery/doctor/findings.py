"""Checks and what they find. Pure: a check is a function of a snapshot, and a row of the table in `checks`."""

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum

from rookery.base.values import value_class
from rookery.doctor.snapshot import ClusterSnapshot

_SOME = 3


class Severity(IntEnum):
    """NOTE: worth knowing. WARNING: will hurt when something else fails. ERROR: hurts now."""

    NOTE = 0
    WARNING = 1
    ERROR = 2

    @property
    def word(self) -> str:
        return self.name.lower()


@value_class(kw_only=True)
class Seen:
    """What a check found about one subject (a topic, a broker, a group).

    `command` mends it, or shows what to mend; empty if no command of Rookery does. `advice` says what else to do.
    """

    subject: str
    text: str
    command: str = ""
    advice: str = ""
    severity: Severity | None = None


@value_class(kw_only=True)
class Check:
    """A row of the table. `severity` is that of its findings unless they have their own."""

    id: str
    severity: Severity
    title: str
    why: str
    run: Callable[[ClusterSnapshot], Iterable[Seen]]


@value_class(kw_only=True)
class Finding:
    check: Check
    severity: Severity
    subject: str
    seen: str
    command: str
    advice: str


def examine(snapshot: ClusterSnapshot, checks: Sequence[Check]) -> list[Finding]:
    """Run `checks`; return what they found, the worst first."""
    found = [
        Finding(
            check=check,
            severity=check.severity if seen.severity is None else seen.severity,
            subject=seen.subject,
            seen=seen.text,
            command=seen.command,
            advice=seen.advice,
        )
        for check in checks
        for seen in check.run(snapshot)
    ]
    return sorted(found, key=lambda finding: -finding.severity)


def some(items: Iterable[object]) -> str:
    """Return the first items as text: `a, b, c and 4 more`."""
    texts = [str(item) for item in items]
    rest = f" and {len(texts) - _SOME} more" if len(texts) > _SOME else ""
    return ", ".join(texts[:_SOME]) + rest
