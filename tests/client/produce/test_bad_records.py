"""A record that cannot be sent fails alone: the other records of its batch are written."""

import asyncio
from typing import Any

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.client.errors import SerializationError
from rookery.client.produce.records import ProducerRecord, RecordMetadata
from rookery.records.record import decode_records
from tests.client.fake_broker import FakeBroker, produced
from tests.client.produce.support import BytesProducer, configured, producer_ids, run_with, values_of


class Bytes(bytes):
    pass


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"timestamp_ms": 1.5}, "whole number"),
        ({"timestamp_ms": True}, "whole number"),
        ({"timestamp_ms": "5"}, "whole number"),
        ({"timestamp_ms": -1}, "before 1970"),
        ({"timestamp_ms": 2**63}, "larger than"),
        ({"headers": {"\ud800": b""}}, "cannot be encoded"),
        ({"headers": {"h": bytearray()}}, "a name and bytes or None"),
    ],
)
def test_an_invalid_record_does_not_affect_others(extra: dict[str, Any], reason: str) -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker, linger_ms=5)) as producer:
            sent = [await producer.send("t", b"first", partition=0)]
            with pytest.raises(SerializationError, match=reason):
                await producer.send("t", b"bad", partition=0, **extra)
            sent.append(await producer.send("t", b"second", partition=0, timestamp_ms=2**63 - 1))
            await asyncio.gather(*sent)

    batches, _ = run_with(produced(), work)
    assert values_of(batches) == [b"first", b"second"]


def test_a_record_from_an_interceptor_is_checked() -> None:
    class InvalidHeaders:
        def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
            return record._replace(headers=(("h", "text"),))  # type: ignore[arg-type]  # that is the mistake

        def on_acknowledgement(self, metadata: RecordMetadata | None, error: ApiError | None) -> None:
            pass

    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker), interceptors=[InvalidHeaders()]) as producer:
            with pytest.raises(SerializationError, match="header"):
                await producer.send("t", b"bad")

    run_with(produced(), work)


def test_subclasses_of_bytes_are_bytes() -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker)) as producer:
            await (await producer.send("t", Bytes(b"v"), key=Bytes(b"k"), partition=0))

    (batch,), _ = run_with(produced(), work)
    (record,) = decode_records(batch)
    assert (record.key, record.value) == (b"k", b"v")


@pytest.mark.parametrize("answer", [ZeroDivisionError("oh"), "one", None])
def test_a_partitioner_that_fails_fails_one_record(answer: object) -> None:
    answers = [answer, 1]

    def choose(*_: object, **__: object) -> int:
        given = answers.pop(0)
        if isinstance(given, Exception):
            raise given
        return given  # type: ignore[return-value]  # that is the mistake

    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker), partitioner=choose) as producer:
            with pytest.raises(SerializationError, match="topic t: the partitioner failed"):
                await producer.send("t", b"a")
            assert (await (await producer.send("t", b"a"))).partition == 1

    run_with(produced(), work)


@pytest.mark.parametrize("acks", ["0", "all"])
@pytest.mark.parametrize("place", ["connection", "encode_produce_request"])
def test_an_unexpected_exception_fails_the_futures(monkeypatch: pytest.MonkeyPatch, acks: str, place: str) -> None:
    def broken(*_: object, **__: object) -> Any:
        raise RuntimeError("a bug")

    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker, acks=acks)) as producer:
            await producer.partitions_for("t")
            assert producer._shell is not None
            sender = producer._shell.sender
            with monkeypatch.context() as patch:
                if place == "connection":
                    patch.setattr(sender, "_connect", broken)
                else:
                    patch.setattr("rookery.client.produce.sender.encode_produce_request", broken)
                async with asyncio.timeout(10):
                    with pytest.raises(ApiError, match=r"cannot be sent: .*a bug") as caught:
                        await (await producer.send("t", b"a", partition=0))
                assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
                assert producer._accumulator.in_flight_count == 0
                assert producer._accumulator.unsettled_count == 0
                # A request that is sent now would wait for the failed one.
                while sender._delayed:
                    await asyncio.sleep(0)
            async with asyncio.timeout(10):
                await (await producer.send("t", b"b", partition=0))

    run_with(produced(), work)


def test_a_rejected_producer_id_is_not_requested_in_a_loop() -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker)) as producer:
            with pytest.raises(ApiError):
                await (await producer.send("t", b"a"))
            # Enough turns of the loop for many more requests.
            for _ in range(20):
                await producer._cluster.refresh(["t"])
            assert len(broker.requests) > 20

    _, broker = run_with(
        produced(), work, identify=producer_ids(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    )
    assert sum(key.name == "INIT_PRODUCER_ID" for key, _, _ in broker.requests) == 1
