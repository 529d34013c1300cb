"""Fetched bytes to Arrow and Arrow data to batches, compared with the plain codecs."""

import random
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from rookery.base.errors import ApiError, ErrorCode, InvalidBatchError
from rookery.base.types import TopicName, TopicPartition
from rookery.client import arrow
from rookery.client.arrow import FetchedRun, SplitSettings, decode_fetched, split_for_send, topics_of
from rookery.client.errors import ClientStateError, CorruptRecordError, RecordTooLargeError, SerializationError
from rookery.client.packed_batches import PackedBatch
from rookery.client.produce.partitioners import partition_for_key
from rookery.records.batch import (
    HEADER_SIZE,
    MAGIC_V2,
    NO_SEQUENCE,
    BatchHeader,
    Codec,
    check_batch,
    compute_crc,
    iterate_headers,
    read_header,
    seal,
    seal_header,
)
from rookery.records.batch_writer import pack_records
from rookery.records.compression import compress
from rookery.records.control import Marker, build_marker
from rookery.records.record import Headers, Record, build_batch, decode_records

_TP = TopicPartition("events", 3)
_NOW_MS = 1_700_000_000_000


def _batch(first: int, count: int, *, codec: Codec = Codec.NONE, producer_id: int = -1, **options: Any) -> bytes:
    records = [Record(first + index, 1000 + index, b"k%d" % index, b"v%d" % index) for index in range(count)]
    options |= {"producer_id": producer_id, "producer_epoch": 0 if producer_id >= 0 else -1}
    return bytes(build_batch(records, base_offset=first, codec=codec, **options))


def _marker(offset: int, producer_id: int, *, committed: bool) -> bytes:
    marker = build_marker(Marker(producer_id, 0, committed=committed, coordinator_epoch=0), 1)
    header = read_header(marker)._replace(base_offset=offset)
    return bytes(seal(header, memoryview(marker)[HEADER_SIZE:]))


def _run(data: bytes, position: int = 0, **options: Any) -> FetchedRun:
    return FetchedRun(_TP, memoryview(data), position, **options)


def _offsets(run: FetchedRun) -> tuple[list[int], int]:
    table, positions, _ = decode_fetched([run])
    table.validate(full=True)
    return table.column("offset").to_pylist(), positions[run.tp]


def test_decodes_all_columns() -> None:
    headers: Headers = (("h", b"x"), ("i", None))
    data = build_batch([Record(5, 1000, b"k", b"v", headers), Record(6, 1001, None, None)], base_offset=5)
    table, positions, _ = decode_fetched([_run(bytes(data), 5)])
    assert positions == {_TP: 7}
    assert table.set_column(5, "timestamp", table.column("timestamp").cast(pa.int64())).to_pylist() == [
        {
            "key": b"k",
            "value": b"v",
            "topic": "events",
            "partition": 3,
            "offset": 5,
            "timestamp": 1000,
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"x"}, {"key": "i", "value": None}],
        },
        {
            "key": None,
            "value": None,
            "topic": "events",
            "partition": 3,
            "offset": 6,
            "timestamp": 1001,
            "timestampType": 0,
            "headers": [],
        },
    ]


def test_records_before_the_position_are_skipped_and_the_last_batch_may_be_partial() -> None:
    data = _batch(0, 5) + _batch(5, 5) + _batch(10, 5)
    assert _offsets(_run(data, 3)) == (list(range(3, 15)), 15)
    assert _offsets(_run(data[:-1], 3)) == (list(range(3, 10)), 10)
    assert _offsets(_run(data, 7)) == (list(range(7, 15)), 15)
    assert _offsets(_run(data[:40])) == ([], 0)
    assert _offsets(_run(b"")) == ([], 0)


@pytest.mark.parametrize(
    ("end", "expected", "position"),
    [(7, [3, 4, 5, 6], 7), (5, [3, 4], 5), (3, [], 3), (2, [], 3), (99, list(range(3, 15)), 15)],
)
def test_stops_at_the_end(end: int, expected: list[int], position: int) -> None:
    data = _batch(0, 5) + _batch(5, 5) + _batch(10, 5)
    assert _offsets(_run(data, 3, end=end)) == (expected, position)


