"""Loading, and the responses for tools."""

from dataclasses import replace

import pytest

from rookery.base.config import BrokerLayers
from rookery.base.errors import ErrorCode
from rookery.coordinators.txn.records import TransactionRecord
from rookery.coordinators.txn.results import ListedTransaction, ListFilters
from rookery.coordinators.txn.settings import TransactionSettings
from rookery.coordinators.txn.states import State
from rookery.coordinators.txn.transaction import LAST_EPOCH
from tests.coordinators.txn.stage import START_MS, TX, A, B, Stage
from tests.coordinators.txn.test_end_txn import EPOCH, NONE, PRODUCER_ID, stored


def test_settings_have_the_defaults_of_kafka() -> None:
    assert TransactionSettings.of(BrokerLayers()) == TransactionSettings()


def test_loading_sends_the_markers_of_prepared_transactions() -> None:
    stage = Stage(*(replace(stored(state), transactional_id=state.label) for state in State))
    assert [(each.transactional_id, each.committed) for each in stage.markers] == [
        ("PrepareCommit", True),
        ("PrepareAbort", False),
    ]
    assert all(each.partitions == {A, B} for each in stage.deliver())
    assert stage.shard.transactions["PrepareCommit"].state is State.COMPLETE_COMMIT


def test_a_compacted_log_has_gaps() -> None:
    stage = Stage(stored(State.PREPARE_COMMIT), stored(State.ONGOING, epoch=EPOCH + 1))
    assert stage.state() is State.ONGOING


def test_new_records_have_no_gaps() -> None:
    stage = Stage(stored(State.PREPARE_COMMIT))
    for record in (TransactionRecord(TX, stored(State.ONGOING)), TransactionRecord(TX, None)):
        with pytest.raises(AssertionError):
            stage.shard.replay(record)


def test_transactional_records_of_clients_are_ignored() -> None:
    stage = Stage(stored(State.ONGOING))
    stage.shard.replay_pending(TransactionRecord(TX, None), 1)
    stage.shard.end_transaction(1, committed=True)
    assert stage.transaction == stored(State.ONGOING)


def test_old_clusters_get_old_records() -> None:
    stage = Stage(transaction_version=0)
    stage.begin()
    assert stage.log[-1][1] is not None
    assert stage.log[-1][1][:2] == b"\0\0"
    stage.transaction_version = 1
    stage.begin()
    assert stage.log[-1][1][:2] == b"\0\1"
    stage.restart()
    assert stage.transaction.producer_epoch == 1


def test_transactions_of_newer_clients_survive_a_lower_feature_level() -> None:
    stage = Stage(stored(State.ONGOING, epoch=LAST_EPOCH))
    stage.transaction_version = 0
    _, *following = stage.end((PRODUCER_ID, LAST_EPOCH), commit=True)
    stage.restart()
    stage.deliver()
    assert [stage.transaction.producer_id, stage.transaction.producer_epoch] == following


def test_describing() -> None:
    stage = Stage(stored(State.ONGOING), replace(stored(State.DEAD), transactional_id="dead"))
    described = stage.shard.describe(TX)
    assert described == (TX, State.ONGOING, PRODUCER_ID, EPOCH, 60_000, START_MS, frozenset({A, B}))
    assert stage.shard.describe("dead") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert stage.shard.describe("other") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert stage.shard.describe("") is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (ListFilters(), ["new", "old"]),
        (ListFilters(states=frozenset({State.EMPTY, State.DEAD})), ["new"]),
        (ListFilters(producer_ids=frozenset({8, 9})), ["old"]),
        (ListFilters(duration_ms=99), ["new", "old"]),
        (ListFilters(duration_ms=100), ["new"]),
        (ListFilters(matches=lambda name: name.startswith("o")), ["old"]),
        (ListFilters(states=frozenset({State.EMPTY}), producer_ids=frozenset({8})), []),
    ],
)
def test_listing(filters: ListFilters, found: list[str]) -> None:
    """As in Kafka, a transactional id without a transaction counts as older than all others."""
    stage = Stage(
        replace(stored(State.EMPTY), transactional_id="new"),
        replace(stored(State.ONGOING), transactional_id="old", producer_id=8),
        replace(stored(State.DEAD), transactional_id="dead"),
    )
    listed = stage.shard.list(filters, START_MS + 100)
    assert [each.transactional_id for each in listed] == found
    if "old" in found:
        assert ListedTransaction("old", 8, State.ONGOING) in listed


def test_unknown_timers_are_bugs() -> None:
    with pytest.raises(AssertionError):
        Stage().shard.on_timer("other", START_MS)


def test_transactions_from_begin_to_end() -> None:
    stage = Stage()
    producer = stage.begin()
    for _ in range(3):
        assert stage.add(producer, A) is NONE
        code, producer_id, producer_epoch = stage.end(producer, commit=True)
        assert code is NONE
        assert (producer_id, producer_epoch) == (producer[0], producer[1] + 1)
        producer = (producer_id, producer_epoch)
        stage.deliver()
    assert stage.state() is State.COMPLETE_COMMIT
