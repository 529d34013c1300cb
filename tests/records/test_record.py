import random
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.base.errors import ErrorCode, InvalidBatchError
from rookery.records.batch import HEADER_SIZE, Codec, check_batch, read_header, seal, stamp_log_append_time
from rookery.records.record import Record, build_batch, decode_records, iterate_spans, open_batch, rebase_span
from tests.records.oracles import BUILDERS, READERS

_INT64 = st.integers(-(2**63), 2**63 - 1)
_BYTES = st.none() | st.binary(max_size=200)
_HEADERS = st.lists(st.tuples(st.text(max_size=8), _BYTES), max_size=3).map(tuple)
_TIMESTAMPS = st.integers(0, 2**42)


@st.composite
def _records(draw: st.DrawFn, timestamps: st.SearchStrategy[int] = _TIMESTAMPS) -> list[Record]:
    count = draw(st.integers(1, 8))
    return [Record(index, draw(timestamps), draw(_BYTES), draw(_BYTES), draw(_HEADERS)) for index in range(count)]


@given(records=_records(_INT64), codec=st.sampled_from(Codec), base_offset=st.integers(0, 2**62))
@settings(max_examples=200, deadline=None)
def test_round_trip(records: list[Record], codec: Codec, base_offset: int) -> None:
    records = [record._replace(offset=base_offset + record.offset * 3) for record in records]
    batch = build_batch(
        records, base_offset=base_offset, codec=codec, producer_id=9, producer_epoch=2, base_sequence=4, leader_epoch=6
    )
    assert decode_records(batch) == records
    header = read_header(batch)
    assert header.last_offset == records[-1].offset
    assert header.max_timestamp_ms == max(record.timestamp_ms for record in records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.leader_epoch) == (9, 2, 4, 6)


@pytest.mark.parametrize("reader", READERS)
@given(records=_records(), codec=st.sampled_from(Codec))
@settings(max_examples=60, deadline=None)
def test_foreign_readers_read_our_batches(reader: str, records: list[Record], codec: Codec) -> None:
    assert READERS[reader](bytes(build_batch(records, codec=codec))) == records


@pytest.mark.parametrize("builder", BUILDERS)
@given(records=_records(), codec=st.sampled_from(Codec))
@settings(max_examples=60, deadline=None)
def test_we_read_foreign_batches(builder: str, records: list[Record], codec: Codec) -> None:
    batch = BUILDERS[builder](records, codec)
    header = check_batch(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 5)
    assert decode_records(batch) == records


@given(records=_records())
@settings(max_examples=60, deadline=None)
def test_uncompressed_batch_equals_that_of_foreign_builders(records: list[Record]) -> None:
    ours = bytes(build_batch(records, producer_id=7, producer_epoch=1, base_sequence=5, leader_epoch=0))
    for build in BUILDERS.values():
        theirs = bytearray(build(records, Codec.NONE))
        # The leader epoch lies outside the CRC, and clients write different values there.
        theirs[12:16] = bytes(4)
        assert ours == theirs


def test_log_append_time_counts_for_every_record() -> None:
    batch = build_batch([Record(0, 5, b"k", b"v"), Record(1, 6, b"k", b"v")])
    stamp_log_append_time(batch, 77)
    assert [record.timestamp_ms for record in decode_records(batch)] == [77, 77]
    built = build_batch([Record(0, 5, b"k", b"v")], log_append_time_ms=77)
    assert [record.timestamp_ms for record in decode_records(built)] == [77]


def test_header_key_that_is_not_utf8_survives() -> None:
    key = b"\xff\xfe".decode("utf-8", "surrogateescape")
    records = [Record(0, 1, b"k", b"v", ((key, b"x"),))]
    assert decode_records(build_batch(records)) == records


def test_batch_without_records_is_empty_under_any_codec() -> None:
    header = read_header(build_batch([Record(0, 1, b"k", b"v")], codec=Codec.GZIP))
    assert decode_records(seal(header._replace(record_count=0), b"")) == []


