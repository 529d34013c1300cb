"""Conversion of record batches to Arrow and back, without a broker: the work of `poll_arrow` and `send_arrow`.

The processor time of this process and all its threads is measured, because the goal is for one core.
"""

import time
from itertools import cycle, islice

import pyarrow as pa

from bench.load import Measurements, await_go, run_action
from bench.payload import event_text
from rookery.base.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from rookery.client.arrow import FetchedRun, SplitSettings, decode_fetched, load, split_for_send
from rookery.client.packed_batches import PackedBatch
from rookery.records.batch import MAGIC_V2, NO_SEQUENCE, BatchHeader, Codec, make_attributes, seal

_PARTITION = TopicPartition("events", 0)
_BATCH_BYTES = 1_000_000
_RUN_BYTES = 10_000_000
_VALUES = 1000
_TIME_MS = 1_700_000_000_000


def decode(*, record_bytes: int, records: int, codec: str, passes: int) -> Measurements:
    runs = _runs(record_bytes, records, codec)
    decode_fetched(runs[:1])
    await_go()
    started_s = time.process_time()
    rows = 0
    for _ in range(passes):
        for run in runs:
            batch = decode_fetched([run]).records
            rows += batch.num_rows
    return _measured(rows, passes * records, record_bytes, time.process_time() - started_s)


def encode(*, record_bytes: int, records: int, codec: str, passes: int) -> Measurements:
    chunks = _chunks(record_bytes, records)
    _encode(chunks[0].slice(0, 1), codec)
    await_go()
    started_s = time.process_time()
    rows = sum(batch.record_count for _ in range(passes) for chunk in chunks for batch in _encode(chunk, codec))
    return _measured(rows, passes * records, record_bytes, time.process_time() - started_s)


def _measured(rows: int, expected: int, record_bytes: int, cpu_s: float) -> Measurements:
    if rows != expected:
        raise RuntimeError(f"{rows} records instead of {expected}")
    return {"cpu_s": cpu_s, "records": rows, "bytes": rows * record_bytes}


def _chunks(record_bytes: int, records: int) -> list[pa.RecordBatch]:
    """Return the records in chunks of about the size of a fetch."""
    load()
    text = event_text(record_bytes * _VALUES)
    values = cycle([text[start : start + record_bytes] for start in range(0, len(text), record_bytes)])
    chunks = []
    while records:
        rows = min(records, max(1, _RUN_BYTES // record_bytes))
        chunks.append(pa.record_batch({"value": pa.array(list(islice(values, rows)), pa.binary())}))
        records -= rows
    return chunks


def _encode(chunk: pa.RecordBatch, codec: str) -> list[PackedBatch]:
    settings = SplitSettings(_BATCH_BYTES, 2 * _BATCH_BYTES, Codec[codec.upper()])
    split = split_for_send(
        chunk,
        topic=_PARTITION.topic,
        partition_counts={_PARTITION.topic: 1},
        next_partition=lambda topic: 0,
        now_ms=_TIME_MS,
        settings=settings,
    )
    return [batch for _, batch in split]


def _runs(record_bytes: int, records: int, codec: str) -> list[FetchedRun]:
    runs, offset = [], 0
    for chunk in _chunks(record_bytes, records):
        start, data = offset, bytearray()
        for batch in _encode(chunk, codec):
            header = BatchHeader(
                base_offset=offset,
                batch_length=0,
                leader_epoch=0,
                magic=MAGIC_V2,
                crc=0,
                attributes=make_attributes(Codec[codec.upper()]),
                last_offset_delta=batch.record_count - 1,
                base_timestamp_ms=batch.base_timestamp_ms,
                max_timestamp_ms=batch.max_timestamp_ms,
                producer_id=NO_PRODUCER_ID,
                producer_epoch=NO_PRODUCER_EPOCH,
                base_sequence=NO_SEQUENCE,
                record_count=batch.record_count,
            )
            data += seal(header, batch.payload)
            offset += batch.record_count
        runs.append(FetchedRun(_PARTITION, memoryview(data), start))
    return runs


if __name__ == "__main__":
    run_action({"decode": decode, "encode": encode})
