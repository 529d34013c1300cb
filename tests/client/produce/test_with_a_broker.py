"""The producer with a real broker: all codecs, and faults under which no record is lost, duplicated or reordered."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.client.produce.records import RecordMetadata
from rookery.records.batch import Codec
from rookery.testing import EmbeddedBroker
from tests.client.produce.support import BytesProducer, configured, read_batches, read_values
from tests.support.retention import KEEPS_OLD_RECORDS


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings={"num.partitions": "3"} | KEEPS_OLD_RECORDS) as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    yield shared_broker
    shared_broker.faults.clear()


async def send_numbers(
    bootstrap: str, topic: str, count: int, **settings: object
) -> list["RecordMetadata | BaseException"]:
    """Send the records 0, 1, 2 and so on to one partition; return the result of each."""
    async with BytesProducer(configured(bootstrap, **settings)) as producer:
        sent = [await producer.send(topic, b"%d" % number, partition=0) for number in range(count)]
        return await asyncio.gather(*sent, return_exceptions=True)


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        ("none", {}),
        ("gzip", {}),
        ("gzip", {"compression.gzip.level": 9}),
        ("snappy", {}),
        ("lz4", {}),
        ("lz4", {"compression.lz4.level": 12}),
        ("zstd", {}),
        ("zstd", {"compression.zstd.level": 19}),
    ],
)
def test_every_codec_and_level(broker: EmbeddedBroker, codec: str, level: dict[str, object]) -> None:
    topic = f"codec-{codec}-{len(level)}"

    async def run() -> None:
        config = configured(broker.bootstrap_servers, compression_type=codec, linger_ms=5) | level
        async with BytesProducer(config) as producer:
            headers = (("a", b"1"), ("a", None))
            first = await producer.send(topic, bytes(500), key=b"k", partition=0, headers=headers, timestamp_ms=5)
            await producer.send(topic, None, partition=0, timestamp_ms=3)
            assert (await first)[2:] == (0, 5, 1, 500)
        ((header, records),) = await read_batches(broker.bootstrap_servers, topic)
        assert header.codec_id == Codec[codec.upper()]
        assert (header.base_timestamp_ms, header.max_timestamp_ms) == (5, 5)
        assert records == [(0, 5, b"k", bytes(500), headers), (1, 3, None, None, ())]

    asyncio.run(run())


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(broker: EmbeddedBroker, acks: str) -> None:
    async def run() -> None:
        topic = f"acks-{acks}"
        results = await send_numbers(broker.bootstrap_servers, topic, 100, acks=acks)
        offsets = [result.offset for result in results if isinstance(result, RecordMetadata)]
        assert offsets == ([-1] * 100 if acks == "0" else list(range(100)))
        while await read_values(broker.bootstrap_servers, topic) != numbers(100):
            assert acks == "0", "the others were written when they were acknowledged"

    asyncio.run(run())


def test_metadata_has_the_brokers_log_append_time(broker: EmbeddedBroker) -> None:
    broker.create_topic("timed", config={"message.timestamp.type": "LogAppendTime"})

    async def run() -> None:
        async with BytesProducer(configured(broker.bootstrap_servers)) as producer:
            metadata = await (await producer.send("timed", b"a", timestamp_ms=5))
            assert metadata.timestamp_ms > 5

    asyncio.run(run())


def test_a_lost_response_duplicates_no_record(broker: EmbeddedBroker) -> None:
    lost = broker.faults.drop_connection("Produce", times=3, carry_out=True)

    async def run() -> None:
        results = await send_numbers(broker.bootstrap_servers, "lost", 300, batch_size=200)
        assert [each.offset for each in results if isinstance(each, RecordMetadata)] == list(range(300))
        assert await read_values(broker.bootstrap_servers, "lost") == numbers(300)

    asyncio.run(run())
    assert lost.hits == 3


@pytest.mark.parametrize("code", ["NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "UNKNOWN_TOPIC_OR_PARTITION"])
def test_retriable_errors_are_retried_in_order(broker: EmbeddedBroker, code: str) -> None:
    topic = f"again-{code.lower().replace('_', '-')}"
    broker.faults.fail("Produce", code, times=2)

    async def run() -> None:
        await send_numbers(broker.bootstrap_servers, topic, 300, batch_size=200)
        assert await read_values(broker.bootstrap_servers, topic) == numbers(300)

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(4))
def test_order_and_exactly_once_under_faults_of_all_kinds(broker: EmbeddedBroker, seed: int) -> None:
    topic = f"storm-{seed}"
    randomness = Random(seed)

    def inject_fault() -> None:
        match randomness.randrange(4):
            case 0:
                broker.faults.drop_connection("Produce", times=randomness.randrange(1, 4), carry_out=True)
            case 1:
                broker.faults.drop_connection("Produce", times=randomness.randrange(1, 4))
            case 2:
                broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=randomness.randrange(1, 4))
            case 3:
                broker.faults.delay("Produce", 0.005, times=2)

    async def run() -> None:
        config = configured(broker.bootstrap_servers, batch_size=300, compression_type="lz4")
        async with BytesProducer(config, randomness=Random(seed)) as producer:
            for number in range(1500):
                if number % 150 == 50:
                    inject_fault()
                await producer.send(topic, b"%d" % number, partition=number % 3)
            await producer.flush()
        broker.faults.clear()
        for partition in range(3):
            expected = [value for number, value in enumerate(numbers(1500)) if number % 3 == partition]
            assert await read_values(broker.bootstrap_servers, topic, partition) == expected

    asyncio.run(run())


def test_a_rejected_batch_fails_only_its_own_records(broker: EmbeddedBroker) -> None:
    async def run() -> None:
        topic = "refused"
        async with BytesProducer(configured(broker.bootstrap_servers)) as producer:
            await (await producer.send(topic, b"0", partition=0))
            broker.faults.fail("Produce", "INVALID_RECORD")
            with pytest.raises(ApiError) as caught:
                await (await producer.send(topic, b"lost", partition=0))
            assert caught.value.code == ErrorCode.INVALID_RECORD
            sent = [await producer.send(topic, b"%d" % number, partition=0) for number in range(1, 50)]
            await asyncio.gather(*sent)
        assert await read_values(broker.bootstrap_servers, topic) == numbers(50)
        batches = await read_batches(broker.bootstrap_servers, topic)
        assert {header.producer_epoch for header, _ in batches} == {0, 1}

    asyncio.run(run())


def test_a_batch_above_the_topics_limit_is_split(broker: EmbeddedBroker) -> None:
    broker.create_topic("small", config={"max.message.bytes": "2000"})

    async def run() -> None:
        config = configured(broker.bootstrap_servers, linger_ms=20)
        async with BytesProducer(config) as producer:
            sent = [await producer.send("small", b"%03d" % number + bytes(297), partition=0) for number in range(20)]
            large = await producer.send("small", bytes(3000), partition=0)
            sent += [await producer.send("small", b"%03d" % number + bytes(297), partition=0) for number in (20, 21)]
            with pytest.raises(ApiError) as caught:
                await large
            assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
            await asyncio.gather(*sent)
        values = await read_values(broker.bootstrap_servers, "small")
        assert [int(value[:3]) for value in values if value is not None] == list(range(22))

    asyncio.run(run())


def test_a_broker_that_restarts_loses_nothing(tmp_path: "object") -> None:
    with EmbeddedBroker(data_dir=str(tmp_path)) as broker:

        async def run() -> None:
            async with BytesProducer(configured(broker.bootstrap_servers, reconnect_backoff_ms=5)) as producer:
                sent = [await producer.send("kept", b"%d" % number, partition=0) for number in range(100)]
                await asyncio.to_thread(broker.restart, clean=False)
                sent += [await producer.send("kept", b"%d" % number, partition=0) for number in range(100, 200)]
                await asyncio.gather(*sent)
            assert await read_values(broker.bootstrap_servers, "kept") == numbers(200)

        asyncio.run(run())


def test_keys_stay_together_and_records_without_one_spread(broker: EmbeddedBroker) -> None:
    async def run() -> None:
        config = configured(broker.bootstrap_servers, batch_size=500)
        async with BytesProducer(config, randomness=Random(1)) as producer:
            keyed = [await producer.send("spread", b"v", key=b"%d" % (number % 5)) for number in range(50)]
            landed = await asyncio.gather(*keyed)
            for number in range(5):
                assert len({metadata.partition for metadata in landed[number::5]}) == 1
            free = [await producer.send("spread", bytes(100)) for _ in range(100)]
            partitions = [metadata.partition for metadata in await asyncio.gather(*free)]
            assert set(partitions) == {0, 1, 2}
            switches = sum(1 for before, after in pairwise(partitions) if before != after)
            assert switches < 40, "a partition gets about batch.size bytes before a switch"

    asyncio.run(run())