@given(records=_records(), shift=st.integers(-(2**50), 2**50))
@settings(max_examples=60, deadline=None)
def test_rebased_records_keep_their_timestamps(records: list[Record], shift: int) -> None:
    header, payload = open_batch(build_batch(records))
    moved = header._replace(base_timestamp_ms=header.base_timestamp_ms + shift)
    parts = [rebase_span(payload, span, span.timestamp_delta_ms - shift) for span in iterate_spans(payload, header)]
    assert decode_records(seal(moved, b"".join(parts))) == records


def _rejection_of(batch: bytearray) -> InvalidBatchError:
    with pytest.raises(InvalidBatchError) as caught:
        decode_records(batch)
    return caught.value


def _with_payload(payload: bytes, count: int = 1) -> bytearray:
    header = read_header(build_batch([Record(count - 1, 1, b"k", b"v")]))
    return seal(header._replace(record_count=count), payload)


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param("", id="nothing"),
        pytest.param("10", id="a length alone"),
        pytest.param("0e 00 00 00 02 6b 02 76", id="no header count"),
        pytest.param("10 00 00 00 02 6b 02 76 00 00", id="bytes after the records"),
        pytest.param("10 00 00 00 7e 6b 02 76 00", id="key beyond the record"),
        pytest.param("10 00 00 00 02 6b 7e 76 00", id="value beyond the record"),
        pytest.param("10 00 00 00 03 6b 02 76 00", id="negative key size"),
        pytest.param("10 00 00 02 02 6b 02 76 00", id="offset delta beyond the batch"),
        pytest.param("10 00 00 01 02 6b 02 76 00", id="negative offset delta"),
        pytest.param("10 00 00 00 02 6b 02 76 01", id="negative header count"),
        pytest.param("10 00 00 00 02 6b 02 76 02", id="headers cut off"),
        pytest.param("14 00 00 00 02 6b 02 76 02 01 01", id="null header key"),
        pytest.param("10 00 ff ff ff ff ff ff ff ff ff ff 01 00", id="varint too long"),
        pytest.param("01 00 00 00 02 6b 02 76 00", id="negative length"),
        pytest.param("fe ff ff ff 0f 00 00 00 02 6b 02 76 00", id="absurd length"),
    ],
)
def test_malformed_records_are_rejected(payload: str) -> None:
    assert _rejection_of(_with_payload(bytes.fromhex(payload))).code == ErrorCode.INVALID_RECORD


def test_the_error_has_the_index_of_the_record() -> None:
    good = bytes.fromhex("10 00 00 00 02 6b 02 76 00")
    assert _rejection_of(_with_payload(good * 2, count=2)).record_index == 1


def test_bytes_that_are_not_a_whole_batch_are_rejected() -> None:
    batch = build_batch([Record(0, 1, b"k", b"v")])
    assert _rejection_of(batch[:-1]).code == ErrorCode.CORRUPT_MESSAGE
    assert _rejection_of(batch[:40]).code == ErrorCode.CORRUPT_MESSAGE
    assert _rejection_of(batch + b"\x00").code == ErrorCode.CORRUPT_MESSAGE


def test_huge_record_count_does_not_cost_memory() -> None:
    header = read_header(build_batch([Record(0, 1, b"k", b"v")]))
    assert _rejection_of(seal(header._replace(record_count=2**31 - 1), b"")).code == ErrorCode.INVALID_RECORD


def test_mutated_batches_raise_only_invalid_batch() -> None:
    source = random.Random(20)
    records = [Record(index, 10, b"key%d" % index, bytes(40), (("h", b"x"),)) for index in range(20)]
    originals = [bytes(build_batch(records, codec=codec)) for codec in Codec]
    for _ in range(4000):
        batch = bytearray(source.choice(originals))
        for _ in range(source.randint(1, 5)):
            batch[source.randrange(len(batch))] = source.randrange(256)
        if source.random() < 0.3:
            del batch[source.randrange(len(batch)) :]
        if len(batch) >= HEADER_SIZE and source.random() < 0.5:
            batch = seal(read_header(batch), batch[HEADER_SIZE:])
        with suppress(InvalidBatchError):
            decode_records(batch, size_max=1 << 16)
