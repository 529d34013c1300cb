"""Prepares a produced batch, as the leader, before it is appended to the log.

`prepare` is called by the produce path for every batch and raises `InvalidBatchError` with the error code to return. It
looks at the header and the CRC only. If a topic's configuration requires something that the header does not show (keys
on a compacted topic, a lower bound on timestamps, another compression than the producer's), the batch has to be
inspected first: `records.inspection` does that, in steps.
"""

from rookery.base.errors import ErrorCode, InvalidBatchError
from rookery.base.types import NO_PRODUCER_ID, TimestampMs
from rookery.records.batch import (
    BatchHeader,
    Codec,
    check_batch,
    make_attributes,
    read_header,
    stamp_log_append_time,
)
from rookery.records.compression import compress
from rookery.records.inspection import in_codec, must_inspect
from rookery.records.policy import ProducePolicy
from rookery.records.record import open_records

# The attributes that a producer must not set: LogAppendTime and control.
_BROKER_ATTRIBUTES = make_attributes(Codec.NONE, log_append_time=True, control=True)


def prepare(
    data: bytearray | memoryview,
    policy: ProducePolicy,
    *,
    now_ms: TimestampMs,
    zstd_allowed: bool = True,
    is_inspected: bool = False,
) -> tuple[BatchHeader, bytearray | memoryview] | None:
    """Check one untrusted batch and change it in place as the topic's configuration requires.

    Returns the header and the bytes to append. None: the batch has to be inspected first, and then passed again with
    `is_inspected`. `zstd_allowed` is false for Produce below v7, whose clients do not know zstd.
    """
    if not 0 < len(data) <= policy.batch_size_max:
        raise _wrong_size(len(data), policy)
    header = check_batch(data)
    if header.base_offset or header.attributes & _BROKER_ATTRIBUTES or header.producer_id > NO_PRODUCER_ID:
        _check_producer_fields(header)
    if not zstd_allowed and header.codec_id == Codec.ZSTD:
        raise InvalidBatchError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce v7 or later")
    if not is_inspected and must_inspect(header, policy, now_ms):
        return None
    return _stamp(data, now_ms) if policy.log_append_time else (header, data)


def prepare_own(
    data: bytearray | memoryview, policy: ProducePolicy, *, now_ms: TimestampMs
) -> tuple[BatchHeader, bytearray | memoryview]:
    """Prepare a batch that the broker itself writes.

    It may have a producer without sequence numbers, and its records are not checked.
    """
    header = check_batch(data)
    if policy.codec is not None and policy.codec != header.codec_id:
        payload = open_records(header, data, size_max=policy.decompressed_size_max)
        data = in_codec(header, policy.codec, compress(policy.codec, payload, policy.level))
        header = read_header(data)
    if len(data) > policy.batch_size_max:
        raise _wrong_size(len(data), policy)
    return _stamp(data, now_ms) if policy.log_append_time else (header, data)


def _stamp(data: bytearray | memoryview, now_ms: TimestampMs) -> tuple[BatchHeader, bytearray | memoryview]:
    stamp_log_append_time(data, now_ms)
    return read_header(data), data


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


def _invalid(message: str) -> InvalidBatchError:
    return InvalidBatchError(ErrorCode.INVALID_RECORD, message)
