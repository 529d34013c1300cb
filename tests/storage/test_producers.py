from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.errors import CorruptionError, ErrorCode
from rookery.records.batch import BatchHeader, read_header
from rookery.records.control import EndMarker, Marker
from rookery.storage.producers import Duplicate, LateDuplicate, ProducerStates, Verification
from rookery.storage.transactions import AbortedTransaction
from tests.storage.samples import START_MS, batch, marker

SEQUENCE_MAX = 2**31 - 1


def header(
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    offset: int = 0,
    producer_id: int = 5,
    transactional: bool = False,
) -> BatchHeader:
    data = batch(
        *[START_MS] * count, producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=transactional
    )
    return read_header(data)._replace(base_offset=offset)


def states(*headers: BatchHeader) -> ProducerStates:
    result = ProducerStates()
    for item in headers:
        assert result.check(item) is None
        result.update(item, item.base_offset)
    return result


def test_continuing_the_sequence() -> None:
    known = states(header(0, 3, offset=10))
    assert known.check(header(3)) is None
    assert known.check(header(4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert known.check(header(1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_last_five_batches_are_recognised() -> None:
    known = states(*(header(2 * index, 2, offset=100 + 2 * index) for index in range(6)))
    assert known.check(header(0, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for index in range(1, 6):
        assert known.check(header(2 * index, 2)) == Duplicate(100 + 2 * index, 101 + 2 * index, START_MS)
    assert known.check(header(10, 1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap() -> None:
    known = states(header(SEQUENCE_MAX - 1, 2))
    assert known.check(header(0)) is None
    wrapped = states(header(SEQUENCE_MAX, 3, offset=7))
    assert wrapped.check(header(2)) is None
    assert wrapped.check(header(SEQUENCE_MAX, 3)) == Duplicate(7, 9, START_MS)
    assert ProducerStates.decode(wrapped.encode()).check(header(SEQUENCE_MAX, 3)) == Duplicate(7, 9, START_MS)


def test_epochs_fence() -> None:
    known = states(header(0, epoch=2))
    assert known.check(header(1, epoch=1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert known.check(header(1, epoch=3)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert known.check(header(0, epoch=3)) is None
    known.update(header(0, epoch=3), 9)
    assert known.check(header(0, epoch=3)) == Duplicate(9, 9, START_MS)


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert states().check(header(77)) is None
    assert states().check(header(-1, producer_id=-1)) is None


def test_recent_producers_and_open_transactions_do_not_expire() -> None:
    known = states(header(0), header(0, producer_id=6, offset=3, transactional=True))
    assert known.expire(START_MS + 99, 100) == 0
    assert known.expire(START_MS + 100, 100) == 1
    assert [state.producer_id for state in known] == [6]


def test_snapshot_is_kafkas() -> None:
    """Version 1, CRC-32C of the rest, count; then id, epoch, sequence, offset, delta, time, two transaction fields."""
    data = states(header(0, 3, offset=10)).encode()
    assert data[:2] == b"\0\x01"
    assert data[6:] == bytes.fromhex(
        "00000001 0000000000000005 0000 00000002 000000000000000c 00000002 0000018bcfe56800 ffffffff ffffffffffffffff"
    )
    again = ProducerStates.decode(data)
    assert again.encode() == data
    assert again.check(header(3)) is None
    assert again.check(header(0, 3)) == Duplicate(10, 12, START_MS)


@given(st.binary(max_size=120))
def test_any_bytes(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        ProducerStates.decode(data)


@given(st.integers(0, 103), st.integers(1, 255))
def test_any_flipped_byte_is_noticed(position: int, flip: int) -> None:
    data = bytearray(states(header(0), header(0, producer_id=6)).encode())
    assert len(data) == 102
    if position < len(data):
        data[position] ^= flip
    else:
        data.append(flip)
    with pytest.raises(CorruptionError):
        ProducerStates.decode(data)


# Transactions

ABORT = EndMarker(committed=False, coordinator_epoch=0)
COMMIT = EndMarker(committed=True, coordinator_epoch=0)


def in_transaction(sequence: int, *, epoch: int = 0, offset: int = 0, producer_id: int = 5) -> BatchHeader:
    return header(sequence, epoch=epoch, offset=offset, producer_id=producer_id, transactional=True)


def end(
    known: ProducerStates, offset: int, how: EndMarker = ABORT, *, epoch: int = 0, producer_id: int = 5
) -> AbortedTransaction | None:
    data = marker(producer_id, committed=how.committed, epoch=epoch)
    return known.end_transaction(read_header(data), how, offset)


def test_a_transaction_from_its_first_batch_to_its_marker() -> None:
    known = states(in_transaction(0, offset=10), in_transaction(1, offset=11))
    state = known.get(5)
    assert state is not None
    assert state.current_transaction_offset == 10
    assert known.transactions.last_stable_offset(12) == 10
    assert end(known, 12) == AbortedTransaction(5, 10, 12, 13)
    assert not state.is_in_transaction
    assert known.transactions.last_stable_offset(12) == 10
    assert known.transactions.last_stable_offset(13) == 13
    # The classic protocol keeps epoch and sequence.
    assert known.check(in_transaction(2)) is None


def test_a_commit_leaves_nothing_to_index() -> None:
    known = states(in_transaction(0))
    assert end(known, 1, COMMIT) is None
    assert known.transactions.last_stable_offset(2) == 2


def test_a_marker_without_a_transaction() -> None:
    known = states()
    assert end(known, 0, EndMarker(committed=False, coordinator_epoch=7)) is None
    state = known.get(5)
    assert state is not None
    assert (state.coordinator_epoch, state.last_sequence, state.is_in_transaction) == (7, -1, False)


def test_an_emptied_marker_only_sets_the_epoch() -> None:
    known = states(in_transaction(0))
    assert known.end_transaction(read_header(marker(6, committed=True, epoch=4)), None, 1) is None
    assert [(state.producer_id, state.epoch) for state in known] == [(5, 0), (6, 4)]
    assert known.transactions.last_stable_offset(2) == 0


def test_other_open_transactions_hold_back_the_stable_offset_of_an_entry() -> None:
    known = states(in_transaction(0, offset=3), in_transaction(0, offset=4, producer_id=6))
    assert end(known, 5, producer_id=6) == AbortedTransaction(6, 4, 5, 3)
    assert end(known, 6) == AbortedTransaction(5, 3, 6, 7)


def test_every_transaction_has_its_own_epoch() -> None:
    known = states(in_transaction(0, epoch=3))
    assert end(known, 1, COMMIT, epoch=4) is None
    assert known.check(in_transaction(1, epoch=3)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert known.check(in_transaction(1, epoch=4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert known.check(in_transaction(0, epoch=4)) is None


def test_no_other_batch_between_those_of_a_transaction() -> None:
    known = states(in_transaction(0))
    assert known.check(header(1)) == ErrorCode.INVALID_TXN_STATE
    assert known.check(header(2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    end(known, 1)
    assert known.check(header(1)) is None


def test_only_a_verified_batch_begins_a_transaction() -> None:
    known = states()
    first = in_transaction(0)
    assert known.check_transaction(first, None) == ErrorCode.INVALID_TXN_STATE
    verification = known.verify(first)
    assert verification is not None
    assert (verification.producer_id, verification.producer_epoch) == (5, 0)
    assert known.check_transaction(first, verification) is None
    assert known.check_transaction(in_transaction(0, producer_id=6), verification) == ErrorCode.INVALID_TXN_STATE
    known.update(first, 0)
    # From here on the transaction is open, and a repeated batch is a duplicate.
    assert known.verify(in_transaction(1)) is None
    assert known.check_transaction(in_transaction(1), None) is None
    end(known, 1)
    assert known.verify(first) is None


def test_a_marker_invalidates_a_verification() -> None:
    known = states()
    verification = known.verify(in_transaction(0))
    end(known, 0)
    assert known.check_transaction(in_transaction(0), verification) == ErrorCode.INVALID_TXN_STATE
    again = known.verify(in_transaction(0))
    assert known.check_transaction(in_transaction(0), again) is None


def test_verification_may_be_disabled() -> None:
    known = states()
    assert known.check_transaction(in_transaction(0), Verification(5, 0, None)) is None
    assert known.check_transaction(in_transaction(0, producer_id=-1), None) == ErrorCode.INVALID_TXN_STATE


def test_the_first_batch_must_not_be_overtaken() -> None:
    """Two batches are verified concurrently and the first is rejected: appending the second would leave a gap."""
    known = states()
    first, second = known.verify(in_transaction(0)), known.verify(in_transaction(1))
    assert first is not None
    assert second is not None
    assert first.guard is second.guard
    assert known.check_transaction(in_transaction(1), second) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert known.check_transaction(in_transaction(0), first) is None
    fenced = known.verify(in_transaction(3, epoch=1))
    assert known.check_transaction(in_transaction(3, epoch=1), fenced) is None


def test_unused_guards_expire_long_after_their_last_use() -> None:
    known = states()
    verification = known.verify(in_transaction(0))
    for passed_ms in (0, 599_999):
        known.expire(START_MS + passed_ms, 100)
        assert known.check_transaction(in_transaction(0), verification) is None
    known.expire(START_MS + 600_000, 100)
    assert known.check_transaction(in_transaction(0), verification) == ErrorCode.INVALID_TXN_STATE


def test_a_guard_that_is_used_again_does_not_expire() -> None:
    known = states()
    takes: list[Callable[[], object]] = [lambda: known.guard(5), lambda: known.verify(in_transaction(0))]
    for take in takes:
        guard = known.guard(5)
        known.expire(START_MS, 100)
        take()
        known.expire(START_MS + 600_000, 100)
        assert known.check_coordinated(in_transaction(-1), guard) is None


@pytest.mark.parametrize("how", [ABORT, COMMIT], ids=["aborted", "committed"])
def test_a_batch_of_an_ended_transaction_is_no_duplicate(how: EndMarker) -> None:
    """Neither without an open transaction nor in the next one; retries inside a transaction stay duplicates."""
    known = states(in_transaction(0, offset=10), in_transaction(1, offset=11))
    assert known.check(in_transaction(0)) == Duplicate(10, 10, START_MS)
    end(known, 12, how)
    assert known.check(in_transaction(0)) == LateDuplicate(0)
    assert known.check(in_transaction(1)) == LateDuplicate(1)
    known.update(in_transaction(2), 13)
    assert known.check(in_transaction(1)) == LateDuplicate(1)
    assert known.check(in_transaction(2)) == Duplicate(13, 13, START_MS)


def test_a_snapshot_records_what_has_ended() -> None:
    known = states(in_transaction(0, offset=10))
    again = ProducerStates.decode(known.encode())
    assert again.check(in_transaction(0)) == Duplicate(10, 10, START_MS)
    end(known, 11)
    again = ProducerStates.decode(known.encode())
    assert again.check(in_transaction(0)) == LateDuplicate(0)
    again.update(in_transaction(1), 12)
    assert ProducerStates.decode(again.encode()).check(in_transaction(1)) == Duplicate(12, 12, START_MS)


def test_used_numbers_in_another_batch() -> None:
    """A producer that reuses numbers may form other batches; a snapshot holds only the last batch."""
    known = states(in_transaction(0), in_transaction(1), in_transaction(2))
    reused = header(1, 3, transactional=True)
    assert known.check(reused) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    end(known, 3)
    for each in (known, ProducerStates.decode(known.encode())):
        assert each.check(reused) == LateDuplicate(1)
        assert each.check(in_transaction(0)) == LateDuplicate(0)
        assert each.check(in_transaction(4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert each.check(in_transaction(0, epoch=1)) is None
        assert each.check(in_transaction(1, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_used_numbers_before_the_wrap() -> None:
    known = states(in_transaction(SEQUENCE_MAX), in_transaction(0))
    end(known, 2)
    known.update(in_transaction(1), 3)
    end(known, 4)
    assert known.check(header(SEQUENCE_MAX, 3, transactional=True)) == LateDuplicate(SEQUENCE_MAX)
    assert known.check(in_transaction(3)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_without_a_batch_in_its_epoch_no_number_is_used() -> None:
    known = states()
    end(known, 0, epoch=3)
    assert known.check(in_transaction(5, epoch=3)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert known.check(in_transaction(0, epoch=3)) is None


def test_retries_without_a_transaction_are_duplicates() -> None:
    known = states(header(0, offset=7))
    assert known.check(header(0)) == Duplicate(7, 7, START_MS)
    again = ProducerStates.decode(known.encode())
    assert again.check(header(0)) == Duplicate(7, 7, START_MS)


def test_a_late_duplicate_does_not_disturb_the_next_transaction() -> None:
    """It registers no guard: because of its low number the batch that begins the transaction would look overtaken."""
    known = states(in_transaction(0))
    end(known, 1)
    assert known.verify(in_transaction(0)) is None
    begins = known.verify(in_transaction(1))
    assert begins is not None
    assert known.verify(in_transaction(0)) is None
    assert known.check_transaction(in_transaction(1), begins) is None


@pytest.mark.parametrize(
    ("order", "verdict"),
    [
        (Marker(5, 2, False, 4), None),
        (Marker(5, 1, False, 4), ErrorCode.INVALID_PRODUCER_EPOCH),
        (Marker(5, 3, False, 4), None),
        (Marker(5, 2, False, 3), ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (Marker(5, 2, False, 5), None),
        (Marker(5, 2, False, 4, transaction_version=2), ErrorCode.INVALID_PRODUCER_EPOCH),
        (Marker(5, 3, False, 4, transaction_version=2), None),
        (Marker(6, 0, False, 0, transaction_version=2), None),
    ],
)
def test_markers_are_checked(order: Marker, verdict: ErrorCode | None) -> None:
    """In epoch 2 of producer 5 a transaction is open; the last marker came from coordinator epoch 4."""
    known = states()
    end(known, 0, EndMarker(committed=True, coordinator_epoch=4), epoch=2)
    known.update(in_transaction(0, epoch=2), 1)
    assert known.check_marker(order) == verdict


def test_a_marker_may_be_repeated() -> None:
    known = states(in_transaction(0, epoch=2))
    end(known, 1, COMMIT, epoch=3)
    assert known.check_marker(Marker(5, 3, True, 0, transaction_version=2)) is None


def test_a_coordinators_batch_needs_no_sequence() -> None:
    known = states(in_transaction(0, epoch=2))
    assert known.check_coordinated(in_transaction(-1, epoch=1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert known.check_coordinated(in_transaction(-1, epoch=2)) is None
    assert known.check_coordinated(in_transaction(-1, producer_id=6)) is None


def test_open_transactions_survive_a_snapshot() -> None:
    known = states(in_transaction(0, offset=9), in_transaction(0, offset=4, producer_id=6), header(0, producer_id=7))
    end(known, 10, EndMarker(committed=False, coordinator_epoch=8), producer_id=7)
    again = ProducerStates.decode(known.encode())
    assert again.transactions.last_stable_offset(11) == 4
    end(again, 11, producer_id=6)
    assert again.transactions.last_stable_offset(12) == 9
    state = again.get(7)
    assert state is not None
    assert state.coordinator_epoch == 8
