"""The compiled passes, compared with the plain codecs, also for damaged bytes."""

import random
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rookery.base.errors import InvalidBatchError
from rookery.base.types import TopicPartition
from rookery.client.produce.partitioners import murmur2
from rookery.records import columnar, kernels
from rookery.records.batch import HEADER_SIZE, BatchHeader, read_header
from rookery.records.batch_writer import pack_records
from rookery.records.columnar import BatchRange, Chunk, EncodedBatch, Rows, decode_columns, encode_columns
from rookery.records.record import Headers, Record, build_batch, open_batch, read_records

_TP = TopicPartition("events", 3)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_BYTES = st.none() | st.binary(max_size=80) | st.sampled_from([b"", b"x" * 63, b"x" * 64, b"x" * 8192])
_HEADERS = st.lists(st.tuples(st.text(max_size=8), _BYTES), max_size=3).map(tuple)
_ROWS = st.lists(st.tuples(st.integers(0, 3) | _INT64, _BYTES, _BYTES, _HEADERS), max_size=8)
_Row = tuple[int, bytes | None, bytes | None, Headers]
_EVERYTHING = 2**63 - 1


def _range(header: BatchHeader, start: int, end: int, *, first: int = 0, stop: int = _EVERYTHING) -> BatchRange:
    return BatchRange(
        start,
        end,
        header.record_count,
        header.base_offset,
        header.last_offset_delta,
        header.base_timestamp_ms,
        int(header.is_log_append_time),
        header.max_timestamp_ms,
        first,
        stop,
    )


def _chunk(batches: Sequence[tuple[BatchHeader, bytes]], tp: TopicPartition = _TP) -> Chunk:
    data, ranges = b"", []
    for header, payload in batches:
        data += b"between"
        ranges.append(_range(header, len(data), len(data) + len(payload)))
        data += payload
    return Chunk(tp, data, ranges)


