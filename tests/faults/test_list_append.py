"""Rookery tears no committed transaction of a classic client; the number for Apache Kafka is printed for comparison.

`make conformance` prints a line for each. `ROOKERY_LIST_APPEND_KILLS` is how often the broker is killed.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.systems import ApacheKafka, Rookery
from tests.conformance.brokers import JARS
from tests.faults.bank import Audit, Seen, Transfer, postings
from tests.faults.list_append import KILL, ListAppend

SEED = 18
KILLS = int(os.environ.get("ROOKERY_LIST_APPEND_KILLS", "40"))
KAFKA_KILLS = max(1, KILLS // 4)
# A batch is acknowledged when it is on disk: most kills happen between the write and the acknowledgement.
SYNCED = {"log.flush.interval.messages": "1"}
LONG = (pytest.mark.long, pytest.mark.timeout(7_200))

RecordProperty = Callable[[str, object], None]


@pytest.mark.parametrize(
    ("kills", "settings"),
    [
        pytest.param(2, SYNCED, marks=pytest.mark.timeout(600), id="short"),
        pytest.param(KILLS, {}, marks=LONG, id="long"),
        pytest.param(KILLS, SYNCED, marks=LONG, id="synced"),
    ],
)
def test_rookery_tears_no_transaction(
    tmp_path: Path, kills: int, settings: dict[str, str], record_property: RecordProperty
) -> None:
    outcome = ListAppend(Rookery(), tmp_path, kills=kills, seed=SEED, settings=settings).run()
    record_property("figure", str(outcome))
    assert outcome.violations == ()
    assert outcome.torn == frozenset()
    assert outcome.faults[KILL] == kills
    assert outcome.committed > 0 < outcome.aborted


@pytest.mark.java
@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("settings", [{}, SYNCED], ids=["long", "synced"])
def test_how_many_apache_kafka_tears(tmp_path: Path, settings: dict[str, str], record_property: RecordProperty) -> None:
    """The number is only reported, for comparison with Rookery's."""
    outcome = ListAppend(ApacheKafka(JARS), tmp_path, kills=KAFKA_KILLS, seed=SEED, settings=settings).run()
    record_property("figure", str(outcome))
    assert outcome.committed > 0


def test_torn_transactions_are_found() -> None:
    transfers = [Transfer("x", 0, 1, 1), Transfer("y", 2, 3, 1)]
    whole, torn = list(postings("whole", transfers)), list(postings("torn", transfers))[1:]
    seen = [Seen(*posting.place, offset, posting) for offset, posting in enumerate([*whole, *torn])]
    audit = Audit(seen, {"committed": {"whole", "torn", "lost"}}, ())
    assert audit.torn() == {"torn", "lost"}
    assert audit.committed() == {"whole", "torn", "lost"}
