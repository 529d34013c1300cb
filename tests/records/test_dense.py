import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.records.batch import BatchHeader, read_header
from rookery.records.batch_reader import RecordColumns, unpack_records
from rookery.records.dense import unpack_dense
from rookery.records.record import Record, build_batch, open_records

START_MS = 1_700_000_000_000


def opened(records: list[Record], **fields: int) -> tuple[BatchHeader, bytes]:
    batch = bytes(build_batch(records, **fields))  # type: ignore[arg-type]
    header = read_header(batch)
    return header, open_records(header, batch)


def plain(columns: RecordColumns) -> tuple[object, ...]:
    return tuple(column if column is None else list(column) for column in columns)


def check(records: list[Record]) -> None:
    header, payload = opened(records)
    columns = unpack_dense(header, payload)
    assert columns is not None
    assert plain(columns) == plain(unpack_records(header, payload))


_BYTES = st.one_of(st.none(), st.binary(max_size=40), st.sampled_from([b"", b"same", b"x" * 100, b"y" * 5000]))
_RECORDS = st.lists(st.tuples(st.integers(0, 4000), st.one_of(st.none(), st.binary(max_size=60)), _BYTES), min_size=1)


@given(_RECORDS, st.integers(0, 90))
def test_equals_the_general_decoder(rows: list[tuple[int, bytes | None, bytes | None]], more: int) -> None:
    records = [Record(n, START_MS + delay, key, value) for n, (delay, key, value) in enumerate(rows)]
    last = records[-1]
    # More records of the same size after them.
    records += [last._replace(offset=last.offset + 1 + n, timestamp_ms=START_MS + n) for n in range(more)]
    check(records)


@pytest.mark.parametrize("count", [1, 15, 16, 63, 64, 65, 200, 8191, 8192, 8193, 8300])
@pytest.mark.parametrize("size", [0, 3, 100, 1000])
@pytest.mark.parametrize("key", [None, b"", b"k" * 36])
def test_records_of_one_size(count: int, size: int, key: bytes | None) -> None:
    check([Record(n, START_MS + n // 3, key, bytes([n & 0xFF]) * size) for n in range(count)])


@pytest.mark.parametrize("step_ms", [0, 1, 63, 64, 100, 8000])
def test_timestamps_of_growing_width(step_ms: int) -> None:
    check([Record(n, START_MS + min(n * step_ms, 8191), None, b"value") for n in range(150)])


def test_a_size_that_changes_in_the_middle() -> None:
    sizes = [50] * 100 + [51] * 5 + [50] * 30 + [7] * 40
    check([Record(n, START_MS, None, b"v" * size) for n, size in enumerate(sizes)])


@pytest.mark.parametrize(
    "records",
    [
        [Record(0, START_MS, None, b"v", (("h", b"1"),))],
        [Record(0, START_MS, None, b"v"), Record(2, START_MS, None, b"v")],
        [Record(0, START_MS, b"k" * 64, b"v")],
        [Record(0, START_MS, None, b"v" * 9000)],
        [Record(0, -5, None, b"v")],
        [Record(n, START_MS, None, b"v") for n in range(65_537)],
        [Record(n, START_MS, None, b"v", (("h", None),) if n == 50 else ()) for n in range(100)],
    ],
    ids=["headers", "a gap", "a long key", "a large value", "before 1970", "too many", "headers somewhere"],
)
def test_other_batches_are_left_to_the_general_decoder(records: list[Record]) -> None:
    assert unpack_dense(*opened(records)) is None


def test_the_largest_number_of_records() -> None:
    header, payload = opened([Record(n, START_MS, None, b"v") for n in range(65_536)])
    assert unpack_dense(header, payload) == unpack_records(header, payload)


def test_log_append_time() -> None:
    header, payload = opened([Record(0, 5, None, b"v")] * 1, log_append_time_ms=START_MS)
    columns = unpack_dense(header, payload)
    assert columns is not None
    assert list(columns.timestamps_ms) == [START_MS]


@pytest.mark.parametrize("seed", range(400))
def test_damaged_batches_equal_the_general_decoder(seed: int) -> None:
    """Every batch that it accepts is accepted by the general decoder, with the same result."""
    chance = random.Random(seed)
    size = chance.choice([3, 20, 100])
    count = chance.choice([5, 40, 100])
    values = [bytes(size if chance.random() < 0.9 else chance.randrange(size)) for _ in range(count)]
    header, payload = opened([Record(n, START_MS + n, None, value) for n, value in enumerate(values)])
    changed = bytearray(payload)
    for _ in range(chance.randint(1, 3)):
        changed[chance.randrange(len(changed))] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)])
    columns = unpack_dense(header, bytes(changed))
    if columns is not None:
        assert plain(columns) == plain(unpack_records(header, bytes(changed)))
