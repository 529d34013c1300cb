"""New connections beyond their rate, over real sockets: they wait for their turn, or are closed after a delay."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from rookery.base.quota_entities import DEFAULT, QuotaEntity
from rookery.net.listener import Listener, ListenerSettings
from rookery.quotas.connections import UNLIMITED_RATE, ConnectionRates
from rookery.telemetry.sensors import Windows
from rookery.testing.shifted_time import ShiftedLoop, TimeShift, jump
from tests.net.support import BOTH_LOOPS, Run, connect, echo, expect_closed, frame, read_reply, until

# Hours, so that a slow machine cannot reach the end of a window.
WINDOWS = Windows(3, 3600.0)


def play(scene: Callable[[TimeShift], Coroutine[Any, Any, None]]) -> None:
    shift = TimeShift()
    with asyncio.Runner(loop_factory=lambda: ShiftedLoop(shift)) as runner:
        runner.run(scene(shift))


@asynccontextmanager
async def listening(rates: ConnectionRates) -> AsyncIterator[Listener]:
    settings = ListenerSettings(connections_max_idle_ms=-1)
    listener = Listener("127.0.0.1", 0, echo, settings=settings, rates=rates)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.close()


def address_rates(windows: Windows) -> ConnectionRates:
    rates = ConnectionRates(windows)
    # Two connections in two windows.
    rates.configure_addresses({QuotaEntity(ip=DEFAULT): {"connection_creation_rate": 1 / windows.length_s}})
    return rates


def test_a_connection_beyond_the_rate_of_its_listener_waits() -> None:
    async def scene(shift: TimeShift) -> None:
        rates = ConnectionRates(Windows(3, 10.0))
        rates.configure(UNLIMITED_RATE, {"PLAINTEXT": 1})
        async with listening(rates) as listener:
            open_ones = [await connect(listener) for _ in range(20)]
            for reader, writer in open_ones:
                writer.write(frame(b"hello"))
                assert await read_reply(reader) == b"hello"
            late_reader, late_writer = await connect(listener)
            late_writer.write(frame(b"late"))
            await until(lambda: listener.connection_count == 21)
            reader, writer = open_ones[0]
            writer.write(frame(b"again"))
            assert await read_reply(reader) == b"again"
            assert not late_reader._buffer  # type: ignore[attr-defined]
            await jump(shift, 11)
            assert await read_reply(late_reader) == b"late"
            for _, writer in (*open_ones, (late_reader, late_writer)):
                writer.close()

    play(scene)


def test_a_connection_beyond_the_rate_of_its_address_is_closed_after_a_delay() -> None:
    async def scene(shift: TimeShift) -> None:
        async with listening(address_rates(WINDOWS)) as listener:
            kept = [await connect(listener) for _ in range(2)]
            for reader, writer in kept:
                writer.write(frame(b"hello"))
                assert await read_reply(reader) == b"hello"
            reader, writer = await connect(listener)
            writer.write(frame(b"too many"))
            await until(lambda: listener.connection_count == 3)
            # Not before the delay is over, also if the client sends no more.
            writer.write_eof()
            await jump(shift, 60)
            assert listener.connection_count == 3
            await jump(shift, 3600)
            assert await expect_closed(reader) == b""
            assert listener.connection_count == 2
            for _, each in kept:
                each.close()
            writer.close()

    play(scene)


@BOTH_LOOPS
def test_nothing_of_a_refused_connection_is_handled(run: Run) -> None:
    async def scenario() -> None:
        async with listening(address_rates(WINDOWS)) as listener:
            kept = [await connect(listener) for _ in range(2)]
            refused_reader, refused_writer = await connect(listener)
            refused_writer.write(frame(b"too many"))
            for _ in range(20):
                for reader, writer in kept:
                    writer.write(frame(b"hello"))
                    assert await read_reply(reader) == b"hello"
            assert listener.connection_count == 3
        assert await expect_closed(refused_reader) == b""
        for _, writer in (*kept, (refused_reader, refused_writer)):
            writer.close()

    run(scenario())
