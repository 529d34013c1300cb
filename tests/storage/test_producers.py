import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.errors import CorruptionError, ErrorCode
from rookery.records.batch import BatchHeader, read_header
from rookery.storage.producers import Duplicate, ProducerStates
from tests.storage.samples import START_MS, batch

SEQUENCE_MAX = 2**31 - 1


def header(sequence: int, count: int = 1, *, epoch: int = 0, offset: int = 0, producer_id: int = 5) -> BatchHeader:
    data = batch(*[START_MS] * count, producer_id=producer_id, epoch=epoch, sequence=sequence)
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


def test_expiry_spares_the_recent_and_open_transactions() -> None:
    known = states(header(0), header(0, producer_id=6))
    state = known.get(6)
    assert state is not None
    state.current_transaction_offset = 3
    assert known.expire(START_MS + 99, 100) == 0
    assert known.expire(START_MS + 100, 100) == 1
    assert [state.producer_id for state in known] == [6]


def test_snapshot_is_kafkas() -> None:
    """Version 1, CRC-32C of what follows, count; then id, epoch, sequence, offset, delta, time, two of transactions."""
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
