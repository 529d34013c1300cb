"""The search for hanging transactions, against a scripted broker."""

from collections.abc import Mapping

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.admin import Admin, OpenTransaction, Scope
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.client.admin.scripted import in_turn, run_with
from tests.client.admin.test_transactions import T0, T1, active, described, listed, producer, producing
from tests.client.fake_broker import NODE_ID, Responder

NOW_MS = 1_700_000_000_000
LONG_MS = 900_000


def search(answers: Mapping[ApiKey, Responder]) -> tuple[list[OpenTransaction], list[int]]:
    async def work(admin: Admin) -> tuple[list[OpenTransaction], list[int]]:
        progress: list[int] = []
        partitions = await admin.partitions_in(Scope())
        hanging = await admin.find_hanging_transactions(
            partitions, longer_than_ms=LONG_MS, now_ms=NOW_MS, on_progress=progress.append
        )
        return hanging, progress

    result, _ = run_with(answers, work, (2,))
    return result


LATE, IN_TIME = NOW_MS - LONG_MS - 1, NOW_MS - LONG_MS


@pytest.mark.parametrize(
    ("listing", "description", "hangs"),
    [
        (listed(), described(), True),
        (listed(("x", 9)), described(code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND), True),
        (listed(("x", 9)), described(1), True),
        (listed(("x", 9)), described(state="CompleteCommit"), True),
        (listed(("x", 9)), described(0, 1), False),
        (listed(("x", 9)), described(0, state="PrepareAbort"), False),
    ],
)
def test_a_transaction_that_no_coordinator_will_end_hangs(
    listing: Responder, description: Responder, hangs: bool
) -> None:
    open_at_0 = producing({0: [producer(9, start=4, last_ms=LATE)]})
    answers = {
        ApiKey.DESCRIBE_PRODUCERS: open_at_0,
        ApiKey.LIST_TRANSACTIONS: listing,
        ApiKey.DESCRIBE_TRANSACTIONS: description,
    }
    hanging, progress = search(answers)
    assert hanging == ([OpenTransaction(T0, active(9, 4, last_ms=LATE))] if hangs else [])
    assert progress == [2], "the partition without a leader is not searched"


@pytest.mark.parametrize("seen", [producer(9, start=4, last_ms=IN_TIME), producer(9, last_ms=LATE)])
def test_a_transaction_that_may_still_be_active_is_not_suspect(seen: Message) -> None:
    hanging, _ = search({ApiKey.DESCRIBE_PRODUCERS: producing({0: [seen]})})
    assert hanging == [], "and no coordinator was queried"


def test_a_transaction_that_ends_during_the_search_does_not_hang() -> None:
    once = producing({0: [producer(9, start=4, last_ms=LATE)]})
    answers = {ApiKey.DESCRIBE_PRODUCERS: in_turn(once, producing({})), ApiKey.LIST_TRANSACTIONS: listed()}
    assert search(answers)[0] == []


@pytest.mark.parametrize(
    ("scope", "partitions"),
    [
        (Scope(), [T0, T1]),
        (Scope(topic="t"), [T0, T1]),
        (Scope(topic="t", partition=1), [T1]),
        (Scope(node=NODE_ID), [T0, T1, TopicPartition("t", 2)]),
    ],
)
def test_scopes(scope: Scope, partitions: list[TopicPartition]) -> None:
    found, _ = run_with({}, lambda admin: admin.partitions_in(scope), (2,))
    assert found == partitions


@pytest.mark.parametrize(
    ("scope", "code"),
    [
        (Scope(topic="missing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (Scope(topic="t", partition=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (Scope(node=NODE_ID + 1), ErrorCode.BROKER_NOT_AVAILABLE),
    ],
)
def test_scopes_that_do_not_exist(scope: Scope, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as caught:
        run_with({}, lambda admin: admin.partitions_in(scope), (2,))
    assert caught.value.code is code
