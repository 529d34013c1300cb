"""What a leader does to a produced batch before the log takes it.

`prepare` is called by the produce path for every batch and raises `InvalidBatchError` with the code to answer. It
looks at the header and the CRC only. The batch is opened just where a topic's configuration asks for something that
the header cannot tell: keys on a compacted topic, a lower bound on timestamps, another compression than the
producer's.
"""

from typing import Protocol

from rookery.base.errors import ErrorCode, InvalidBatchError
from rookery.base.types import NO_PRODUCER_ID, NO_TIMESTAMP, Buffer, TimestampMs
from rookery.base.values import value_class
from rookery.records.batch import (
    BatchHeader,
    Codec,
    check_batch,
    make_attributes,
    read_header,
    seal,
    stamp_log_append_time,
)
from rookery.records.compression import DECOMPRESSED_SIZE_MAX, compress
from rookery.records.record import Record, decode_records, open_batch, read_records

_FOREVER_MS = 2**63 - 1
_CODEC_MASK = 0x07
# Those that a producer must not set: LogAppendTime and control.
_BROKER_ATTRIBUTES = make_attributes(Codec.NONE, log_append_time=True, control=True)
_CODECS = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class TopicSettings(Protocol):
    """The topic configs that `ProducePolicy` comes from; a log's configuration has them."""

    @property
    def compacts(self) -> bool: ...
    @property
    def max_message_bytes(self) -> int: ...
    @property
    def message_timestamp_type(self) -> str: ...
    @property
    def message_timestamp_before_max_ms(self) -> int: ...
    @property
    def message_timestamp_after_max_ms(self) -> int: ...
    @property
    def compression_type(self) -> str: ...
    @property
    def compression_gzip_level(self) -> int: ...
    @property
    def compression_lz4_level(self) -> int: ...
    @property
    def compression_zstd_level(self) -> int: ...


@value_class(kw_only=True)
class ProducePolicy:
    """What a topic's configuration asks of produced batches; made once per configuration, not per batch."""

    batch_size_max: int = 1_048_588
    compacted: bool = False
    log_append_time: bool = False
    timestamp_before_max_ms: int = _FOREVER_MS
    timestamp_after_max_ms: int = 3_600_000
    # None leaves the producer's choice.
    codec: Codec | None = None
    level: int | None = None
    decompressed_size_max: int = DECOMPRESSED_SIZE_MAX

    @classmethod
    def of(cls, settings: TopicSettings) -> "ProducePolicy":
        codec = _CODECS[settings.compression_type]
        levels = {
            Codec.GZIP: settings.compression_gzip_level,
            Codec.LZ4: settings.compression_lz4_level,
            Codec.ZSTD: settings.compression_zstd_level,
        }
        return cls(
            batch_size_max=settings.max_message_bytes,
            compacted=settings.compacts,
            log_append_time=settings.message_timestamp_type == "LogAppendTime",
            timestamp_before_max_ms=settings.message_timestamp_before_max_ms,
            timestamp_after_max_ms=settings.message_timestamp_after_max_ms,
            codec=codec,
            level=None if codec is None else levels.get(codec),
        )


def prepare(
    data: bytearray | memoryview,
    policy: ProducePolicy,
    *,
    now_ms: TimestampMs,
    zstd_allowed: bool = True,
    is_internal: bool = False,
) -> tuple[BatchHeader, bytearray | memoryview]:
    """Check one untrusted batch and make it what the topic wants; `data` is changed in place where possible.

    Answers with the header and the bytes to append: those that came in, unless the batch was compressed anew.
    `zstd_allowed` is false for Produce below v7, whose clients do not know zstd. `is_internal` is for the broker's own
    batches: they may have a producer and no sequence numbers, and their records need no look.
    """
    if not 0 < len(data) <= policy.batch_size_max:
        raise _wrong_size(len(data), policy)
    header = check_batch(data)
    is_special = header.base_offset or header.attributes & _BROKER_ATTRIBUTES or header.producer_id > NO_PRODUCER_ID
    if is_special and not is_internal:
        _check_producer_fields(header)
    if not zstd_allowed and header.codec_id == Codec.ZSTD:
        raise InvalidBatchError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce v7 or later")
    is_too_new = header.max_timestamp_ms - now_ms > policy.timestamp_after_max_ms
    is_looked_into = is_too_new or policy.compacted or policy.timestamp_before_max_ms != _FOREVER_MS
    if is_looked_into and not is_internal:
        _check_records(data, header, policy, now_ms)
    if policy.codec is not None and policy.codec != header.codec_id:
        data = _recompress(data, policy.codec, policy)
        if len(data) > policy.batch_size_max:
            raise _wrong_size(len(data), policy)
        header = read_header(data)
    if policy.log_append_time:
        stamp_log_append_time(data, now_ms)
        header = read_header(data)
    return header, data


def _wrong_size(size: int, policy: ProducePolicy) -> InvalidBatchError:
    if size == 0:
        return _invalid("a produce request needs one record batch per partition")
    return InvalidBatchError(
        ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes is over the topic's {policy.batch_size_max}"
    )


def _check_producer_fields(header: BatchHeader) -> None:
    if header.is_control:
        raise _invalid("clients must not write control records")
    if header.base_offset != 0:
        raise _invalid(f"the base offset must be 0, not {header.base_offset}")
    if header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0:
        raise _invalid(f"sequence number {header.base_sequence} with producer id {header.producer_id}")
    if header.is_log_append_time:
        raise InvalidBatchError(ErrorCode.INVALID_TIMESTAMP, "a producer must not set the timestamp type LogAppendTime")


def _check_records(data: Buffer, header: BatchHeader, policy: ProducePolicy, now_ms: TimestampMs) -> None:
    """Open the batch and look at each record, because the policy asks for it or the newest one seems too new."""
    if policy.log_append_time and not policy.compacted:
        return
    for index, record in enumerate(decode_records(data, size_max=policy.decompressed_size_max)):
        if policy.compacted and record.key is None:
            raise _invalid("a compacted topic cannot take a record without a key", index)
        if not policy.log_append_time:
            _check_timestamp(record, index, policy, now_ms)
    if not policy.log_append_time and header.max_timestamp_ms - now_ms > policy.timestamp_after_max_ms:
        raise InvalidBatchError(
            ErrorCode.INVALID_TIMESTAMP, f"the batch's max timestamp {header.max_timestamp_ms} is not a record's"
        )


def _check_timestamp(record: Record, index: int, policy: ProducePolicy, now_ms: TimestampMs) -> None:
    if record.timestamp_ms == NO_TIMESTAMP:
        return
    oldest_ms, newest_ms = now_ms - policy.timestamp_before_max_ms, now_ms + policy.timestamp_after_max_ms
    if not oldest_ms <= record.timestamp_ms <= newest_ms:
        raise InvalidBatchError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {record.timestamp_ms} of record {index} is not within [{oldest_ms}, {newest_ms}]",
            record_index=index,
        )


def _recompress(data: Buffer, codec: Codec, policy: ProducePolicy) -> bytearray:
    """The same records under another codec: only the attributes, the length and the CRC differ around them."""
    header, payload = open_batch(data, size_max=policy.decompressed_size_max)
    # Bytes that are no records must not be hidden under a valid CRC of ours.
    read_records(header, payload)
    attributes = header.attributes & ~_CODEC_MASK | codec
    return seal(header._replace(attributes=attributes), compress(codec, payload, policy.level))


def _invalid(message: str, index: int | None = None) -> InvalidBatchError:
    return InvalidBatchError(ErrorCode.INVALID_RECORD, message, record_index=index)