def _records(table: pa.RecordBatch) -> list[Record]:
    table.validate(full=True)
    assert table.schema == columnar.SCHEMA
    rows: list[dict[str, Any]] = table.set_column(
        5, "timestamp", table.column("timestamp").cast(pa.int64())
    ).to_pylist()
    return [
        Record(
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in rows
    ]


@settings(deadline=None)
@given(st.lists(_ROWS.filter(bool), max_size=4), st.none() | _INT64)
def test_decodes_what_the_plain_decoder_reads(groups: list[list[_Row]], append_time_ms: int | None) -> None:
    batches, expected, offset = [], [], 7
    for rows in groups:
        records = [Record(offset + 2 * index, *row) for index, row in enumerate(rows)]
        batch = build_batch(records, base_offset=offset, log_append_time_ms=append_time_ms)
        batches.append(open_batch(batch))
        expected += read_records(*batches[-1])
        offset = records[-1].offset + 1
    decoded = decode_columns([_chunk(batches)])
    assert decoded.malformed == [None]
    assert _records(decoded.records) == expected
    kinds = set(decoded.records.column("timestampType").to_pylist())
    assert kinds <= {0 if append_time_ms is None else 1}


def test_nothing_is_an_empty_batch_of_the_schema() -> None:
    for chunks in ([], [Chunk(_TP, b"", [])]):
        decoded = decode_columns(chunks)
        assert decoded.records.num_rows == 0
        assert decoded.records.schema == columnar.SCHEMA


def test_the_schema() -> None:
    assert [str(field.type) for field in columnar.SCHEMA] == [
        "binary",
        "binary",
        "string",
        "int32",
        "int64",
        "timestamp[ms, tz=UTC]",
        "int32",
        "list<item: struct<key: string, value: binary>>",
    ]
    assert all(field.nullable for field in columnar.SCHEMA)


def test_chunks_of_several_partitions_follow_each_other() -> None:
    one = open_batch(build_batch([Record(0, 5, b"k", b"v"), Record(1, 6, None, None, (("a", b"b"),))]))
    two = open_batch(build_batch([Record(9, 7, b"", b"", (("c", None), ("d", b"")))], base_offset=9))
    other = TopicPartition("a-longer-name", 0)
    decoded = decode_columns([_chunk([one]), _chunk([two], other), _chunk([], other)])
    assert _records(decoded.records) == read_records(*one) + read_records(*two)
    assert decoded.records.column("topic").to_pylist() == ["events", "events", "a-longer-name"]
    assert decoded.records.column("partition").to_pylist() == [3, 3, 0]


def test_keeps_only_the_requested_offsets() -> None:
    headers: Headers = (("h", b"x"),)
    header, payload = open_batch(build_batch([Record(offset, 1, b"k", b"v", headers) for offset in range(10, 20)]))
    chunk = Chunk(_TP, payload, [_range(header, 0, len(payload), first=13, stop=16)])
    assert [record.offset for record in _records(decode_columns([chunk]).records)] == [13, 14, 15]
    assert {record.headers for record in _records(decode_columns([chunk]).records)} == {headers}


def test_a_header_key_that_is_not_utf8_is_replaced() -> None:
    batch = build_batch([Record(0, 1, None, None, (("\udcff", b"x"), ("ok", b"y")))])
    assert _records(decode_columns([_chunk([open_batch(batch)])]).records)[0].headers == (("�", b"x"), ("ok", b"y"))


def test_a_malformed_batch_ends_its_partition_only() -> None:
    good = open_batch(build_batch([Record(0, 1, b"k", b"v", (("h", b"x"),))]))
    header, payload = good
    bad = (header, b"\x02" + payload[1:])
    other = TopicPartition("other", 1)
    chunks = [_chunk([good, bad, good]), _chunk([good]), _chunk([good], other)]
    decoded = decode_columns(chunks)
    assert decoded.malformed == [1, 0, None]
    assert decoded.records.column("partition").to_pylist() == [3, 1]
    assert len(_records(decoded.records)) == 2


def _outcome(header: BatchHeader, payload: bytes) -> list[Record] | None:
    # Surrounded by valid bytes, so that a read beyond the ends would be noticed.
    chunk = Chunk(_TP, bytes(16) + payload + bytes(16), [_range(header, 16, 16 + len(payload), first=-(2**63))])
    decoded = decode_columns([chunk])
    return None if decoded.malformed != [None] else _records(decoded.records)


def _expected(header: BatchHeader, payload: bytes) -> list[Record] | None:
    try:
        records = read_records(header, payload)
    except InvalidBatchError:
        return None
    return [
        record._replace(headers=tuple((_replaced(key), value) for key, value in record.headers)) for record in records
    ]


def _replaced(key: str) -> str:
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 5), st.integers(-1, 100))
@example(bytes.fromhex("1000000001810000"), 1, 0)
@example(bytes.fromhex("ffffffffffffffffffffff01"), 1, 0)
@example(bytes.fromhex("1e00ffffffffffffffffff7f00010100"), 1, 0)
@example(b"", 2**31 - 1, 2**31 - 2)
def test_random_bytes_have_the_outcome_of_the_plain_decoder(payload: bytes, count: int, last_offset_delta: int) -> None:
    header = read_header(build_batch([Record(0, 0, None, None)]))
    header = header._replace(record_count=count, last_offset_delta=last_offset_delta)
    assert _outcome(header, payload) == _expected(header, payload)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_batches_have_the_outcome_of_the_plain_decoder(seed: int) -> None:
    randomness = random.Random(seed)
    refused = 0
    for _ in range(400):
        records = [
            Record(
                index,
                randomness.randrange(-100, 10_000),
                randomness.choice([None, b"", b"key", b"k" * 70]),
                randomness.choice([None, b"", b"value", b"v" * 130]),
                randomness.choice([(), (("h", b"x"), ("i", None))]),
            )
            for index in range(randomness.randrange(1, 5))
        ]
        header, payload = open_batch(build_batch(records))
        damaged = bytearray(payload)
        for _ in range(randomness.randrange(1, 3)):
            damaged[randomness.randrange(len(damaged))] = randomness.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
        for candidate in (bytes(damaged), payload[: randomness.randrange(len(payload))]):
            outcome = _outcome(header, candidate)
            assert outcome == _expected(header, candidate)
            refused += outcome is None
    assert refused > 100


def _column(items: Sequence[bytes | None]) -> Any:
    return columnar.binary_column(pa.array(items, pa.large_binary()))


def _rows(rows: Sequence[_Row]) -> Rows:
    headers = columnar.NO_HEADERS
    if any(row[3] for row in rows):
        pairs = [pair for row in rows for pair in row[3]]
        lengths = np.cumsum([0] + [len(row[3]) for row in rows])
        names = _column([name.encode() for name, _ in pairs])
        headers = columnar.header_column(lengths, names, _column([value for _, value in pairs]))
    timestamps = np.array([row[0] for row in rows], np.int64)
    return Rows(timestamps, _column([row[1] for row in rows]), _column([row[2] for row in rows]), headers)


