import random
from contextlib import suppress
from dataclasses import replace

import pytest

from rookery.base.errors import ErrorCode, InvalidBatchError
from rookery.records.batch import BatchHeader, Codec, check_batch, read_header, seal, write_header
from rookery.records.compression import compress
from rookery.records.inspection import finish, inspect
from rookery.records.policy import ProducePolicy
from rookery.records.produce import prepare
from rookery.records.record import Record, build_batch, decode_records, encode_records
from rookery.storage.config import LogConfig

_NOW_MS = 1_700_000_000_000
_POLICY = ProducePolicy()
_RECORDS = [Record(index, _NOW_MS + index, b"key", b"value" * 20, (("h", b"x"),)) for index in range(5)]
_COMPRESSION_TYPES = ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]


def _rejection_of(
    data: bytearray | memoryview, policy: ProducePolicy = _POLICY, *, zstd_allowed: bool = True
) -> InvalidBatchError:
    with pytest.raises(InvalidBatchError) as caught:
        _accepted(data, policy, zstd_allowed=zstd_allowed)
    return caught.value


def _accepted(
    data: bytearray | memoryview, policy: ProducePolicy = _POLICY, *, zstd_allowed: bool = True
) -> tuple[BatchHeader, bytearray | memoryview]:
    """Return what is appended, after an inspection if the policy requires one."""
    prepared = prepare(data, policy, now_ms=_NOW_MS, zstd_allowed=zstd_allowed)
    if prepared is None:
        inspection = inspect(data, policy, partition="orders-0", now_ms=_NOW_MS, size_max=policy.decompressed_size_max)
        inspected = finish(inspection)
        assert isinstance(inspected, bytearray | memoryview)
        prepared = prepare(inspected, policy, now_ms=_NOW_MS, zstd_allowed=zstd_allowed, is_inspected=True)
    assert prepared is not None
    return prepared


@pytest.mark.parametrize("codec", list(Codec))
def test_batch_passes_unchanged_and_undecoded(codec: Codec) -> None:
    # No codec accepts these bytes, but the CRC is valid: the batch is not decoded.
    invalid = seal(read_header(build_batch(_RECORDS, codec=codec)), b"not records at all" * 5)
    prepared = _accepted(memoryview(invalid))
    assert prepared[0] == read_header(invalid)
    assert prepared[1] == invalid


def test_empty_control_and_old_batches_are_rejected() -> None:
    assert _rejection_of(bytearray()).code == ErrorCode.INVALID_RECORD
    assert _rejection_of(build_batch(_RECORDS, control=True)).code == ErrorCode.INVALID_RECORD
    old = build_batch(_RECORDS)
    old[16] = 1
    assert _rejection_of(old).code == ErrorCode.INVALID_RECORD


def test_wrong_crc_is_corrupt() -> None:
    batch = build_batch(_RECORDS)
    batch[-1] ^= 1
    assert _rejection_of(batch).code == ErrorCode.CORRUPT_MESSAGE


def test_two_batches_are_rejected() -> None:
    assert _rejection_of(build_batch(_RECORDS) + build_batch(_RECORDS)).code == ErrorCode.INVALID_RECORD


def test_wrong_producer_fields_are_rejected() -> None:
    assert _rejection_of(build_batch([Record(3, _NOW_MS, None, b"v")], base_offset=3)).code == ErrorCode.INVALID_RECORD
    batch = build_batch(_RECORDS, producer_id=4, producer_epoch=0)
    assert _rejection_of(batch).code == ErrorCode.INVALID_RECORD
    batch = build_batch(_RECORDS, log_append_time_ms=_NOW_MS)
    assert _rejection_of(batch).code == ErrorCode.INVALID_TIMESTAMP


def test_size_is_limited_before_and_after_recompression() -> None:
    batch = build_batch(_RECORDS)
    assert _accepted(bytearray(batch), replace(_POLICY, batch_size_max=len(batch)))
    assert _rejection_of(batch, replace(_POLICY, batch_size_max=len(batch) - 1)).code == ErrorCode.MESSAGE_TOO_LARGE
    small = build_batch(_RECORDS, codec=Codec.GZIP)
    policy = replace(_POLICY, batch_size_max=len(small), codec=Codec.NONE)
    assert _rejection_of(small, policy).code == ErrorCode.MESSAGE_TOO_LARGE


def test_zstd_needs_a_client_that_supports_it() -> None:
    batch = build_batch(_RECORDS, codec=Codec.ZSTD)
    assert _rejection_of(batch, zstd_allowed=False).code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert _accepted(batch)


def test_unknown_codec_is_rejected() -> None:
    header = read_header(build_batch(_RECORDS))
    assert _rejection_of(seal(header._replace(attributes=5), bytes(99))).code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("codec", list(Codec))
def test_keyless_record_on_compacted_topic(codec: Codec) -> None:
    policy = replace(_POLICY, compacted=True)
    assert _accepted(build_batch(_RECORDS, codec=codec), policy)
    records = [*_RECORDS[:3], _RECORDS[3]._replace(key=None), _RECORDS[4]]
    error = _rejection_of(build_batch(records, codec=codec), policy)
    assert error.code == ErrorCode.INVALID_RECORD
    assert error.record_errors == (
        (3, "Compacted topic cannot accept message without key in topic partition orders-0"),
    )
    assert _accepted(build_batch([_RECORDS[0]._replace(key=b"")], codec=codec), policy)


