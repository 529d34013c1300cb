from typing import Any

from rookery.dead_letters.letters import Selection
from rookery.dead_letters.plan import Planner, RedriveRequest, Send, Skip, Target
from rookery.dead_letters.standard import ATTEMPT, Origin
from tests.dead_letters.samples import ORIGIN, failure, letter

TARGETS = {"orders": Target(3), "repaired": Target(1), "orders.dlq": Target(1), "brief": Target(1, retention_ms=100)}
NOW_MS = 5000
ALL = RedriveRequest("orders.dlq", Selection())


def test_a_dead_letter_goes_back_as_it_was() -> None:
    own = (("trace", b"1"), ("empty", None))
    assert Planner(ALL).decide(letter(failure(), own=own), TARGETS, NOW_MS) == Send(
        "orders", 1, (*own, (ATTEMPT, b"2")), ORIGIN.timestamp_ms or 0
    )


def test_in_another_topic_the_key_chooses_the_partition() -> None:
    request = ALL._replace(to="repaired")
    assert Planner(request).decide(letter(failure()), TARGETS, NOW_MS) == Send(
        "repaired", None, ((ATTEMPT, b"2"),), 500
    )
    assert Planner(request).decide(letter(), TARGETS, NOW_MS) == Send("repaired", None, ((ATTEMPT, b"2"),), 1000)


def test_the_key_chooses_if_the_partition_no_longer_exists() -> None:
    step = Planner(ALL).decide(letter(failure(Origin("orders", 3, 0))), TARGETS, NOW_MS)
    assert step == Send("orders", None, ((ATTEMPT, b"2"),), 1000)


def test_a_record_at_max_attempts_is_skipped() -> None:
    planner = Planner(ALL)
    second = planner.decide(letter(failure(attempt=2)), TARGETS, NOW_MS)
    assert isinstance(second, Send)
    assert second.headers == ((ATTEMPT, b"3"),)
    assert Planner(ALL).decide(letter(failure(attempt=3)), TARGETS, NOW_MS) is Skip.TOO_OFTEN
    assert isinstance(Planner(ALL._replace(max_attempts=4)).decide(letter(failure(attempt=3)), TARGETS, NOW_MS), Send)


def test_an_origin_is_sent_once() -> None:
    planner = Planner(ALL)
    planner.mark_sent(letter(failure(Origin("orders", 1, 1)), offset=0))
    assert (
        planner.decide(letter(failure(Origin("orders", 1, 1)), partition=1, offset=9), TARGETS, NOW_MS)
        is Skip.DUPLICATE
    )
    assert isinstance(planner.decide(letter(failure(), offset=1), TARGETS, NOW_MS), Send)
    assert planner.decide(letter(failure(), offset=2), TARGETS, NOW_MS) is Skip.DUPLICATE


def test_an_unselected_letter_does_not_count_as_sent() -> None:
    planner = Planner(ALL._replace(selection=Selection(stages=frozenset({"TRANSFORMATION"}))))
    assert planner.decide(letter(failure()), TARGETS, NOW_MS) is Skip.NOT_SELECTED
    assert isinstance(planner.decide(letter(failure(stage="TRANSFORMATION"), offset=1), TARGETS, NOW_MS), Send)


def test_reasons_to_skip() -> None:
    planner = Planner(ALL)
    assert planner.decide(letter(), TARGETS, NOW_MS) is Skip.NO_ORIGIN
    assert planner.decide(letter(failure(None)), TARGETS, NOW_MS) is Skip.NO_ORIGIN
    assert planner.decide(letter(failure(Origin("orders.dlq", 0, 1))), TARGETS, NOW_MS) is Skip.INTO_ITSELF
    assert planner.decide(letter(failure(Origin("gone", 0, 1))), TARGETS, NOW_MS) is Skip.NO_TOPIC
    assert [skip for skip in Skip if skip.is_settled] == [Skip.DONE_BEFORE, Skip.DUPLICATE]
    assert not Skip.TOO_OFTEN.is_failure
    assert Skip.NO_TOPIC.is_failure


def test_a_recreated_topic_reuses_offsets_for_other_records() -> None:
    planner = Planner(ALL)
    planner.mark_sent(letter(failure(), offset=0))
    assert planner.decide(letter(failure(), offset=1), TARGETS, NOW_MS) is Skip.DUPLICATE
    assert isinstance(planner.decide(letter(failure(ORIGIN._replace(timestamp_ms=501))), TARGETS, NOW_MS), Send)
    # Connect's headers do not contain the timestamp.
    timeless = failure(ORIGIN._replace(timestamp_ms=None))
    assert isinstance(planner.decide(letter(timeless), TARGETS, NOW_MS), Send)
    assert planner.decide(letter(timeless, offset=1), TARGETS, NOW_MS) is Skip.DUPLICATE
    assert isinstance(planner.decide(letter(timeless, value=b"other"), TARGETS, NOW_MS), Send)


def test_a_record_older_than_the_retention_is_skipped() -> None:
    def decide(time_ms: int, **changes: Any) -> Send | Skip:
        origin = Origin("brief", 0, 1, time_ms)
        return Planner(ALL._replace(**changes)).decide(letter(failure(origin)), TARGETS, NOW_MS)

    assert decide(NOW_MS - 101) is Skip.TOO_OLD
    assert decide(NOW_MS - 100) == Send("brief", 0, ((ATTEMPT, b"2"),), NOW_MS - 100)
    assert decide(NOW_MS - 101, now=True) == Send("brief", 0, ((ATTEMPT, b"2"),), NOW_MS)
    assert isinstance(decide(0, to="repaired"), Send)
