"""The fast reader of keys, compared with the one that decodes record by record."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.base.errors import InvalidBatchError
from rookery.records.batch import BatchHeader, read_header
from rookery.records.keys import PLAIN_KEY_SIZE_MAX, Keys, read_bounds, read_keys, read_timestamp_deltas
from rookery.records.record import Record, build_batch, iterate_spans, open_batch

_SIZES = st.sampled_from([0, 1, 46, 47, 48, 63, 64, 130])
_BYTES = st.none() | st.binary(max_size=4) | _SIZES.map(bytes)
_HEADERS = st.lists(st.tuples(st.text(max_size=4), _BYTES), max_size=2).map(tuple)
_TIMESTAMPS = st.integers(0, 200) | st.integers(-(2**63), 2**63 - 1)
_RECORDS = st.lists(
    st.builds(Record, st.integers(1, 300), _TIMESTAMPS, _BYTES, _BYTES | st.just(bytes(9000)), _HEADERS),
    min_size=1,
    max_size=8,
)


def _payload(records: list[Record]) -> tuple[BatchHeader, bytes]:
    """Build a batch and return its header and payload; the offset of a record is its distance from the one before."""
    offset, placed = -1, []
    for record in records:
        offset += record.offset
        placed.append(record._replace(offset=offset))
    return open_batch(build_batch(placed))


def _by_spans(header: BatchHeader, payload: bytes) -> Keys:
    spans = list(iterate_spans(payload, header))
    return Keys(
        keys=[span.key for span in spans],
        offsets=[header.base_offset + span.offset_delta for span in spans],
        bounds=[0, *(span.end for span in spans)],
        tombstones=[index for index, span in enumerate(spans) if span.is_tombstone],
        are_plain=all(span.key is not None and len(span.key) <= PLAIN_KEY_SIZE_MAX for span in spans),
    )


def _check(header: BatchHeader, payload: bytes) -> None:
    expected, found = _by_spans(header, payload), read_keys(payload, header)
    assert found._replace(offsets=list(found.offsets)) == expected
    assert read_bounds(payload, header.record_count) == expected.bounds
    deltas = {span.timestamp_delta_ms for span in iterate_spans(payload, header)}
    assert read_timestamp_deltas(payload, expected.bounds[:-1]) == deltas


@given(records=_RECORDS, is_dense=st.booleans())
@settings(max_examples=300, deadline=None)
def test_equals_reading_record_by_record(records: list[Record], *, is_dense: bool) -> None:
    _check(*_payload([record._replace(offset=1) for record in records] if is_dense else records))


def test_offset_deltas_of_every_length() -> None:
    header, payload = _payload([Record(1, index, b"%d" % index, b"") for index in range(9000)])
    _check(header, payload)
    assert read_keys(payload, header).offsets == range(9000)


@given(records=_RECORDS, data=st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_bytes_are_rejected_or_read_the_same(records: list[Record], data: st.DataObject) -> None:
    header, payload = _payload([record._replace(value=record.value and record.value[:60]) for record in records])
    damaged = bytearray(payload)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.sampled_from([None, len(damaged) - 1, len(damaged) // 2]))])
    try:
        _by_spans(header, cut)
    except InvalidBatchError:
        # Errors after a key are not noticed.
        with suppress(InvalidBatchError):
            read_keys(cut, header)
    else:
        _check(header, cut)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x0e\x00\x00\x00\x02k\x00",
        b"\x0e\x00\x00\x00\x02k\x00\x00\x00",
        b"\x0f\x00\x00\x00\x02k\x00\x00",
        b"\x0e\x00\x00\x02\x02k\x00\x00",
        b"\x0e\x00\x00\x01\x02k\x00\x00",
        b"\x0e\x00\x00\x00\x03k\x00\x00",
        b"\x0e\x00\x00\x00\x0ek\x00\x00",
        b"\x0e\x00\x00\x00\x02k\x03\x00",
        b"\x80" * 12,
    ],
)
def test_malformed_records_are_rejected(payload: bytes) -> None:
    header = read_header(build_batch([Record(0, 0, b"k", b"")]))
    assert read_keys(b"\x0e\x00\x00\x00\x02k\x00\x00", header).keys == [b"k"]
    with pytest.raises(InvalidBatchError):
        read_keys(payload, header)


def test_a_header_that_claims_too_much_costs_nothing() -> None:
    header = read_header(build_batch([Record(0, 0, b"k", b"")]))._replace(last_offset_delta=2**31 - 1)
    assert list(read_keys(b"\x0e\x00\x00\x00\x02k\x00\x00", header).offsets) == [0]
