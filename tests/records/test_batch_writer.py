"""The codecs of columns, compared with `records.record`, their plain equivalent."""

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rookery.base.errors import InvalidBatchError
from rookery.records.batch import BatchHeader, check_batch, read_header, seal, seal_header
from rookery.records.batch_reader import unpack_records
from rookery.records.batch_writer import pack_records
from rookery.records.record import Headers, Record, build_batch, encode_records, open_batch, read_records

_INT64 = st.integers(-(2**63), 2**63 - 1)
_TIMESTAMPS = st.integers(0, 3) | _INT64 | st.sampled_from([-(2**63), 2**63 - 1])
_BYTES = st.none() | st.binary(max_size=80) | st.sampled_from([b"", b"x" * 63, b"x" * 64, b"x" * 8191, b"x" * 8192])
_HEADERS = st.lists(st.tuples(st.text(max_size=8), _BYTES), max_size=3).map(tuple)
_ROWS = st.lists(st.tuples(_TIMESTAMPS, _BYTES, _BYTES, _HEADERS), min_size=1, max_size=12)
_Row = tuple[int, bytes | None, bytes | None, Headers]


def _records(rows: list[_Row]) -> list[Record]:
    return [Record(index, *row) for index, row in enumerate(rows)]


def _read(header: BatchHeader, payload: bytes) -> list[Record]:
    columns = unpack_records(header, payload)
    headers = [()] * len(columns.keys) if columns.headers is None else columns.headers
    return list(map(Record, columns.offsets, columns.timestamps_ms, columns.keys, columns.values, headers))


@given(_ROWS)
@example([(0, None, None, ())] * 8200)
def test_packs_what_the_plain_encoder_writes(rows: list[_Row]) -> None:
    timestamps, keys, values, headers = (list(column) for column in zip(*rows, strict=True))
    expected = encode_records(_records(rows), base_offset=0, base_timestamp_ms=rows[0][0])
    assert pack_records(timestamps, keys, values, headers) == expected
    if not any(headers):
        assert pack_records(timestamps, keys, values) == expected
        assert pack_records(timestamps, keys, values, None) == expected


def test_packs_nothing() -> None:
    assert pack_records([], [], []) == b""


@given(_ROWS, st.integers(0, 2**40), st.lists(st.integers(1, 9000), min_size=12, max_size=12), st.none() | _INT64)
def test_unpacks_what_the_plain_decoder_reads(
    rows: list[_Row], base_offset: int, steps: list[int], append_time_ms: int | None
) -> None:
    offsets = [base_offset + sum(steps[:index]) for index in range(len(rows))]
    records = [Record(offset, *row) for offset, row in zip(offsets, rows, strict=True)]
    batch = build_batch(records, base_offset=base_offset, log_append_time_ms=append_time_ms)
    header, payload = open_batch(batch)
    assert _read(header, payload) == read_records(header, payload)
    if append_time_ms is None:
        assert _read(header, payload) == records


def test_a_batch_without_gaps_has_a_range_of_offsets_and_no_headers() -> None:
    header, payload = open_batch(build_batch([Record(offset, 1, b"k", b"v") for offset in range(5, 8)], base_offset=5))
    columns = unpack_records(header, payload)
    assert columns.offsets == range(5, 8)
    assert columns.headers is None


def _outcome(read: object, header: BatchHeader, payload: bytes) -> list[Record] | None:
    try:
        return read(header, payload)  # type: ignore[operator, no-any-return]
    except InvalidBatchError:
        return None


def _same_outcome(header: BatchHeader, payload: bytes) -> None:
    assert _outcome(_read, header, payload) == _outcome(read_records, header, payload)


@settings(max_examples=400)
@given(st.binary(max_size=60), st.integers(0, 5), st.integers(-1, 100))
def test_random_bytes_have_the_same_outcome(payload: bytes, count: int, last_offset_delta: int) -> None:
    header = read_header(build_batch([Record(0, 0, None, None)]))
    _same_outcome(header._replace(record_count=count, last_offset_delta=last_offset_delta), payload)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_records_have_the_same_outcome(seed: int) -> None:
    randomness = random.Random(seed)
    for _ in range(600):
        rows = [
            Record(
                index,
                randomness.randrange(-100, 10_000),
                randomness.choice([None, b"", b"key", b"k" * 70]),
                randomness.choice([None, b"", b"value", b"v" * 130]),
                randomness.choice([(), (("h", b"x"), ("i", None))]),
            )
            for index in range(randomness.randrange(1, 5))
        ]
        header, payload = open_batch(build_batch(rows))
        damaged = bytearray(payload)
        for _ in range(randomness.randrange(1, 3)):
            damaged[randomness.randrange(len(damaged))] = randomness.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
        _same_outcome(header, bytes(damaged))
        _same_outcome(header, payload[: randomness.randrange(len(payload))])


@pytest.mark.parametrize(
    "payload",
    [
        # A size of -1, a null value encoded in two bytes, and a record that ends within its value.
        bytes.fromhex("0100000001010000"),
        bytes.fromhex("1000000001810000"),
        bytes.fromhex("0e00000001087600"),
        bytes.fromhex("ffffffffffffffffffffff01"),
    ],
)
def test_odd_shapes_have_the_same_outcome(payload: bytes) -> None:
    header = read_header(build_batch([Record(0, 0, None, None)]))
    _same_outcome(header, payload)


@given(st.binary(max_size=100), _INT64)
def test_seals_a_header_without_copying_the_payload(payload: bytes, timestamp_ms: int) -> None:
    header = read_header(build_batch([Record(0, timestamp_ms, None, None)], producer_id=7, base_sequence=3))
    assert seal_header(header, payload) + payload == seal(header, payload)
    assert seal_header(header, memoryview(payload)) + payload == seal(header, payload)


def test_sealed_headers_pass_the_brokers_check() -> None:
    payload = pack_records([1, 2], [None, b"k"], [b"a", None])
    header = read_header(build_batch([Record(0, 1, None, b"a"), Record(1, 2, b"k", None)]))
    assert check_batch(seal_header(header, payload) + payload).record_count == 2
