from rookery.dead_letters.letters import Selection
from rookery.dead_letters.planning import Planner, Send, Skip, Wish
from rookery.dead_letters.standard import ATTEMPT, Origin
from tests.dead_letters.making import ORIGIN, failure, letter

COUNTS = {"orders": 3, "repaired": 1, "orders.dlq": 1}
ALL = Wish("orders.dlq", Selection())


def test_a_dead_letter_goes_back_as_it_was() -> None:
    own = (("trace", b"1"), ("empty", None))
    assert Planner(ALL).decide(letter(failure(), own=own), COUNTS) == Send(
        "orders", 1, (*own, (ATTEMPT, b"2")), ORIGIN.timestamp_ms or 0
    )


def test_in_another_topic_the_key_decides() -> None:
    wish = ALL._replace(to="repaired")
    assert Planner(wish).decide(letter(failure()), COUNTS) == Send("repaired", None, ((ATTEMPT, b"2"),), 500)
    assert Planner(wish).decide(letter(), COUNTS) == Send("repaired", None, ((ATTEMPT, b"2"),), 1000)


def test_a_partition_that_is_gone_is_left_to_the_key() -> None:
    step = Planner(ALL).decide(letter(failure(Origin("orders", 3, 0))), COUNTS)
    assert step == Send("orders", None, ((ATTEMPT, b"2"),), 1000)


def test_what_is_tried_too_often_stays() -> None:
    planner = Planner(ALL)
    second = planner.decide(letter(failure(attempt=2)), COUNTS)
    assert isinstance(second, Send)
    assert second.headers == ((ATTEMPT, b"3"),)
    assert Planner(ALL).decide(letter(failure(attempt=3)), COUNTS) is Skip.TOO_OFTEN
    assert isinstance(Planner(ALL._replace(max_attempts=4)).decide(letter(failure(attempt=3)), COUNTS), Send)


def test_an_origin_is_sent_once() -> None:
    planner = Planner(ALL)
    planner.recall(letter(failure(Origin("orders", 1, 1)), offset=0))
    assert planner.decide(letter(failure(Origin("orders", 1, 1)), partition=1, offset=9), COUNTS) is Skip.DUPLICATE
    assert isinstance(planner.decide(letter(failure(), offset=1), COUNTS), Send)
    assert planner.decide(letter(failure(), offset=2), COUNTS) is Skip.DUPLICATE


def test_what_is_left_out_may_be_sent_later() -> None:
    planner = Planner(ALL._replace(selection=Selection(stages=frozenset({"TRANSFORMATION"}))))
    assert planner.decide(letter(failure()), COUNTS) is Skip.NOT_SELECTED
    assert isinstance(planner.decide(letter(failure(stage="TRANSFORMATION"), offset=1), COUNTS), Send)


def test_reasons_to_leave_out() -> None:
    planner = Planner(ALL)
    assert planner.decide(letter(), COUNTS) is Skip.NO_ORIGIN
    assert planner.decide(letter(failure(Origin("orders.dlq", 0, 1))), COUNTS) is Skip.INTO_ITSELF
    assert planner.decide(letter(failure(Origin("gone", 0, 1))), COUNTS) is Skip.NO_TOPIC
    assert [skip for skip in Skip if skip.is_over] == [Skip.DONE_BEFORE, Skip.DUPLICATE]
