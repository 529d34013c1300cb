"""Rates of new connections: delays behind a listener's gate, and addresses that are turned away."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.quota_entities import DEFAULT, QuotaEntity
from rookery.quotas.connections import UNLIMITED_RATE, ConnectionRates
from rookery.telemetry.sensors import Windows

WINDOWS = Windows(11, 1.0)


def rates(broker: int = UNLIMITED_RATE, protected: str | None = None, **listeners: int) -> ConnectionRates:
    made = ConnectionRates(WINDOWS, protected=protected)
    made.configure(broker, listeners)
    return made


def test_without_rates_all_are_accepted() -> None:
    made = rates()
    assert all(made.admit("A", "10.0.0.1", 0.0) == (0.0, None) for _ in range(1000))


def test_connections_beyond_the_rate_wait_behind_each_other() -> None:
    made = rates(broker=10)
    # Ten seconds' worth at once, then one every tenth of a second.
    delays = [made.admit("A", "10.0.0.1", 0.0).delay_s for _ in range(110)]
    assert delays[:100] == [0.0] * 100
    assert delays[100:] == pytest.approx([0.1 * (1 + index) for index in range(10)], abs=0.02)
    assert made.admit("A", "10.0.0.1", 60.0).delay_s == 0


@given(st.lists(st.tuples(st.integers(0, 2_000), st.sampled_from("AB")), max_size=300))
def test_the_rate_holds_over_any_time(arrivals: list[tuple[int, str]]) -> None:
    made, now_s = rates(A=5, B=5), 0.0
    accepted: dict[str, list[float]] = {"A": [], "B": []}
    for pause_ms, listener in arrivals:
        now_s += pause_ms / 1000
        delay_s, reason = made.admit(listener, "10.0.0.1", now_s)
        if reason is None:
            accepted[listener].append(now_s + delay_s)
    for times in accepted.values():
        assert times == sorted(times)
        for count, at_s in enumerate(times, start=1):
            assert count <= 5 * (at_s - times[0] + 11) + 1


def test_a_delay_is_at_most_one_window_and_a_long_queue_is_closed() -> None:
    made = rates(A=1)
    delays = [made.admit("A", "10.0.0.1", 0.0) for _ in range(60)]
    steps = [later.delay_s - earlier.delay_s for earlier, later in pairwise(delays[:40])]
    assert max(steps) <= 1.0
    assert all(admission.reason is None for admission in delays[:40])
    assert delays[-1].reason is not None
    # Those that were closed do not count.
    assert made.admit("A", "10.0.0.1", 31.0).reason is None


def test_the_protected_listener_has_no_part_in_the_rate_of_the_broker() -> None:
    made = rates(broker=1, protected="INTERNAL")
    assert all(made.admit("INTERNAL", "10.0.0.1", 0.0).delay_s == 0 for _ in range(100))
    assert made.admit("CLIENTS", "10.0.0.1", 0.0).delay_s == 0
    for _ in range(10):
        made.admit("CLIENTS", "10.0.0.1", 0.0)
    assert made.admit("CLIENTS", "10.0.0.1", 0.0).delay_s > 0


def test_an_address_beyond_its_rate_is_turned_away_and_others_are_not() -> None:
    made = rates()
    made.configure_addresses(
        {
            QuotaEntity(ip="10.0.0.1"): {"connection_creation_rate": 1.0},
            QuotaEntity(ip="::0001"): {"connection_creation_rate": 1.0},
            QuotaEntity(ip=DEFAULT): {"connection_creation_rate": 2.0},
            QuotaEntity(user="alice"): {"producer_byte_rate": 1.0},
        }
    )
    for host, count in (("10.0.0.1", 10), ("::1", 10), ("10.0.0.2", 20)):
        admissions = [made.admit("A", host, 0.0) for _ in range(count + 5)]
        assert [each.reason is None for each in admissions] == [True] * count + [False] * 5
        # Refused connections are not counted: the delay does not grow.
        assert {each.delay_s for each in admissions[count:]} == {0.5 if count == 20 else 1.0}
    assert made.admit("A", "10.0.0.1", 11.5).reason is None
    made.configure_addresses({})
    assert made.admit("A", "10.0.0.1", 11.5) == (0.0, None)


def test_a_refused_connection_does_not_count_in_the_rate_of_its_listener() -> None:
    made = rates(A=10)
    made.configure_addresses({QuotaEntity(ip="10.0.0.1"): {"connection_creation_rate": 1.0}})
    for _ in range(500):
        made.admit("A", "10.0.0.1", 0.0)
    assert made.admit("A", "10.0.0.2", 0.0) == (0.0, None)