def test_the_end_is_reached_across_a_gap() -> None:
    assert _offsets(_run(_batch(0, 5) + _batch(20, 1), end=10)) == ([0, 1, 2, 3, 4], 10)


@pytest.mark.parametrize("codec", Codec)
def test_all_codecs(codec: Codec) -> None:
    data = _batch(0, 50, codec=codec) + _batch(50, 3) + _batch(53, 50, codec=codec) + _batch(103, 50, codec=codec)
    table, *_ = decode_fetched([_run(data)])
    assert table.column("offset").to_pylist() == list(range(153))
    assert table.column("value").to_pylist()[:50] == [b"v%d" % index for index in range(50)]


def test_a_decompression_bomb_is_rejected() -> None:
    payload = compress(Codec.ZSTD, bytes(65 * 1024 * 1024))
    header = read_header(_batch(0, 1, codec=Codec.ZSTD))
    with pytest.raises(CorruptRecordError, match="does not decompress"):
        decode_fetched([_run(bytes(seal(header, payload)))])


def test_log_append_time() -> None:
    table, *_ = decode_fetched([_run(_batch(0, 2, log_append_time_ms=77) + _batch(2, 1))])
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [77, 77, 1000]
    assert table.column("timestampType").to_pylist() == [1, 1, 0]


def test_compacted_and_empty_batches() -> None:
    compacted = bytes(build_batch([Record(2, 1, b"a", b"b"), Record(7, 1, b"c", b"d")], base_offset=0))
    header = read_header(_batch(10, 5))
    empty = bytes(seal(header._replace(record_count=0), b""))
    empty_and_compressed = bytes(seal(header._replace(base_offset=15, record_count=0, attributes=4), b""))
    assert _offsets(_run(compacted + empty + empty_and_compressed, 1)) == ([2, 7], 20)
    assert _offsets(_run(empty, 10)) == ([], 15)


def test_transactions() -> None:
    data = (
        _batch(0, 2, producer_id=1, transactional=True)
        + _batch(2, 2)
        + _batch(4, 2, producer_id=2, transactional=True)
        + _marker(6, 1, committed=False)
        + _batch(7, 1, producer_id=1, transactional=True)
        + _marker(8, 1, committed=True)
        + _marker(9, 2, committed=True)
        + _batch(10, 1, producer_id=1)
    )
    everything = [0, 1, 2, 3, 4, 5, 7, 10]
    assert _offsets(_run(data)) == (everything, 11)
    assert _offsets(_run(data, aborted=[(1, 0)], read_committed=True)) == ([2, 3, 4, 5, 7, 10], 11)
    assert _offsets(_run(data, aborted=None, read_committed=True)) == (everything, 11)
    assert _offsets(_run(data, 5, aborted=[(1, 0)], read_committed=True)) == ([5, 7, 10], 11)


def test_several_partitions_in_one_call() -> None:
    other = TopicPartition("other", 0)
    runs = [
        _run(_batch(0, 2)),
        FetchedRun(other, memoryview(_batch(5, 1)), 5),
        FetchedRun(_TP._replace(partition=4), memoryview(b""), 9),
    ]
    table, positions, _ = decode_fetched(runs)
    assert positions == {_TP: 2, other: 6, TopicPartition("events", 4): 9}
    assert table.column("topic").to_pylist() == ["events", "events", "other"]
    assert table.column("partition").to_pylist() == [3, 3, 0]
    empty, positions, _ = decode_fetched([])
    assert (empty.num_rows, positions) == (0, {})


def _damage(batch: bytes, place: int = -1) -> bytes:
    damaged = bytearray(batch)
    damaged[place] ^= 0x55
    return bytes(damaged)


def _malformed(batch: bytes) -> bytes:
    """Return a malformed batch whose checksum matches."""
    return bytes(seal(read_header(batch), _damage(batch[HEADER_SIZE:], 0)))


