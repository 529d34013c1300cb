"""The events of the audit log, their JSON, and the queue that bounds what they cost. Pure.

An event has the form of CloudEvents, with the fields of Confluent's audit log in `data`, so that tools for that log can
read it. Secrets are never part of an event: neither passwords nor tokens nor values of settings that may hold them.

Equal events are one line: the first is written at once; those that follow within an interval are counted and written as
one more line, with their `count`, when it ends. Events that find the queue full are dropped and counted, and a line
says how many.
"""

import json
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import field
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from rookery.base.types import TimestampMs
from rookery.base.values import value_class

# The equal events that are counted at the same time. Others are written one by one until an interval ends.
REPEATS_MAX: Final = 10_000
_TYPE_PREFIX: Final = "rookery.audit/"


class AuditKind(Enum):
    AUTHORIZATION = "authorization"
    AUTHENTICATION = "authentication"
    CHANGE = "change"
    DROPPED = "dropped"


@value_class(kw_only=True)
class AuditEvent:
    """What a client did or tried. `method` is the request, `granted` whether it was allowed or successful.

    `details` are further fields of the line, and must not contain secrets.
    """

    kind: AuditKind
    method: str
    granted: bool
    principal: str = ""
    host: str = ""
    listener: str = ""
    client_id: str | None = None
    correlation_id: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@value_class
class AuditLine:
    """An event that is to be written: when it was noted, and how many equal events it stands for."""

    event: AuditEvent
    time_ms: TimestampMs
    count: int = 1


class _Repeats:
    __slots__ = ("count", "event", "since_ms")

    def __init__(self, event: AuditEvent, since_ms: TimestampMs) -> None:
        self.event = event
        self.since_ms = since_ms
        self.count = 0


class AuditQueue:
    """The events that are not written yet, at most `events_max`. Equal ones within `interval_ms` are one line."""

    def __init__(self, *, events_max: int, interval_ms: int) -> None:
        self._events_max = events_max
        self._interval_ms = interval_ms
        self._lines: deque[AuditLine] = deque()
        # In the order of `since_ms`.
        self._repeats: dict[Hashable, _Repeats] = {}
        self._dropped = 0
        self.dropped_total = 0

    def __len__(self) -> int:
        return len(self._lines)

    def is_repeat(self, key: Hashable) -> bool:
        """Count an event if an equal one, with the same key, was added within the interval; else it must be added."""
        found = self._repeats.get(key)
        if found is None:
            return False
        found.count += 1
        return True

    def add(self, key: Hashable | None, event: AuditEvent, now_ms: TimestampMs) -> None:
        """Add an event that is no repeat; None as key if later ones must not be counted as its repeats."""
        if key is not None and len(self._repeats) < REPEATS_MAX:
            self._repeats[key] = _Repeats(event, now_ms)
        self._put(AuditLine(event, now_ms))

    def _put(self, line: AuditLine) -> None:
        if len(self._lines) < self._events_max:
            self._lines.append(line)
        else:
            self._dropped += line.count
            self.dropped_total += line.count

    def take(self, now_ms: TimestampMs, lines_max: int) -> list[AuditLine]:
        """Remove and return the oldest lines, after those of equal events whose interval has ended were added."""
        while self._repeats:
            key = next(iter(self._repeats))
            repeats = self._repeats[key]
            if now_ms - repeats.since_ms < self._interval_ms:
                break
            del self._repeats[key]
            if repeats.count:
                self._put(AuditLine(repeats.event, now_ms, repeats.count))
        taken = [self._lines.popleft() for _ in range(min(lines_max, len(self._lines)))]
        if self._dropped:
            dropped = AuditEvent(
                kind=AuditKind.DROPPED, method="Audit", granted=False, details={"dropped": self._dropped}
            )
            taken.append(AuditLine(dropped, now_ms))
            self._dropped = 0
        return taken

    def put_back(self, lines: list[AuditLine]) -> None:
        """Return lines that could not be written to the front of the queue. The newest ones give way."""
        self._lines.extendleft(reversed(lines))
        while len(self._lines) > self._events_max:
            line = self._lines.pop()
            self._dropped += line.count
            self.dropped_total += line.count


class AuditFormat:
    """Turns lines into JSON. `source` is the node, `incarnation` makes the ids of its lines unique over restarts."""

    def __init__(self, *, cluster_id: str, node_id: int, incarnation: str) -> None:
        self._source = f"/clusters/{cluster_id}/nodes/{node_id}"
        self._incarnation = incarnation
        self._number = 0

    def encode(self, line: AuditLine) -> bytes:
        """Return one line of JSON, without the end of the line."""
        self._number += 1
        event = {
            "specversion": "1.0",
            "id": f"{self._incarnation}-{self._number}",
            "source": self._source,
            "type": _TYPE_PREFIX + line.event.kind.value,
            "time": _time(line.time_ms),
            "datacontenttype": "application/json",
            "data": _data(line),
        }
        return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def _time(time_ms: TimestampMs) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _data(line: AuditLine) -> dict[str, Any]:
    event = line.event
    if event.kind is AuditKind.DROPPED:
        return dict(event.details)
    data: dict[str, Any] = {
        "methodName": event.method,
        "authenticationInfo": {"principal": event.principal},
        "requestMetadata": {"clientAddress": event.host, "listener": event.listener},
        **event.details,
    }
    if event.correlation_id is not None:
        data["request"] = {"clientId": event.client_id, "correlationId": event.correlation_id}
    if event.kind is not AuditKind.AUTHORIZATION:
        data["result"] = {"status": "SUCCESS" if event.granted else "FAILURE"}
    if line.count > 1:
        data["count"] = line.count
    return data
