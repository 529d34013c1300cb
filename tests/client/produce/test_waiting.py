"""Senders that wait while their topic seems unused, or while the producer is closed."""

import asyncio

import pytest

from rookery.base.errors import ApiError
from rookery.client.errors import ClientStateError
from rookery.protocol.api import ApiKey
from tests.client.fake_broker import FakeBroker, produced
from tests.client.produce.support import BytesProducer, configured, run_with, silence

# More than metadata.max.idle.ms.
LONG_S = 301.0


def is_running(producer: BytesProducer) -> bool:
    watcher, connections = producer._cluster._watcher, producer._cluster._pool._connections.values()
    return not (watcher is None or watcher.done()) or not all(each.is_closed for each in connections)


def test_a_topic_in_use_is_not_removed() -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker)) as producer:
            await (await producer.send("t", b"a"))
            route = producer._routes["t"]
            route.used_s -= LONG_S
            await (await producer.send("t", b"b"))
            await producer._cluster.refresh(["t"])
            assert producer._routes == {"t": route}
            route.used_s -= LONG_S
            await producer._cluster.refresh(["t"])
            assert producer._routes == {}

    run_with(produced(), work)


def test_a_topic_for_which_a_sender_waits_is_not_removed() -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker, buffer_memory=20_000)) as producer:
            await (await producer.send("u", b"a"))
            broker.answers[ApiKey.PRODUCE] = silence
            first = await producer.send("t", bytes(19_000), partition=0)
            waiting = asyncio.create_task(producer.send("u", bytes(5_000)))
            while not producer._memory_waiters:
                await asyncio.sleep(0)
            producer._routes["u"].used_s -= LONG_S
            await producer._cluster.refresh(["t"])
            assert "u" in producer._routes
            # A topic that was removed meanwhile still has its queues.
            del producer._routes["u"]
            broker.answers[ApiKey.PRODUCE] = produced()
            for connection in producer._cluster._pool._connections.values():
                connection.drop("cut by the test")
            await first
            await (await waiting)

    run_with(produced(), work, topics={"t": 1, "u": 1})


def test_a_cancelled_close_closes() -> None:
    async def work(broker: FakeBroker) -> None:
        producer = BytesProducer(configured(broker))
        sent = await producer.send("t", b"a")
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert isinstance(sent.exception(), ApiError)
        assert not is_running(producer)
        await producer.close()

    run_with(silence, work)


def test_a_second_close_waits_for_the_first_or_shortens_it() -> None:
    async def work(broker: FakeBroker) -> None:
        producer = BytesProducer(configured(broker))
        sent = await producer.send("t", b"a")
        waiting_closes = [asyncio.create_task(producer.close()) for _ in range(2)]
        await asyncio.sleep(0)
        assert not sent.done()
        await producer.close(0)
        assert isinstance(sent.exception(), ApiError)
        assert not is_running(producer)
        await asyncio.gather(*waiting_closes)

    run_with(silence, work)


def test_close_fails_a_sender_that_waits_for_metadata() -> None:
    async def work(broker: FakeBroker) -> None:
        producer = BytesProducer(configured(broker))
        await producer.send("t", b"a")
        sends = [
            asyncio.create_task(producer.send("unknown", b"a")),
            asyncio.create_task(producer.send("t", b"a", partition=5)),
        ]
        broker.answers[ApiKey.METADATA] = silence
        await asyncio.sleep(0)
        closing = asyncio.create_task(producer.close())
        for send in sends:
            async with asyncio.timeout(10):
                with pytest.raises(ClientStateError, match="closed while a record waited for metadata"):
                    await send
        assert not closing.done(), "it waits for the first record"
        await producer.close(0)
        assert not is_running(producer)
        with pytest.raises(ClientStateError, match="closed"):
            await producer.send("t", b"a")

    run_with(silence, work)
