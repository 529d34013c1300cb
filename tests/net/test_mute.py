"""Connections of throttled clients over real sockets: they are not read for a time, and still notice a close.

The loop's time moves only when a test moves it, so that nothing depends on the machine's speed.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from rookery.net.connection import ConnectionInfo, HandlerResult
from rookery.net.listener import Listener
from rookery.net.send import Reply
from rookery.testing.shifted_time import ShiftedLoop, TimeShift, jump
from tests.net.support import connect, connections_of, expect_closed, frame, listening, read_reply, reset, until

# The other loop's own time passes, too: so slowly that no test waits for it.
MUTED_S = 3600.0

Scene = Callable[[TimeShift], Coroutine[Any, Any, None]]


def play(scene: Scene) -> None:
    shift = TimeShift()
    with asyncio.Runner(loop_factory=lambda: ShiftedLoop(shift)) as runner:
        runner.run(scene(shift))


class Handler:
    """Echoes requests, and mutes the connection of each that begins with `mute`."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def __call__(self, request: memoryview, connection: ConnectionInfo) -> HandlerResult:
        body = bytes(request)
        self.seen.append(body)
        if body.startswith(b"later"):
            return self._later(body, connection)
        return self._answer(body, connection)

    def _answer(self, body: bytes, connection: ConnectionInfo) -> Reply:
        if b"mute" in body:
            assert connection.mute is not None
            connection.mute(MUTED_S)
        return [frame(body)]

    async def _later(self, body: bytes, connection: ConnectionInfo) -> Reply:
        await asyncio.sleep(0)
        return self._answer(body, connection)


def is_muted(listener: Listener) -> bool:
    (connection,) = connections_of(listener)
    return connection._is_muted


def test_the_reply_is_sent_at_once_and_later_requests_wait() -> None:
    async def scene(shift: TimeShift) -> None:
        handler = Handler()
        async with listening(handler) as listener:
            reader, writer = await connect(listener)
            writer.write(frame(b"mute") + frame(b"next"))
            assert await read_reply(reader) == b"mute"
            writer.write(frame(b"more"))
            # Another client is served meanwhile: what the first one sent would have been handled before.
            other_reader, other_writer = await connect(listener)
            for _ in range(3):
                other_writer.write(frame(b"other"))
                assert await read_reply(other_reader) == b"other"
            assert handler.seen == [b"mute", b"other", b"other", b"other"]
            await jump(shift, MUTED_S - 10)
            assert b"next" not in handler.seen
            await jump(shift, 20)
            assert [await read_reply(reader), await read_reply(reader)] == [b"next", b"more"]
            writer.close()
            other_writer.close()

    play(scene)


def test_a_reply_that_had_to_wait_mutes_as_well() -> None:
    async def scene(shift: TimeShift) -> None:
        handler = Handler()
        async with listening(handler) as listener:
            reader, writer = await connect(listener)
            writer.write(frame(b"later mute"))
            assert await read_reply(reader) == b"later mute"
            writer.write(frame(b"next"))
            await until(lambda: is_muted(listener))
            await jump(shift, MUTED_S / 2)
            assert handler.seen == [b"later mute"]
            await jump(shift, MUTED_S)
            assert await read_reply(reader) == b"next"
            writer.close()

    play(scene)


def test_the_longest_of_several_times_counts() -> None:
    async def scene(shift: TimeShift) -> None:
        handler = Handler()
        async with listening(handler) as listener:
            reader, writer = await connect(listener)
            writer.write(frame(b"mute"))
            await read_reply(reader)
            (connection,) = connections_of(listener)
            connection.mute(2 * MUTED_S)
            connection.mute(1.0)
            writer.write(frame(b"next"))
            await jump(shift, MUTED_S + 10)
            assert handler.seen == [b"mute"]
            await jump(shift, MUTED_S)
            assert await read_reply(reader) == b"next"
            writer.close()

    play(scene)


def test_a_muted_connection_notices_a_close() -> None:
    async def scene(shift: TimeShift) -> None:
        async with listening(Handler()) as listener:
            for close in (lambda writer: writer.close(), reset):
                reader, writer = await connect(listener)
                writer.write(frame(b"mute"))
                await read_reply(reader)
                close(writer)
                # The next look at the peer is due, the end of the mute is not.
                await until(lambda: not connections_of(listener) or is_muted(listener))
                await jump(shift, 10)
                await until(lambda: listener.connection_count == 0)

    play(scene)


def test_the_last_requests_of_a_client_that_is_gone_are_handled() -> None:
    async def scene(shift: TimeShift) -> None:
        handler = Handler()
        async with listening(handler) as listener:
            reader, writer = await connect(listener)
            writer.write(frame(b"mute"))
            await read_reply(reader)
            # As of a producer that waits for no acknowledgements. They would mute the connection again.
            writer.write(frame(b"mute 1") + frame(b"mute 2" + b"a" * 20_000) + frame(b"mute 3"))
            await writer.drain()
            writer.write_eof()
            await asyncio.sleep(0.01)
            await jump(shift, 10)
            await until(lambda: listener.connection_count == 0)
            assert [body[:6] for body in handler.seen] == [b"mute", b"mute 1", b"mute 2", b"mute 3"]
            await expect_closed(reader)
            writer.close()

    play(scene)


def test_a_muted_connection_is_not_idle() -> None:
    async def scene(shift: TimeShift) -> None:
        async with listening(Handler(), connections_max_idle_ms=60_000) as listener:
            reader, writer = await connect(listener)
            writer.write(frame(b"mute"))
            await read_reply(reader)
            for _ in range(10):
                await jump(shift, 100)
            assert listener.connection_count == 1
            await jump(shift, MUTED_S)
            writer.write(frame(b"next"))
            assert await read_reply(reader) == b"next"
            writer.close()

    play(scene)


def test_a_listener_closes_muted_connections() -> None:
    async def scene(_: TimeShift) -> None:
        async with listening(Handler()) as listener:
            reader, writer = await connect(listener)
            writer.write(frame(b"mute"))
            await read_reply(reader)
        assert await expect_closed(reader) == b""
        writer.close()

    play(scene)
