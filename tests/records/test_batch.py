import random
from contextlib import suppress

import pytest

from rookery.base.errors import ErrorCode, InvalidBatchError
from rookery.records.batch import (
    HEADER_SIZE,
    NO_SEQUENCE,
    Codec,
    batch_size_at,
    check_batch,
    compute_crc,
    iterate_headers,
    make_attributes,
    read_header,
    seal,
    stamp,
    stamp_log_append_time,
    write_header,
)
from rookery.records.record import Record, build_batch

_RECORDS = [Record(index, 1000 + index, b"key", b"value") for index in range(3)]


def _code(data: bytes | bytearray) -> ErrorCode:
    with pytest.raises(InvalidBatchError) as caught:
        check_batch(data)
    return caught.value.code


def test_header_round_trip() -> None:
    batch = build_batch(_RECORDS, producer_id=5, producer_epoch=6, base_sequence=7)
    assert write_header(read_header(batch)) == batch[:HEADER_SIZE]
    assert batch_size_at(batch) == read_header(batch).size_bytes == len(batch)
    assert seal(read_header(batch), batch[HEADER_SIZE:]) == batch


def test_stamping_base_offset_and_epoch_leaves_the_crc_valid() -> None:
    batch = build_batch(_RECORDS)
    stamp(batch, 1 << 40, 12)
    header = check_batch(batch)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (1 << 40, (1 << 40) + 2, 12)


def test_stamping_log_append_time_updates_the_crc() -> None:
    batch = build_batch(_RECORDS)
    stamp_log_append_time(memoryview(batch), 99)
    header = check_batch(batch)
    assert header.is_log_append_time
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (1000, 99)


def test_attributes() -> None:
    header = read_header(build_batch(_RECORDS))._replace(attributes=make_attributes(Codec.LZ4))
    assert (header.codec_id, header.is_control, header.is_transactional, header.is_log_append_time) == (3, 0, 0, 0)
    assert header.delete_horizon_ms is None
    everything = make_attributes(
        Codec.ZSTD, log_append_time=True, transactional=True, control=True, delete_horizon=True
    )
    header = header._replace(attributes=everything)
    assert (header.codec_id, header.is_control, header.is_transactional, header.is_log_append_time) == (4, 1, 1, 1)
    assert header.delete_horizon_ms == 1000


def test_sequences_wrap_to_zero() -> None:
    header = read_header(build_batch(_RECORDS, base_sequence=2**31 - 2))
    assert header.last_sequence == 0
    assert header._replace(base_sequence=NO_SEQUENCE).last_sequence == NO_SEQUENCE


def test_errors_carry_the_right_code() -> None:
    good = build_batch(_RECORDS)
    assert _code(b"") == ErrorCode.INVALID_RECORD
    assert _code(good[:-1]) == ErrorCode.INVALID_RECORD
    assert _code(good + b"x") == ErrorCode.INVALID_RECORD
    header, payload = read_header(good), good[HEADER_SIZE:]
    assert _code(seal(header._replace(record_count=4), payload)) == ErrorCode.INVALID_RECORD
    assert _code(seal(header._replace(record_count=0, last_offset_delta=-1), payload)) == ErrorCode.INVALID_RECORD
    assert _code(seal(header._replace(attributes=7), payload)) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    many = header._replace(record_count=2**31 - 1, last_offset_delta=2**31 - 2)
    assert _code(seal(many, payload)) == ErrorCode.INVALID_RECORD
    old_message = bytes(16) + b"\x01" + bytes(20)
    assert _code(old_message) == ErrorCode.INVALID_RECORD


def test_every_flipped_byte_after_the_crc_is_found() -> None:
    good = build_batch(_RECORDS)
    for position in range(16, len(good)):
        damaged = bytearray(good)
        damaged[position] ^= 0x10
        _code(damaged)


def test_headers_of_several_batches() -> None:
    first, second = build_batch(_RECORDS), build_batch(_RECORDS[:1], codec=Codec.GZIP)
    found = list(iterate_headers(first + second + first[:20]))
    assert found == [(0, read_header(first)), (len(first), read_header(second))]
    assert compute_crc(second) == read_header(second).crc


def test_random_bytes_raise_only_invalid_batch() -> None:
    source = random.Random(11)
    good = bytes(build_batch(_RECORDS))
    for _ in range(2000):
        data = bytearray(source.randbytes(source.randrange(120)) if source.random() < 0.3 else good)
        for _ in range(source.randint(1, 4)):
            if data:
                data[source.randrange(len(data))] = source.randrange(256)
        with suppress(InvalidBatchError):
            check_batch(data)
