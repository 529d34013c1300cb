"""Requests are sent in the order of their batches, even without a connection; and no record is written twice."""

import asyncio

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.client.fake_broker import FakeBroker, produced
from tests.client.produce.support import BytesProducer, configured, hang_up, in_turn, numbers_of, run_with, values_of
from tests.client.skipping import skip_time


def test_a_batch_does_not_overtake_one_for_which_there_was_no_connection() -> None:
    """A leader that lost its disk accepts any number as the first of a producer."""

    async def work(broker: FakeBroker) -> None:
        connecting = asyncio.Event()

        def reject(version: int, request: Message) -> Message | None:
            connecting.set()
            return None

        async with BytesProducer(configured(broker)) as producer:
            await (await producer.send("t", b"first", partition=0))
            welcome = broker.answers[ApiKey.API_VERSIONS]
            broker.answers[ApiKey.API_VERSIONS] = in_turn(reject, welcome)
            second = await producer.send("t", b"second", partition=0)
            await connecting.wait()
            third = await producer.send("t", b"third", partition=0)
            skip_time(30)
            await asyncio.gather(second, third)

    batches, _ = run_with(in_turn(produced(), hang_up, produced()), work)
    assert list(dict.fromkeys(values_of(batches[2:]))) == [b"second", b"third"]


def test_a_batch_that_may_have_been_written_gets_no_new_numbers() -> None:
    """A restarted leader recognizes only the last batch of a producer, and rejects others as out of order."""

    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker)) as producer:
            await (await producer.send("t", b"first", partition=0))
            with pytest.raises(ApiError, match="may have been written") as raised:
                await (await producer.send("t", b"second", partition=0))
            assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            await (await producer.send("t", b"third", partition=0))

    refused = produced(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    batches, _ = run_with(in_turn(produced(), hang_up, refused, produced()), work)
    assert values_of(batches) == [b"first", b"second", b"second", b"third"]
    assert [numbers_of(batch)[1:3] for batch in batches] == [(0, 0), (0, 1), (0, 1), (1, 0)]
