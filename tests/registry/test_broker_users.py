"""Passwords that are checked at the brokers: what is remembered, for how long, and what is shared."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from rookery.base.clock import ManualClock
from rookery.base.errors import ApiError, ErrorCode
from rookery.registry import broker_users
from rookery.registry.broker_users import ACCEPTED_S, REJECTED_S, BrokerUsers
from rookery.registry.errors import RegistryError


class Brokers:
    """Counts the logins, and accepts the password "right"."""

    def __init__(self) -> None:
        self.logins: list[tuple[str, str]] = []
        self.failure: Exception | None = None
        self.go_on = threading.Event()
        self.go_on.set()

    def log_in(self, user: str, password: str) -> bool:
        assert self.go_on.wait(60)
        self.logins.append((user, password))
        if self.failure is not None:
            raise self.failure
        return password == "right"


def run(scenario: Callable[[Brokers, ManualClock, BrokerUsers], object]) -> None:
    async def main() -> None:
        brokers, clock = Brokers(), ManualClock()
        users = BrokerUsers(brokers.log_in, clock=clock)
        try:
            await scenario(brokers, clock, users)  # type: ignore[misc]  # a coroutine
        finally:
            users.close()

    asyncio.run(main())


def test_outcomes_are_remembered_until_they_expire() -> None:
    async def scenario(brokers: Brokers, clock: ManualClock, users: BrokerUsers) -> None:
        for _ in range(3):
            assert await users.accepts("alice", "right")
            assert not await users.accepts("alice", "wrong")
        assert brokers.logins == [("alice", "right"), ("alice", "wrong")]
        clock.advance(int(REJECTED_S * 1000))
        assert not await users.accepts("alice", "wrong")
        assert await users.accepts("alice", "right")
        assert len(brokers.logins) == 3
        clock.advance(int(ACCEPTED_S * 1000))
        assert await users.accepts("alice", "right")
        assert len(brokers.logins) == 4

    run(scenario)


def test_neither_user_nor_password_is_kept() -> None:
    async def scenario(brokers: Brokers, clock: ManualClock, users: BrokerUsers) -> None:
        assert await users.accepts("alice", "right")
        assert "right" not in repr(vars(users))
        assert "alice" not in repr(vars(users))

    run(scenario)


@pytest.mark.parametrize(("user", "password"), [("", "right"), ("alice", ""), ("a\0b", "right"), ("alice", "right\n")])
def test_what_no_broker_accepts_costs_no_login(user: str, password: str) -> None:
    async def scenario(brokers: Brokers, clock: ManualClock, users: BrokerUsers) -> None:
        assert not await users.accepts(user, password)
        assert brokers.logins == []

    run(scenario)


def test_concurrent_requests_share_a_login_which_survives_a_cancelled_one() -> None:
    async def scenario(brokers: Brokers, clock: ManualClock, users: BrokerUsers) -> None:
        brokers.go_on.clear()
        first, second = (asyncio.ensure_future(users.accepts("alice", "right")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        brokers.go_on.set()
        assert await second
        assert first.cancelled()
        assert len(brokers.logins) == 1

    run(scenario)


def test_brokers_that_cannot_tell_are_asked_again() -> None:
    async def scenario(brokers: Brokers, clock: ManualClock, users: BrokerUsers) -> None:
        brokers.failure = ApiError(ErrorCode.NETWORK_EXCEPTION, "no broker")
        with pytest.raises(RegistryError) as failed:
            await users.accepts("alice", "right")
        assert failed.value.status == 503
        brokers.failure = None
        assert await users.accepts("alice", "right")

    run(scenario)


def test_waiting_logins_and_remembered_outcomes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_users, "WAITING_MAX", 2)
    monkeypatch.setattr(broker_users, "OUTCOMES_MAX", 2)

    async def scenario(brokers: Brokers, clock: ManualClock, users: BrokerUsers) -> None:
        brokers.go_on.clear()
        waiting = [asyncio.ensure_future(users.accepts(f"user{number}", "right")) for number in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(RegistryError) as failed:
            await users.accepts("another", "right")
        assert failed.value.status == 503
        brokers.go_on.set()
        assert await asyncio.gather(*waiting) == [True, True]
        assert await users.accepts("another", "right")
        assert len(users._outcomes) == 2

    run(scenario)