@pytest.mark.parametrize("break_batch", [_damage, _malformed, lambda batch: _damage(batch, 16)])
def test_a_damaged_batch_is_reported_when_it_is_at_the_position(break_batch: Any) -> None:
    data = _batch(0, 5) + break_batch(_batch(5, 5)) + _batch(10, 5)
    assert _offsets(_run(data, 2)) == ([2, 3, 4], 5)
    other = FetchedRun(TopicPartition("other", 0), memoryview(_batch(0, 1)), 0)
    broken = _run(data[len(_batch(0, 5)) :], 5)
    with pytest.raises(
        CorruptRecordError, match="topic events, partition 3, offset 9: the batch of offsets 5 to 9"
    ) as info:
        decode_fetched([broken])
    assert (info.value.partition, info.value.offset) == (_TP, 9)
    # The records of other partitions are returned first.
    table, positions, failures = decode_fetched([broken, other])
    assert table.column("topic").to_pylist() == ["other"]
    assert positions == {_TP: 5, other.tp: 1}
    assert [(tp, error.offset) for tp, error in failures.items()] == [(_TP, 9)]
    # Seeking past it works.
    assert _offsets(_run(data[len(_batch(0, 5)) + len(_batch(5, 5)) :], 10)) == (list(range(10, 15)), 15)


def test_checksums_need_not_be_checked() -> None:
    batch = _damage(_batch(0, 2), 20)
    assert _offsets(_run(batch, check_crcs=False)) == ([0, 1], 2)
    with pytest.raises(CorruptRecordError, match="its checksum does not match"):
        decode_fetched([_run(batch)])


@pytest.mark.parametrize(
    "change",
    [
        {"base_offset": -1},
        {"last_offset_delta": -1},
        {"base_offset": 2**63 - 2},
        {"record_count": -1},
        {"record_count": 2**31 - 1},
        {"record_count": 4},
        {"attributes": 7},
    ],
)
def test_impossible_headers_are_rejected(change: dict[str, int]) -> None:
    batch = _batch(0, 5)
    sealed = bytes(seal(read_header(batch)._replace(**change), batch[HEADER_SIZE:]))
    with pytest.raises(CorruptRecordError):
        decode_fetched([_run(sealed)])


def _read_plainly(data: bytes) -> list[Record] | None:
    """Return all records of a run, by the plain decoder; None if its first batch is damaged."""
    records: list[Record] = []
    position = 0
    for start, header in iterate_headers(data):
        batch = data[start : start + header.size_bytes]
        try:
            if compute_crc(batch) != header.crc:
                raise InvalidBatchError(ErrorCode.CORRUPT_MESSAGE, "")
            records += [record for record in decode_records(batch) if record.offset >= position]
        except InvalidBatchError:
            return records if start else None
        position = max(position, header.last_offset + 1)
    return records


@pytest.mark.parametrize("seed", range(3))
def test_both_decoders_agree_on_mutated_runs(seed: int) -> None:
    randomness = random.Random(seed)
    for _ in range(150):
        codec = randomness.choice(list(Codec))
        batches = [_batch(first, 3, codec=codec) for first in (0, 3)]
        broken = randomness.randrange(2)
        payload = bytearray(batches[broken][HEADER_SIZE:])
        payload[randomness.randrange(len(payload))] = randomness.randrange(256)
        batches[broken] = bytes(seal(read_header(batches[broken]), payload))
        data = b"".join(batches)
        expected = _read_plainly(data)
        try:
            table, *_ = decode_fetched([_run(data)])
        except CorruptRecordError:
            assert expected is None
        else:
            table.validate(full=True)
            assert expected is not None
            assert table.column("value").to_pylist() == [record.value for record in expected]
            assert table.column("offset").to_pylist() == [record.offset for record in expected]


def test_batches_beyond_the_size_limit_are_returned_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_DECODED_SIZE_MAX", 150)
    data = _batch(0, 5) + _batch(5, 5) + _batch(10, 5)
    position, seen = 0, []
    for _ in range(3):
        offsets, position = _offsets(_run(data, position))
        seen.append(offsets)
    assert seen == [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [10, 11, 12, 13, 14], []]


def _settings(**options: Any) -> SplitSettings:
    return SplitSettings(**({"batch_size": 16384, "max_request_size": 1_048_576} | options))


