"""The hooks of a producer: serializers, interceptors, partitioners."""

import asyncio
import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.client.errors import SerializationError
from rookery.client.produce.producer import Producer
from rookery.client.produce.records import ProducerRecord, RecordMetadata
from rookery.client.produce.serialization import Serializers
from rookery.records.record import decode_records
from tests.client.fake_broker import FakeBroker, produced
from tests.client.produce.support import BytesProducer, configured, in_turn, run_with, values_of


class Numbers:
    """A serializer that is an object."""

    def serialize(self, topic: str, data: int) -> bytes:
        return b"%d" % data


def as_json(topic: str, data: object) -> bytes:
    return json.dumps(data).encode()


def test_serializers_are_objects_or_functions() -> None:
    async def work(broker: FakeBroker) -> None:
        config = configured(broker)
        async with Producer[int, dict[str, int]](
            config, key_serializer=Numbers(), value_serializer=as_json
        ) as producer:
            metadata = await (await producer.send("t", {"a": 1}, key=7))
            assert (metadata.serialized_key_size, metadata.serialized_value_size) == (1, 8)

    (batch,), _ = run_with(produced(), work)
    (record,) = decode_records(batch)
    assert (record.key, record.value) == (b"7", b'{"a": 1}')


def test_a_record_that_cannot_be_serialized_fails_alone() -> None:
    async def work(broker: FakeBroker) -> None:
        async with Producer[bytes, object](configured(broker), value_serializer=as_json) as producer:
            with pytest.raises(SerializationError, match="topic t: the value cannot be serialized"):
                await producer.send("t", object())
            with pytest.raises(SerializationError, match=r"the key is str: give bytes, or a key_serializer"):
                await producer.send("t", 1, key="k")  # type: ignore[arg-type]  # that is the mistake
            with pytest.raises(SerializationError, match="before 1970"):
                await producer.send("t", 1, timestamp_ms=-5)
            for headers in ({"a": "b"}, ["ab", "c"], [1], [(b"a", b"b")]):
                with pytest.raises(SerializationError, match="header"):
                    await producer.send("t", 1, headers=headers)  # type: ignore[arg-type]  # that is the mistake
            await (await producer.send("t", 1))

    batches, _ = run_with(produced(), work)
    assert values_of(batches) == [b"1"]


def test_other_buffers_are_copied() -> None:
    async def work(broker: FakeBroker) -> None:
        async with Producer[Any, Any](configured(broker, linger_ms=5)) as producer:
            buffer = bytearray(b"abc")
            sent = await producer.send("t", buffer, partition=0)
            buffer[:] = b"xyz"
            await producer.send("t", memoryview(b"view"), partition=0)
            await sent

    batches, _ = run_with(produced(), work)
    assert values_of(batches) == [b"abc", b"view"]


def test_a_serializer_must_be_callable_and_return_bytes() -> None:
    with pytest.raises(TypeError, match="a serializer is a function"):
        Serializers(None, 5)  # type: ignore[arg-type]  # that is the mistake
    with pytest.raises(SerializationError, match="its serializer must return bytes"):
        Serializers(None, lambda topic, data: "text").value("t", 1)  # type: ignore[arg-type]
    assert Serializers(None, lambda topic, data: None).value("t", 1) is None
    assert not Serializers(None, None)


class Interceptor:
    def __init__(self, log: list[str], *, fails: bool = False) -> None:
        self._log = log
        self._fails = fails

    def on_send(self, record: ProducerRecord[bytes, bytes]) -> ProducerRecord[bytes, bytes]:
        if self._fails:
            raise RuntimeError("a bad interceptor")
        return record._replace(value=(record.value or b"") + b"!", headers=(("seen", b"1"),))

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: ApiError | None) -> None:
        self._log.append(error.code.name if error else f"{metadata.offset}" if metadata else "?")
        if self._fails:
            raise RuntimeError("a bad interceptor")


def test_interceptors_change_records_get_their_results_and_may_fail() -> None:
    log: list[str] = []

    async def work(broker: FakeBroker) -> None:
        interceptors = [Interceptor([], fails=True), Interceptor(log)]
        async with BytesProducer(configured(broker, max_request_size=1000), interceptors=interceptors) as producer:
            await (await producer.send("t", b"a", partition=0))
            with pytest.raises(ApiError):
                await (await producer.send("t", b"b", partition=0))
            with pytest.raises(ApiError):
                await producer.send("t", bytes(2000), partition=0)

    answers = in_turn(produced(base_offset=3), produced(ErrorCode.INVALID_REQUIRED_ACKS))
    batches, _ = run_with(answers, work)
    assert values_of(batches) == [b"a!", b"b!"]
    assert decode_records(batches[0])[0].headers == (("seen", b"1"),)
    assert log == ["3", "INVALID_REQUIRED_ACKS", "MESSAGE_TOO_LARGE"]


class Last:
    def partition(
        self, topic: str, key: bytes | None, value: bytes | None, partition_count: int, *, available: Sequence[int]
    ) -> int:
        return partition_count - 1


def by_length(
    topic: str, key: bytes | None, value: bytes | None, partition_count: int, *, available: Sequence[int]
) -> int:
    return len(value or b"") % partition_count


def partitions_with(partitioner: Any, **settings: object) -> list[int]:
    found: list[int] = []

    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker, **settings), partitioner=partitioner) as producer:
            sent = [await producer.send("t", bytes(size), key=b"k") for size in range(4)]
            found.extend(metadata.partition for metadata in await asyncio.gather(*sent))

    run_with(produced(), work)
    return found


def test_a_partitioner_is_an_object_or_a_function() -> None:
    assert partitions_with(Last()) == [1, 1, 1, 1]
    assert partitions_with(by_length) == [0, 1, 0, 1]


@pytest.mark.parametrize("name", ["round-robin", "org.apache.kafka.clients.producer.RoundRobinPartitioner"])
def test_round_robin_by_the_settings(name: str) -> None:
    assert partitions_with(None, partitioner_class=name) == [0, 1, 0, 1]


def test_keys_may_be_ignored() -> None:
    found: set[int] = set()

    async def work(broker: FakeBroker) -> None:
        config = configured(broker, partitioner_ignore_keys="true", batch_size=100)
        async with BytesProducer(config, randomness=Random(1)) as producer:
            sent = [await producer.send("t", bytes(50), key=b"k") for _ in range(20)]
            found.update(metadata.partition for metadata in await asyncio.gather(*sent))

    run_with(produced(), work)
    assert found == {0, 1}


def test_a_partition_that_does_not_exist_is_reported() -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker), partitioner=lambda *_, **__: 9) as producer:
            with pytest.raises(ApiError, match="only 2 partitions, there is no 9"):
                await producer.send("t", b"a")

    run_with(produced(), work)