def _encode(rows: Sequence[_Row], groups: Sequence[int], *, size_max: int, group_count: int) -> list[EncodedBatch]:
    numbers = np.array(groups, np.int32)
    return list(encode_columns(_rows(rows), numbers, group_count=group_count, batch_size_max=size_max))


@settings(deadline=None)
@given(_ROWS, st.lists(st.integers(0, 2), min_size=8, max_size=8), st.integers(-60, 400))
def test_encodes_what_the_plain_encoder_writes(rows: list[_Row], groups: list[int], size_max: int) -> None:
    groups = groups[: len(rows)]
    batches = _encode(rows, groups, size_max=size_max, group_count=3)
    for group in range(3):
        mine = [row for row, number in zip(rows, groups, strict=True) if number == group]
        for batch in (batch for batch in batches if batch.group == group):
            part, mine = mine[: batch.record_count], mine[batch.record_count :]
            timestamps, keys, values, headers = (list(column) for column in zip(*part, strict=True))
            assert batch.payload == pack_records(timestamps, keys, values, headers)
            assert batch.base_timestamp_ms == timestamps[0]
            assert batch.max_timestamp_ms == max(timestamps)
            assert batch.record_count == 1 or len(batch.payload) <= size_max
            if mine:
                more = [list(column) for column in zip(*part, mine[0], strict=True)]
                assert len(pack_records(*more)) > size_max
        assert not mine


def test_many_rows_make_many_batches() -> None:
    rows: list[_Row] = [(5, b"key-%d" % index, b"x" * 100, ()) for index in range(20_000)]
    batches = _encode(rows, [index % 7 for index in range(20_000)], size_max=16_000, group_count=7)
    assert sum(batch.record_count for batch in batches) == 20_000
    assert all(15_800 < len(batch.payload) <= 16_000 for batch in batches if batch.record_count > 100)
    assert {batch.record_size_max for batch in batches} <= {117, 118, 119}


def test_encodes_a_slice_with_nulls() -> None:
    array = pa.array([b"no", None, b"a", b"", None, b"bb", b"no"], pa.large_binary()).slice(1, 5)
    rows = Rows(np.array([1, 1, 1, 1, 1], np.int64), columnar.null_column(5), columnar.binary_column(array))
    (batch,) = encode_columns(rows, np.zeros(5, np.int32), group_count=1, batch_size_max=1000)
    assert batch.payload == pack_records([1] * 5, [None] * 5, [None, b"a", b"", None, b"bb"])


def test_golden_bytes_both_ways() -> None:
    # Size, attributes, timestamp and offset deltas, key, value, headers.
    first = "1a 00 00 00 0261 046262 02 0268 0278"
    second = "0c 00 02 02 00 01 00"
    expected = bytes.fromhex(first + second)
    assert pack_records([5, 6], [b"a", b""], [b"bb", None], [(("h", b"x"),), ()]) == expected
    (batch,) = _encode([(5, b"a", b"bb", (("h", b"x"),)), (6, b"", None, ())], [0, 0], size_max=99, group_count=1)
    assert batch.payload == expected
    header = read_header(build_batch([Record(0, 5, None, None), Record(1, 6, None, None)]))
    assert _outcome(header, bytes(batch.payload)) == [
        Record(0, 5, b"a", b"bb", (("h", b"x"),)),
        Record(1, 6, b"", None),
    ]


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=40), max_size=20))
def test_hashes_keys_like_java(keys: list[bytes | None]) -> None:
    expected = [-1 if key is None else murmur2(key) & 0x7FFFFFFF for key in keys]
    assert columnar.hash_keys(_column(keys), len(keys)).tolist() == expected


def test_known_hashes() -> None:
    # From Kafka's own test of murmur2, made positive.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    assert columnar.hash_keys(_column(list(known)), 4).tolist() == [value & 0x7FFFFFFF for value in known.values()]


def test_records_are_found_after_the_batch_header() -> None:
    batch = build_batch([Record(0, 1, b"k", b"v")])
    chunk = Chunk(_TP, memoryview(batch), [_range(read_header(batch), HEADER_SIZE, len(batch))])
    assert _records(decode_columns([chunk]).records) == [Record(0, 1, b"k", b"v")]


def test_a_kernel_that_cannot_be_cached_is_still_compiled() -> None:
    scope: dict[str, Any] = {}
    # A function without a file has no place for a cache.
    exec("def double(number): return 2 * number", scope)
    assert kernels.compile_kernel(scope["double"], numba.int64(numba.int64))(21) == 42