def _split(
    data: Any,
    topic: TopicName | None = "events",
    counts: Mapping[TopicName, int] | None = None,
    chosen: Sequence[int] = (0,),
    **options: Any,
) -> list[tuple[TopicPartition, PackedBatch]]:
    turns = iter(list(chosen) * 1000)
    return list(
        split_for_send(
            data,
            topic=topic,
            partition_counts=counts or {"events": 4, "other": 2},
            next_partition=lambda _: next(turns),
            now_ms=_NOW_MS,
            settings=_settings(**options),
        )
    )


def _sealed(batch: PackedBatch, codec: Codec = Codec.NONE) -> bytes:
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        leader_epoch=-1,
        magic=MAGIC_V2,
        crc=0,
        attributes=int(codec),
        last_offset_delta=batch.record_count - 1,
        base_timestamp_ms=batch.base_timestamp_ms,
        max_timestamp_ms=batch.max_timestamp_ms,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=NO_SEQUENCE,
        record_count=batch.record_count,
    )
    sealed = seal_header(header, batch.payload) + batch.payload
    check_batch(sealed)
    return sealed


def _sent(
    split: list[tuple[TopicPartition, PackedBatch]], codec: Codec = Codec.NONE
) -> dict[TopicPartition, list[Record]]:
    sent: dict[TopicPartition, list[Record]] = {}
    for tp, batch in split:
        sent.setdefault(tp, []).extend(decode_records(_sealed(batch, codec)))
    return sent


def test_values_without_keys_stay_together() -> None:
    ((tp, batch),) = _split(pa.table({"value": [b"a", None, b""]}), chosen=[2])
    assert tp == TopicPartition("events", 2)
    assert batch == PackedBatch(
        payload=bytes(pack_records([_NOW_MS] * 3, [None] * 3, [b"a", None, b""])),
        record_count=3,
        base_timestamp_ms=_NOW_MS,
        max_timestamp_ms=_NOW_MS,
        uncompressed_size=len(batch.payload),
        record_size_max=8,
        shared_buffer=batch.shared_buffer,
    )


def test_keys_choose_partitions_as_java_does() -> None:
    keys = [b"key-%d" % index for index in range(200)]
    values = [b"value-%d" % index for index in range(200)]
    sent = _sent(_split(pa.table({"key": keys, "value": values})))
    for tp, records in sent.items():
        mine = [index for index in range(200) if partition_for_key(keys[index], 4) == tp.partition]
        assert [record.value for record in records] == [values[index] for index in mine]
    assert sum(map(len, sent.values())) == 200
    ignored = _split(pa.table({"key": keys, "value": values}), chosen=[1], partitioner_ignore_keys=True)
    assert {tp.partition for tp, _ in ignored} == {1}


def test_rows_without_a_key_are_spread_by_size() -> None:
    data = pa.table({"value": [b"x" * 100] * 1000})
    batches = _split(data, chosen=[3, 1, 0], batch_size=4096)
    assert {tp.partition for tp, _ in batches} == {0, 1, 3}
    assert all(batch.uncompressed_size <= 4096 - HEADER_SIZE for _, batch in batches)
    assert sum(batch.record_count for _, batch in batches) == 1000
    assert len(batches) < 34


def test_columns_name_topic_partition_and_time() -> None:
    data = pa.table(
        {
            "value": ["a", "b", "c", "d"],
            "topic": ["other", "events", "other", "events"],
            "partition": pa.array([1, 3, None, 0], pa.int64()),
            "key": [None, None, "k", None],
            "timestamp": pa.array([1_000_000, None, 3_999_999, 4], pa.timestamp("us", "Europe/Berlin")),
        }
    )
    assert topics_of(data, None) == {"events", "other"}
    other = partition_for_key(b"k", 2)
    assert _sent(_split(data, None))[TopicPartition("other", other)][-1] == Record(1 if other else 0, 3999, b"k", b"c")
    assert _sent(_split(data.filter([True, True, False, True]), None)) == {
        TopicPartition("other", 1): [Record(0, 1000, None, b"a")],
        TopicPartition("events", 3): [Record(0, _NOW_MS, None, b"b")],
        TopicPartition("events", 0): [Record(0, 0, None, b"d")],
    }