def test_bomb_on_compacted_topic_is_rejected() -> None:
    payload = encode_records([Record(0, _NOW_MS, b"k", bytes(1 << 20))], base_offset=0, base_timestamp_ms=_NOW_MS)
    header = read_header(build_batch([_RECORDS[0]], codec=Codec.GZIP))
    bomb = seal(header, compress(Codec.GZIP, payload))
    policy = replace(_POLICY, compacted=True, decompressed_size_max=1 << 16)
    assert _rejection_of(bomb, policy).code == ErrorCode.CORRUPT_MESSAGE


def test_timestamp_too_far_ahead() -> None:
    policy = replace(_POLICY, timestamp_after_max_ms=100)
    assert _accepted(build_batch([Record(0, _NOW_MS + 100, None, b"v")]), policy)
    records = [Record(0, _NOW_MS, None, b"v"), Record(1, _NOW_MS + 101, None, b"v")]
    error = _rejection_of(build_batch(records), policy)
    assert (error.code, [index for index, _ in error.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, [1])


def test_header_that_claims_a_timestamp_too_far_ahead() -> None:
    batch = build_batch(_RECORDS)
    lying = seal(read_header(batch)._replace(max_timestamp_ms=_NOW_MS + 10**9), batch[61:])
    assert _rejection_of(lying).code == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", list(Codec))
def test_timestamp_too_old(codec: Codec) -> None:
    policy = replace(_POLICY, timestamp_before_max_ms=100)
    without = Record(0, -1, None, b"v")
    assert _accepted(build_batch([without, Record(1, _NOW_MS - 100, None, b"v")], codec=codec), policy)
    error = _rejection_of(build_batch([without, Record(1, _NOW_MS - 101, None, b"v")], codec=codec), policy)
    assert (error.code, [index for index, _ in error.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, [1])


@pytest.mark.parametrize("codec", list(Codec))
def test_log_append_time_stamps_in_place_and_checks_no_timestamps(codec: Codec) -> None:
    policy = replace(_POLICY, log_append_time=True, timestamp_before_max_ms=1, timestamp_after_max_ms=1)
    data = build_batch([Record(0, 5, b"k", b"v"), Record(1, _NOW_MS * 2, b"k", b"v")], codec=codec)
    prepared = _accepted(data, policy)
    assert prepared[1] is data
    assert prepared[0] == check_batch(data)
    assert prepared[0].max_timestamp_ms == _NOW_MS
    assert [record.timestamp_ms for record in decode_records(data)] == [_NOW_MS, _NOW_MS]


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", _COMPRESSION_TYPES)
def test_recompression_keeps_everything_but_the_codec(source: Codec, target: str) -> None:
    policy = ProducePolicy.of(LogConfig(compression_type=target))
    data = build_batch(
        _RECORDS, codec=source, producer_id=8, producer_epoch=1, base_sequence=40, transactional=True, leader_epoch=-1
    )
    original = read_header(data)
    prepared = _accepted(data, policy)
    assert prepared[0] == check_batch(prepared[1])
    wanted = source if policy.codec is None else policy.codec
    assert prepared[0].codec_id == wanted
    assert (prepared[1] is data) == (wanted == source)
    same = original._replace(batch_length=prepared[0].batch_length, crc=prepared[0].crc)
    assert prepared[0] == same._replace(attributes=original.attributes & ~7 | wanted)
    assert decode_records(prepared[1]) == _RECORDS


def test_recompression_with_log_append_time() -> None:
    policy = ProducePolicy.of(LogConfig(compression_type="lz4", message_timestamp_type="LogAppendTime"))
    prepared = _accepted(build_batch(_RECORDS), policy)
    assert prepared[0] == check_batch(prepared[1])
    assert {record.timestamp_ms for record in decode_records(prepared[1])} == {_NOW_MS}


def test_recompression_rejects_bytes_that_are_not_records() -> None:
    invalid = seal(read_header(build_batch(_RECORDS)), b"not records at all" * 5)
    assert _rejection_of(invalid, replace(_POLICY, codec=Codec.GZIP)).code == ErrorCode.INVALID_RECORD


def test_levels_come_from_the_topic() -> None:
    source = random.Random(3)
    text = b" ".join(b"word%d" % source.randrange(500) for _ in range(20_000))
    data = build_batch([Record(0, _NOW_MS, b"k", text)])
    for quick, thorough in (
        (LogConfig(compression_type="gzip", compression_gzip_level=1), LogConfig(compression_type="gzip")),
        (LogConfig(compression_type="lz4"), LogConfig(compression_type="lz4", compression_lz4_level=12)),
        (LogConfig(compression_type="zstd"), LogConfig(compression_type="zstd", compression_zstd_level=19)),
    ):
        larger = _accepted(bytearray(data), ProducePolicy.of(quick))[1]
        assert len(larger) > len(_accepted(bytearray(data), ProducePolicy.of(thorough))[1])


def test_mutated_batches_raise_only_invalid_batch() -> None:
    source = random.Random(7)
    originals = [bytes(build_batch(_RECORDS, codec=codec)) for codec in Codec]
    policies = [
        replace(_POLICY, compacted=True, timestamp_before_max_ms=1000, decompressed_size_max=1 << 16),
        replace(_POLICY, codec=Codec.NONE, decompressed_size_max=1 << 16),
        replace(_POLICY, log_append_time=True),
    ]
    for _ in range(3000):
        batch = bytearray(source.choice(originals))
        for _ in range(source.randint(1, 4)):
            batch[source.randrange(len(batch))] = source.randrange(256)
        if source.random() < 0.8:
            header = read_header(batch)._replace(base_offset=0)
            batch = seal(header, batch[len(write_header(header)) :])
        with suppress(InvalidBatchError):
            _accepted(batch, source.choice(policies))
