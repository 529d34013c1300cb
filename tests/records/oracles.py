"""Readers and builders of batches from other libraries, with the signatures of ours; untyped libraries stay in here."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from rookery.records.batch import Codec
from rookery.records.record import Record

Read = Callable[[bytes], list[Record]]
Build = Callable[[Sequence[Record], Codec], bytes]


def _plain(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


def _records(batch: Iterable[Any]) -> list[Record]:
    return [
        Record(
            record.offset,
            record.timestamp,
            _plain(record.key),
            _plain(record.value),
            tuple((key, _plain(value)) for key, value in record.headers),
        )
        for record in batch
    ]


def _read_by_aiokafka(batch: bytes) -> list[Record]:
    found = AiokafkaRecords(batch).next_batch()
    assert found is not None
    assert found.validate_crc()
    return _records(found)


def _read_by_kafka_python(batch: bytes) -> list[Record]:
    found = KafkaPythonRecords(batch).next_batch()
    assert found.validate_crc()
    return _records(found)


def _fill(builder: Any, records: Sequence[Record]) -> bytes:
    for record in records:
        headers = list(record.headers)
        assert builder.append(record.offset, record.timestamp_ms, record.key, record.value, headers) is not None
    return bytes(builder.build())


def _build_by_aiokafka(records: Sequence[Record], codec: Codec) -> bytes:
    builder = AiokafkaBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=7,
        producer_epoch=1,
        base_sequence=5,
        batch_size=1 << 30,
    )
    return _fill(builder, records)


def _build_by_kafka_python(records: Sequence[Record], codec: Codec) -> bytes:
    builder = KafkaPythonBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=False,
        producer_id=7,
        producer_epoch=1,
        base_sequence=5,
        batch_size=1 << 30,
    )
    return _fill(builder, records)


READERS: dict[str, Read] = {"aiokafka": _read_by_aiokafka, "kafka-python": _read_by_kafka_python}
BUILDERS: dict[str, Build] = {"aiokafka": _build_by_aiokafka, "kafka-python": _build_by_kafka_python}
