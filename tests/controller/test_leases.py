"""Leases of brokers: silence, pauses of the controller itself, and the end of a controlled shutdown."""

import pytest

from rookery.controller.leases import Leases


@pytest.fixture
def leases() -> Leases:
    made = Leases(8.0)
    made.start([1, 2], now=100.0)
    return made


def test_a_new_controller_grants_fresh_leases(leases: Leases) -> None:
    assert leases.is_alive(1, 107.9)
    assert not leases.is_alive(1, 108.0)
    assert not leases.is_alive(3, 100.0), "it was fenced, and not heard of"


def check_until(leases: Leases, end: float, *, start: float = 100.0) -> int | None:
    """Look for lost leases as often as the controller does; returns the last result."""
    found, now = None, start
    while now <= end:
        found = leases.find_lost([1, 2], now)
        now += leases.check_interval_s
    return found


def test_the_longest_silence_is_found_first(leases: Leases) -> None:
    leases.touch(1, 103.0)
    assert check_until(leases, 107.0) is None
    assert check_until(leases, 108.0, start=108.0) == 2
    leases.end(2)
    leases.touch(2, 108.5)
    assert check_until(leases, 110.0, start=109.0) is None
    assert check_until(leases, 111.0, start=111.0) == 1


def test_a_pause_of_the_controller_does_not_count(leases: Leases) -> None:
    """Else it would fence all brokers when it continues, before it reads their heartbeats."""
    assert check_until(leases, 103.0) is None
    assert leases.find_lost([1, 2], 500.0) is None, "it stood still for 396 s"
    assert leases.is_alive(1, 503.0)
    assert check_until(leases, 505.0, start=501.0) == 1, "the silence before the pause counts"


def test_heard_since(leases: Leases) -> None:
    assert not leases.heard_since(1, 100.0)
    leases.touch(1, 101.0)
    assert leases.heard_since(1, 100.0)
    assert not leases.heard_since(9, 100.0)


def test_a_shutdown_waits_for_the_other_brokers(leases: Leases) -> None:
    assert not leases.may_shut_down(1, [2, 3]), "it did not begin"
    leases.begin_shutdown(1, 50)
    leases.begin_shutdown(1, 99)
    leases.note_applied(2, 49)
    leases.note_applied(3, 60)
    assert not leases.may_shut_down(1, [1, 2, 3])
    leases.note_applied(2, 50)
    assert leases.may_shut_down(1, [1, 2, 3])
    assert not leases.may_shut_down(1, [2, 3, 4]), "4 has reported nothing"
    leases.start([1, 2, 3], 200.0)
    assert not leases.may_shut_down(1, [2, 3]), "the state is that of one controller"
