import random
import struct
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from rookery.base.errors import ApiError
from rookery.client.consume.decoder import Deserializers, FetchedRun, PartitionBuffer, end_offset, epoch_before
from rookery.client.consume.subscription import FetchPosition
from rookery.client.errors import CorruptRecordError, SerializationError
from rookery.records.batch import Codec, iterate_headers, stamp
from rookery.records.control import Marker, build_marker
from rookery.records.record import Record, build_batch
from tests.client.consume.support import START_MS, TP, batch


def buffer(
    data: bytes,
    position: int = 0,
    *,
    aborted: list[tuple[int, int]] | None = None,
    check_crcs: bool = True,
    deserializers: Deserializers | None = None,
) -> PartitionBuffer:
    run = FetchedRun(TP, memoryview(data), FetchPosition(position), aborted=aborted, check_crcs=check_crcs)
    return PartitionBuffer(TP, 1, run, deserializers=deserializers or Deserializers(None, None))


def values(taken: PartitionBuffer, count: int = 1000) -> list[bytes | None]:
    return [record.value for record in taken.take(count)]


def marker(offset: int, producer_id: int, *, committed: bool) -> bytes:
    data = build_marker(Marker(producer_id, 0, committed, 0), START_MS)
    stamp(data, offset, 0)
    return bytes(data)


