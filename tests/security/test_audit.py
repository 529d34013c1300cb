"""The queue of the audit log, which bounds its cost, and the form of its lines."""

import json

from rookery.security import audit
from rookery.security.audit import AuditEvent, AuditFormat, AuditKind, AuditLine, AuditQueue


def event(name: str = "a", kind: AuditKind = AuditKind.AUTHORIZATION) -> AuditEvent:
    return AuditEvent(kind=kind, method="kafka.Produce", granted=False, principal="User:alice", details={"name": name})


def note(queue: AuditQueue, name: str, now_ms: int) -> None:
    if not queue.is_repeat(name):
        queue.add(name, event(name), now_ms)


def lines(queue: AuditQueue, now_ms: int) -> list[tuple[str, int]]:
    return [(str(line.event.details.get("name")), line.count) for line in queue.take(now_ms, 100)]


def test_equal_events_are_two_lines_the_second_with_their_number() -> None:
    queue = AuditQueue(events_max=10, interval_ms=1000)
    for now_ms in (0, 10, 20):
        note(queue, "a", now_ms)
    note(queue, "b", 500)
    assert lines(queue, 600) == [("a", 1), ("b", 1)]
    note(queue, "a", 700)
    assert lines(queue, 999) == []
    assert lines(queue, 1000) == [("a", 3)]
    note(queue, "a", 1001)
    assert lines(queue, 1500) == [("a", 1)], "a new interval begins with a line"


def test_events_without_a_key_are_never_repeats() -> None:
    queue = AuditQueue(events_max=10, interval_ms=1000)
    for _ in range(3):
        queue.add(None, event(), 0)
    assert lines(queue, 0) == [("a", 1)] * 3


def test_a_full_queue_drops_and_says_how_many() -> None:
    queue = AuditQueue(events_max=2, interval_ms=1000)
    for name in "abcde":
        note(queue, name, 0)
    taken = queue.take(0, 100)
    assert [line.event.kind for line in taken] == [AuditKind.AUTHORIZATION] * 2 + [AuditKind.DROPPED]
    assert taken[-1].event.details == {"dropped": 3}
    assert queue.dropped_total == 3
    assert queue.take(0, 100) == []


def test_lines_that_were_not_written_come_first_again() -> None:
    queue = AuditQueue(events_max=2, interval_ms=1000)
    note(queue, "a", 0)
    failed = queue.take(0, 100)
    note(queue, "b", 0)
    note(queue, "c", 0)
    queue.put_back(failed)
    taken = queue.take(0, 100)
    assert [line.event.details.get("name") for line in taken[:2]] == ["a", "b"]
    assert taken[2].event.details == {"dropped": 1}


def test_the_number_of_counted_events_is_bounded(monkeypatch: object) -> None:
    queue = AuditQueue(events_max=100_000, interval_ms=1000)
    for number in range(audit.REPEATS_MAX + 100):
        note(queue, str(number), 0)
    assert len(queue._repeats) == audit.REPEATS_MAX


def test_a_line_is_a_cloud_event() -> None:
    form = AuditFormat(cluster_id="c", node_id=1, incarnation="i")
    noted = AuditEvent(
        kind=AuditKind.AUTHORIZATION,
        method="kafka.Produce",
        granted=False,
        principal="User:ä\n",
        host="10.0.0.1",
        listener="SASL_SSL",
        client_id="app",
        correlation_id=7,
        details={"resourceName": "t"},
    )
    line = form.encode(AuditLine(noted, 1_700_000_000_123, 5))
    assert b"\n" not in line
    assert json.loads(line) == {
        "specversion": "1.0",
        "id": "i-1",
        "source": "/clusters/c/nodes/1",
        "type": "rookery.audit/authorization",
        "time": "2023-11-14T22:13:20.123Z",
        "datacontenttype": "application/json",
        "data": {
            "methodName": "kafka.Produce",
            "authenticationInfo": {"principal": "User:ä\n"},
            "requestMetadata": {"clientAddress": "10.0.0.1", "listener": "SASL_SSL"},
            "resourceName": "t",
            "request": {"clientId": "app", "correlationId": 7},
            "count": 5,
        },
    }
    assert json.loads(form.encode(AuditLine(event(), 0)))["id"] == "i-2"


def test_a_name_that_is_no_text_does_not_break_the_log() -> None:
    form = AuditFormat(cluster_id="c", node_id=1, incarnation="i")
    assert form.encode(AuditLine(event("\udcff"), 0))
