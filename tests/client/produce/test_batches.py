import asyncio

from hypothesis import given
from hypothesis import strategies as st

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.packed_batches import PackedBatch
from rookery.client.produce.batches import RECORD_OVERHEAD_BYTES, Batch, headers_size
from rookery.client.produce.receipts import PackedGroup
from rookery.client.produce.records import BatchMetadata, RecordMetadata
from rookery.client.produce.sequences import ProducerIdentity
from rookery.records.batch import HEADER_SIZE, Codec, check_batch
from rookery.records.batch_reader import unpack_records
from rookery.records.record import Headers, Record, build_batch, decode_records, open_batch

TP = TopicPartition("t", 3)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3).map(tuple)
ROWS = st.lists(
    st.tuples(st.integers(0, 2**40), st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=50), HEADERS),
    min_size=1,
    max_size=20,
)


def filled(rows: list[tuple[int, bytes | None, bytes | None, Headers]]) -> Batch[int]:
    batch: Batch[int] = Batch(TP, 1, 0.0, 100_000)
    for token, (timestamp_ms, key, value, headers) in enumerate(rows):
        assert batch.append(timestamp_ms, key, value, headers, 100, token)
    batch.close()
    return batch


def sent(batch: Batch[int], codec: Codec = Codec.NONE) -> bytes:
    batch.pack(codec, None)
    return b"".join(batch.parts(codec, transactional=True))


@given(ROWS, st.sampled_from(Codec))
def test_a_batch_contains_the_appended_records(
    rows: list[tuple[int, bytes | None, bytes | None, Headers]], codec: Codec
) -> None:
    batch = filled(rows)
    batch.number(ProducerIdentity(5, 2), 77)
    data = sent(batch, codec)
    header = check_batch(data)
    assert header[8:] == (max(row[0] for row in rows), 5, 2, 77, len(rows))
    assert header.is_transactional
    assert decode_records(data) == [Record(index, *row) for index, row in enumerate(rows)]


@given(ROWS, st.integers(0, 2**31 - 1))
def test_halves_have_the_records_numbers_and_memory_of_the_batch(
    rows: list[tuple[int, bytes | None, bytes | None, Headers]], sequence: int
) -> None:
    batch = filled([*rows, *rows])
    batch.number(ProducerIdentity(5, 2), sequence)
    batch.callbacks = [(index, lambda metadata, error: None) for index in range(0, 2 * len(rows), 2)]
    parts = batch.split()
    assert [token for part in parts for token in part.tokens] == batch.tokens
    assert sum(part.reserved_bytes for part in parts) == batch.reserved_bytes
    assert sum(len(part.callbacks or ()) for part in parts) == len(batch.callbacks)
    assert parts[1].base_sequence == (sequence + parts[0].record_count) & 0x7FFFFFFF
    halves = [record[1:] for part in parts for record in decode_records(sent(part))]
    assert halves == [record[1:] for record in decode_records(sent(batch))]


def test_metadata_has_offsets_and_prefers_the_brokers_timestamp() -> None:
    batch = filled([(5, None, b"abc", ()), (6, b"k", None, ())])
    sent(batch)
    assert batch.metadata_rows(10, -1) == [RecordMetadata("t", 3, 10, 5, -1, 3), RecordMetadata("t", 3, 11, 6, 1, -1)]
    assert [(row.offset, row.timestamp_ms) for row in batch.metadata_rows(-1, 99)] == [(-1, 99), (-1, 99)]


def test_a_closed_batch_accepts_no_record_and_returns_its_unused_memory() -> None:
    batch: Batch[int] = Batch(TP, 1, 0.0, 100)
    assert batch.append(0, None, b"", (), 40, 1)
    assert (batch.used_bytes, batch.close(), batch.close()) == (40, 60, 0)
    assert (batch.reserved_bytes, batch.used_bytes) == (40, 40)
    assert not batch.append(0, None, b"", (), 0, 2)


def test_a_packed_batch_can_be_unpacked_and_split() -> None:
    records = [Record(index, 5 + index, None, b"%d" % index, ()) for index in range(4)]
    payload = bytes(build_batch(records)[HEADER_SIZE:])
    batch: Batch[int] = Batch(TP, 1, 0.0, len(payload))
    batch.set_packed(
        PackedBatch(payload, 4, 5, 8, len(payload), 15), PackedGroup(asyncio.new_event_loop().create_future())
    )
    data = sent(batch)
    assert decode_records(data) == records
    batch.unpack(unpack_records(*open_batch(data)))
    values = [record.value for part in batch.split() for record in decode_records(sent(part))]
    assert values == [record.value for record in records]


def test_a_group_waits_for_all_its_batches_and_reports_the_first_error() -> None:
    async def run() -> None:
        future: asyncio.Future[list[BatchMetadata]] = asyncio.get_running_loop().create_future()
        group = PackedGroup(future)
        group.expect()
        group.expect()
        later, first = BatchMetadata("t", 1, 5, 2, 0), BatchMetadata("t", 0, 7, 2, 0)
        group.delivered(later)
        group.finish()
        assert not future.done()
        group.delivered(first)
        assert await future == [first, later]
        rejected = PackedGroup(asyncio.get_running_loop().create_future())
        rejected.expect()
        error = ApiError(ErrorCode.MESSAGE_TOO_LARGE)
        rejected.failed(error)
        rejected.finish()
        assert rejected.future.exception() is error

    asyncio.run(run())


@given(st.binary(max_size=300), st.binary(max_size=50), HEADERS)
def test_the_estimated_size_is_close_to_the_real_size(value: bytes, key: bytes, headers: Headers) -> None:
    real = len(build_batch([Record(0, 0, key, value, headers)])) - HEADER_SIZE
    estimate = RECORD_OVERHEAD_BYTES + len(key) + len(value) + headers_size(headers)
    wide = sum(len(name.encode()) - len(name) for name, _ in headers)
    assert real - wide <= estimate <= real + 10 + 2 * len(headers)