def test_the_topic_argument_takes_precedence_over_the_column() -> None:
    """A job that copies a topic must not write the records back to it."""
    data = pa.table({"value": ["a", "b"], "topic": ["other", None], "partition": pa.array([1, 0], pa.int32())})
    assert topics_of(data, "events") == {"events"}
    assert {tp for tp, _ in _split(data, "events")} == {TopicPartition("events", 0), TopicPartition("events", 1)}
    with pytest.raises(SerializationError, match="column topic, row 1: no topic"):
        _split(data, None)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", "b", None]),
        pa.array(["a", "b", None], pa.large_string()),
        pa.array(["a", "b", None], pa.string_view()),
        pa.array([b"a", b"b", None], pa.large_binary()),
        pa.array([b"a", b"b", None], pa.binary_view()),
        pa.array([b"a", b"b", None], pa.binary(1)),
        pa.array(["a", "b", None]).dictionary_encode(),
        pa.array([b"x", b"a", b"b", None, b"x"]).slice(1, 3),
        pa.chunked_array([[b"a"], [], [b"b", None]], pa.binary()),
    ],
    ids=lambda column: str(column.type),
)
def test_all_binary_and_string_types(column: Any) -> None:
    data = pa.table({"value": column, "key": column})
    (records,) = _sent(_split(data, counts={"events": 1})).values()
    assert [(record.key, record.value) for record in records] == [(b"a", b"a"), (b"b", b"b"), (None, None)]


_PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_SWAPPED = pa.large_list(pa.struct([("value", pa.string()), ("key", pa.binary())]))


@pytest.mark.parametrize("kind", [_PAIRS, _SWAPPED, pa.map_(pa.string(), pa.binary())], ids=str)
def test_headers(kind: Any) -> None:
    rows: list[list[tuple[str, str | None]] | None] = [[("a", "x"), ("b", None)], None, [], [("c", "")], [("z", "z")]]
    text = [None if row is None else [{"key": k, "value": v} for k, v in row] for row in rows]
    column = pa.array(rows if pa.types.is_map(kind) else text, kind)
    data = pa.table({"value": [b"v"] * 4, "headers": column.slice(0, 4)})
    (records,) = _sent(_split(data, counts={"events": 1})).values()
    assert [record.headers for record in records] == [(("a", b"x"), ("b", None)), (), (), (("c", b""),)]
    (records,) = _sent(_split(data.slice(3), counts={"events": 1})).values()
    assert [record.headers for record in records] == [(("c", b""),)]


def test_a_consumed_batch_can_be_sent_on() -> None:
    records = [Record(index, 1000 + index, b"k", b"v%d" % index, (("h", b"x"),)) for index in range(5)]
    table, *_ = decode_fetched([_run(bytes(build_batch(records)))])
    ((tp, batch),) = _split(table, topic=None)
    assert tp == _TP
    assert decode_records(_sealed(batch)) == records


@pytest.mark.parametrize("codec", Codec)
def test_batches_are_compressed(codec: Codec) -> None:
    values = [b"value" * 20 for _ in range(1000)]
    batches = _split(pa.table({"value": values}), codec=codec)
    (records,) = _sent(batches, codec).values()
    assert [record.value for record in records] == values
    assert all(batch.uncompressed_size <= 16384 - HEADER_SIZE for _, batch in batches)
    assert (sum(len(batch.payload) for _, batch in batches) < 20_000) == (codec != Codec.NONE)


def test_large_input_is_encoded_in_slices_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.records.input_columns._SLICE_SIZE_BYTES", 1000)
    values = [b"value-%d" % index for index in range(500)]
    table = pa.concat_tables([pa.table({"value": values[:100]}), pa.table({"value": values[100:]})])
    (records,) = _sent(_split(table, counts={"events": 1})).values()
    assert [record.value for record in records] == values