def transactional(first: int, producer_id: int, *some: bytes) -> bytes:
    return batch(first, *some, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def damaged(data: bytes, index: int = -2) -> bytes:
    changed = bytearray(data)
    changed[index] ^= 1
    return bytes(changed)


def test_a_record_has_everything() -> None:
    records = [Record(3, START_MS + 5, b"k", b"v", (("h", b"1"), ("i", None)))]
    (record,) = buffer(bytes(build_batch(records, base_offset=3, leader_epoch=4)), 3).take(10)
    assert astuple(record) == ("t", 0, 3, START_MS + 5, 0, b"k", b"v", (("h", b"1"), ("i", None)), 4)
    assert (record.key, record.timestamp_type, record.leader_epoch) == (b"k", 0, 4)


@pytest.mark.parametrize(("place", "value"), [(8, -12), (8, 40), (16, 1 << 24)])
def test_headers_end_before_invalid_bytes(place: int, value: int) -> None:
    """Impossible lengths, and an unknown format."""
    data = bytearray(batch(0, b"a", epoch=3) + batch(1, b"b", epoch=4))
    struct.pack_into(">i", data, len(data) // 2 + place, value)
    assert len(list(islice(iterate_headers(data), 10))) == 1
    assert end_offset(memoryview(data)) == 1
    assert epoch_before(memoryview(data), 9, unknown=-1) == 3


def test_the_end_offset_does_not_count_impossible_offsets() -> None:
    data = bytearray(batch(0, b"a") + batch(1, b"b"))
    struct.pack_into(">i", data, len(data) // 2 + 23, -7)
    assert end_offset(memoryview(data)) == 1


def test_log_append_time_sets_the_timestamp_type() -> None:
    data = bytes(build_batch([Record(0, 1, None, b"v")], log_append_time_ms=START_MS))
    (record,) = buffer(data).take(10)
    assert (record.timestamp_ms, record.timestamp_type) == (START_MS, 1)


def test_records_before_the_position_are_skipped() -> None:
    taken = buffer(batch(10, b"a", b"b", b"c") + batch(13, b"d"), 11)
    assert [(record.offset, record.value) for record in taken.take(9)] == [(11, b"b"), (12, b"c"), (13, b"d")]
    assert (taken.position.offset, taken.is_drained) == (14, True)


def test_portions_of_any_size() -> None:
    data = batch(0, *(b"%d" % n for n in range(5)), epoch=2) + batch(5, *(b"%d" % n for n in range(5, 10)), epoch=3)
    taken = buffer(data)
    assert (values(taken, 3), taken.position, taken.is_drained) == ([b"0", b"1", b"2"], FetchPosition(3, 2), False)
    assert (values(taken, 4), taken.position) == ([b"3", b"4", b"5", b"6"], FetchPosition(7, 3))
    assert (values(taken, 3), taken.position, taken.is_drained) == ([b"7", b"8", b"9"], FetchPosition(10, 3), True)
    assert (values(taken, 3), taken.taken_count) == ([], 10)


def test_one_record_at_a_time() -> None:
    taken = buffer(batch(0, b"a", b"b"))
    record = taken.take_one()
    assert record is not None
    assert (record.value, taken.position.offset) == (b"a", 1)
    assert taken.take_one() is not None
    assert (taken.position.offset, taken.is_drained, taken.take_one()) == (2, True, None)


@given(st.integers(0, 400))
def test_a_batch_that_is_cut_off_waits_for_the_next_fetch(cut: int) -> None:
    whole = batch(0, b"a" * 50) + batch(1, b"b" * 50, codec=Codec.ZSTD)
    taken = buffer(whole[:cut])
    complete = (cut >= len(batch(0, b"a" * 50))) + (cut >= len(whole))
    assert len(taken.take(10)) == complete
    assert (taken.position.offset, taken.is_drained) == (complete, True)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec(codec: Codec) -> None:
    assert values(buffer(batch(0, b"a" * 500, b"b" * 500, codec=codec))) == [b"a" * 500, b"b" * 500]


def test_control_batches_move_the_position_only() -> None:
    taken = buffer(batch(0, b"a") + marker(1, 7, committed=True))
    assert values(taken) == [b"a"]
    assert taken.position.offset == 2


def test_compaction_leaves_gaps() -> None:
    sparse = bytes(build_batch([Record(4, START_MS, None, b"a"), Record(8, START_MS, None, b"b")], base_offset=2))
    taken = buffer(sparse, 3)
    assert [record.offset for record in taken.take(9)] == [4, 8]
    assert taken.position.offset == 9


def test_aborted_transactions_are_skipped() -> None:
    data = (
        transactional(0, 1, b"lost")
        + transactional(1, 2, b"kept")
        + batch(2, b"plain")
        + transactional(3, 1, b"lost")
        + marker(4, 1, committed=False)
        + transactional(5, 1, b"next")
        + marker(6, 1, committed=True)
        + marker(7, 2, committed=True)
    )
    taken = buffer(data, aborted=[(1, 0)])
    assert values(taken) == [b"kept", b"plain", b"next"]
    assert taken.position.offset == 8
    assert values(buffer(data)) == [b"lost", b"kept", b"plain", b"lost", b"next"]


def test_two_aborted_transactions_of_one_producer() -> None:
    data = (
        transactional(0, 1, b"x")
        + marker(1, 1, committed=False)
        + transactional(2, 1, b"kept")
        + marker(3, 1, committed=True)
        + transactional(4, 1, b"x")
        + marker(5, 1, committed=False)
    )
    assert values(buffer(data, aborted=[(1, 4), (1, 0)])) == [b"kept"]


def test_a_damaged_batch_is_never_opened_and_can_be_skipped() -> None:
    data = batch(0, b"a") + damaged(batch(1, b"b", b"c", b"d")) + batch(4, b"e")
    taken = buffer(data)
    assert (values(taken), taken.position.offset) == ([b"a"], 1)
    for _ in range(2):
        with pytest.raises(
            CorruptRecordError, match="topic t, partition 0, offset 3: the batch of offsets 1 to 3"
        ) as caught:
            taken.take(9)
        assert (caught.value.partition, caught.value.offset, taken.position.offset) == (TP, 3, 1)
    after_seek = buffer(batch(4, b"e"), caught.value.offset + 1)
    assert values(after_seek) == [b"e"]


def test_the_next_batch_determines_where_a_damaged_one_ends() -> None:
    broken = bytearray(batch(0, b"a", b"b"))
    struct.pack_into(">i", broken, 23, 2**30)
    with pytest.raises(CorruptRecordError) as caught:
        buffer(bytes(broken) + batch(2, b"c")).take(9)
    assert caught.value.offset == 1


def test_checksums_are_not_verified_without_check_crcs() -> None:
    data = bytearray(batch(0, b"abc"))
    data[17] ^= 1
    assert values(buffer(bytes(data), check_crcs=False)) == [b"abc"]


def test_an_unknown_format_is_an_error() -> None:
    old = bytearray(batch(0, b"abc"))
    old[16] = 1
    with pytest.raises(CorruptRecordError, match="format v1"):
        buffer(bytes(old)).take(9)


@pytest.mark.parametrize("seed", range(100))
def test_any_damage_is_a_damaged_batch_or_none(seed: int) -> None:
    """Checksums are off, so that the damage reaches the record parser."""
    chance = random.Random(seed)
    data = bytearray(batch(0, *(bytes([n]) * n for n in range(20))))
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    taken = buffer(bytes(data), check_crcs=False)
    try:
        while taken.take(7):
            pass
    except CorruptRecordError:
        with pytest.raises(CorruptRecordError):
            taken.take(7)


def number(topic: str, data: bytes) -> int:
    return int(data)


class Reversed:
    def deserialize(self, topic: str, data: bytes) -> bytes:
        return topic.encode() + data[::-1]


def test_deserializers_are_functions_or_objects() -> None:
    data = bytes(build_batch([Record(0, START_MS, b"12", b"ab"), Record(1, START_MS, None, None)]))
    taken = buffer(data, deserializers=Deserializers(number, Reversed())).take(9)
    assert [(record.key, record.value) for record in taken] == [(12, b"tba"), (None, None)]


@pytest.mark.parametrize("part", ["key", "value"])
def test_records_before_a_deserialization_error_are_returned_first(part: str) -> None:
    texts = [b"0", b"1", b"two", b"3"]
    records = [Record(n, START_MS, text, text) for n, text in enumerate(texts)]
    deserializers = Deserializers(*((number, None) if part == "key" else (None, number)))
    taken = buffer(bytes(build_batch(records)), deserializers=deserializers)
    assert (len(taken.take(9)), taken.position.offset) == (2, 2)
    for _ in range(2):
        with pytest.raises(SerializationError, match=f"topic t, partition 0, offset 2: the {part} cannot") as caught:
            taken.take(9)
        assert isinstance(caught.value, ApiError)
        assert isinstance(caught.value.__cause__, ValueError)
        assert taken.position.offset == 2
    assert len(buffer(bytes(build_batch(records)), 3, deserializers=deserializers).take(9)) == 1
