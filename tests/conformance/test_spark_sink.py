"""The basis of Spark's sink, on Rookery and on Apache Kafka.

It ends transactions that other producers prepared, in both protocols, and drivers die and come back
(tests/spark/sink_harness.py).
"""

from collections.abc import Iterator

import pytest

from rookery.base.codes import UpgradeType
from rookery.client.admin import EndOutcome, NewTopic, PreparedTransaction
from rookery.client.sync import Admin, Producer
from rookery.spark.sink.committer import Committer
from tests.conformance import brokers
from tests.spark.sink.sink_harness import POINTS, Incident, Kind, Script, play
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
_SHORT_MS = 1000


class RunningBroker:
    """The part of an embedded broker that the harness needs for drivers that die."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._common = {"bootstrap.servers": bootstrap_servers}

    def create_topic(self, name: str, *, partitions: int = 1) -> None:
        with self.admin() as admin:
            admin.create_topics([NewTopic(name, partitions, 1)])[0].check()

    def admin(self) -> Admin:
        return Admin(self._common)

    def prepare(self, name: str, timeout_ms: int = 60_000) -> PreparedTransaction:
        config = {**self._common, "transactional.id": name, "transaction.timeout.ms": timeout_ms}
        with Producer[bytes, bytes](config) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(name, b"x")
            return producer.prepare_transaction()


@pytest.fixture(scope="module", params=[(name, level) for name in ("rookery", "kafka") for level in (2, 1)], ids=str)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    name, level = request.param
    for address in brokers.start(name, tmp_path_factory.mktemp(name)):
        made = RunningBroker(address)
        with made.admin() as admin:
            if level == 1:
                admin.update_features({"transaction.version": level}, UpgradeType.SAFE_DOWNGRADE)
        yield made


@pytest.mark.java
def test_outcomes(running: RunningBroker) -> None:
    name = "outcomes"
    running.create_topic(name)
    done, otherwise, fenced = EndOutcome.DONE, EndOutcome.ENDED_OTHERWISE, EndOutcome.FENCED
    with running.admin() as admin:

        def ends(prepared: PreparedTransaction, *commits: bool) -> list[EndOutcome]:
            return [admin.end_transaction(prepared, commit=commit) for commit in commits]

        assert ends(running.prepare(name), True, True, False, True) == [done, done, otherwise, done]
        assert ends(running.prepare(name), False, False, True, False) == [done, done, otherwise, done]
        late = running.prepare(name, _SHORT_MS)
        eventually(lambda: admin.describe_transactions([name])[0].state == "CompleteAbort", "the time-out")
        assert ends(late, True, False) == ([otherwise, done] if late.is_v2 else [fenced, fenced])
        older, newer = running.prepare(name), running.prepare(name)
        assert ends(older, True, False) == [fenced, fenced]
        assert ends(newer, True) == [done]
        assert ends(PreparedTransaction("unknown", 1, 0), True) == [EndOutcome.UNKNOWN]


@pytest.mark.java
@pytest.mark.parametrize("point", POINTS, ids=str)
@pytest.mark.parametrize("kind", [Kind.KILL, Kind.FAIL, Kind.ZOMBIE], ids=lambda kind: kind.name.lower())
def test_drivers_stop_at_each_step(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch, kind: Kind, point: tuple[str, int]
) -> None:
    monkeypatch.setattr(Committer, "concurrent_requests", 1)
    step, occurrence = point
    play(running, Script([Incident(kind, step, occurrence=occurrence)], task_counts=(3, 2)))