def test_a_record_larger_than_batch_size_gets_its_own_batch() -> None:
    batches = _split(pa.table({"value": [b"a" * 100, b"b" * 5000, b"c" * 100]}), batch_size=1000)
    assert [batch.record_count for _, batch in batches] == [1, 1, 1]


def test_a_record_larger_than_a_request_is_rejected_before_any_is_sent() -> None:
    data = pa.table({"value": [b"a", b"b", b"c" * 2000]})
    with pytest.raises(RecordTooLargeError, match=r"row 2: a record of 2036 bytes does not fit max.request.size=1000"):
        split_for_send(
            data,
            topic="events",
            partition_counts={"events": 1},
            next_partition=lambda _: 0,
            now_ms=0,
            settings=_settings(max_request_size=1000),
        )


_VALUE = pa.array([b"v", b"v"])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pa.table({"key": _VALUE}), "column value is missing .expected binary or string.; there are: key"),
        (pa.table({"value": [1, 2]}), "column value has type int64; expected binary or string"),
        (pa.table({"value": _VALUE, "key": [1.0, 2.0]}), "column key has type double; expected binary or string"),
        (pa.table({"value": _VALUE, "kye": _VALUE}), "column kye is unknown; expected are value, key, topic"),
        (pa.table({"value": _VALUE, "partition": ["a", "b"]}), "column partition has type string; expected int32"),
        (pa.table({"value": _VALUE, "partition": [0, -1]}), "column partition, row 1: -1 is negative"),
        (pa.table({"value": _VALUE, "partition": [0, 2**40]}), "column partition: "),
        (pa.table({"value": _VALUE, "timestamp": ["a", "b"]}), "column timestamp has type string; expected timestamp"),
        (pa.table({"value": _VALUE, "timestamp": [5, -5]}), "column timestamp, row 1: -5 is negative"),
        (pa.table({"value": _VALUE, "topic": [1, 2]}), "column topic has type int64; expected string"),
        (pa.table({"value": _VALUE, "topic": ["events", None]}), "column topic, row 1: no topic"),
        (pa.table({"value": _VALUE}), "column topic is missing"),
        (pa.table({"value": _VALUE, "headers": _VALUE}), "column headers has type binary; expected list<struct<key"),
        (
            pa.table({"value": _VALUE, "headers": pa.array([[], [{"key": None, "value": b"x"}]], _PAIRS)}),
            "column headers, row 1: a header without a key",
        ),
        (pa.Table.from_arrays([_VALUE, _VALUE], names=["value", "value"]), "column value appears 2 times"),
        (17, "not a RecordBatch, Table or other Arrow data"),
    ],
)
def test_errors_name_invalid_columns(data: Any, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        _split(data, topic=None if "topic" in message else "events")


def test_errors_name_unknown_partitions_and_topics() -> None:
    with pytest.raises(ApiError, match="column partition, row 1: topic events has 4 partitions, and none is 4") as info:
        _split(pa.table({"value": _VALUE, "partition": [3, 4]}))
    assert info.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(ApiError, match="topic elsewhere is not known"):
        _split(pa.table({"value": _VALUE}), topic="elsewhere")


def test_nothing_to_send() -> None:
    assert _split(pa.table({"value": pa.array([], pa.binary())})) == []
    assert _split(pa.RecordBatch.from_pydict({"value": pa.array([], pa.null())})) == []


def test_columns_of_the_null_type() -> None:
    data = pa.table({name: pa.nulls(2) for name in ("value", "key", "topic", "partition", "timestamp", "headers")})
    (records,) = _sent(_split(data, counts={"events": 1})).values()
    assert records == [Record(0, _NOW_MS, None, None), Record(1, _NOW_MS, None, None)]


@pytest.mark.parametrize("name", ["numpy", "pyarrow", "numba"])
def test_without_the_libraries_the_error_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in list(sys.modules):
        if module.startswith(("rookery.records.columnar", "rookery.records.kernels", "rookery.records.input_columns")):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    for call in (arrow.load, lambda: decode_fetched([]), lambda: _split(None), lambda: topics_of(None, "t")):
        with pytest.raises(ClientStateError, match=r"pip install '\.\[columns\]'"):
            call()
