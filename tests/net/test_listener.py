"""Limits, idle connections and closing of a listener."""

import asyncio
import socket

import pytest

from rookery.base.errors import StartupError
from rookery.net.connection import ConnectionInfo
from rookery.net.listener import Listener, ListenerSettings
from rookery.net.send import Reply
from tests.net.support import (
    BOTH_LOOPS,
    Run,
    connect,
    connections_of,
    echo,
    expect_closed,
    frame,
    listening,
    read_reply,
    until,
)
from tests.support.logs import captured_logs


@BOTH_LOOPS
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"max_connections": 2}, "max.connections=2 are open"),
        ({"max_connections_per_ip": 2}, "max.connections.per.ip=2 are open from this address"),
        ({"max_connections_per_ip_overrides": {"127.0.0.1": 2}}, "max.connections.per.ip=2 are open from this address"),
    ],
)
def test_the_newest_connection_is_rejected(run: Run, settings: dict[str, object], reason: str) -> None:
    async def scenario() -> None:
        async with listening(echo, **settings) as listener:
            first = await connect(listener)
            second = await connect(listener)
            await until(lambda: listener.connection_count == 2)
            rejected_reader, rejected_writer = await connect(listener)
            assert await expect_closed(rejected_reader) == b""
            for reader, writer in (first, second):
                writer.write(frame(b"still here"))
                assert await read_reply(reader) == b"still here"
            first[1].close()
            await until(lambda: listener.connection_count == 1)
            reader, writer = await connect(listener)
            writer.write(frame(b"accepted again"))
            assert await read_reply(reader) == b"accepted again"
            for each in (rejected_writer, second[1], writer):
                each.close()

    with captured_logs() as logs:
        run(scenario())
    assert [log["reason"] for log in logs] == [reason]


@BOTH_LOOPS
def test_idle_connections_are_closed_and_busy_ones_are_not(run: Run) -> None:
    async def scenario() -> None:
        # The listener's own checks close nothing, so that only the times below count, however slow the machine is.
        async with listening(echo, connections_max_idle_ms=-1) as listener:
            idle, busy = [await connect(listener) for _ in range(2)]
            start = asyncio.get_running_loop().time()
            for passed, users, closed in ((0.0, (idle, busy), 0), (0.15, (busy,), 0), (0.25, (busy,), 1)):
                for reader, writer in users:
                    writer.write(frame(b"busy"))
                    assert await read_reply(reader) == b"busy"
                for connection in connections_of(listener):
                    connection.check_idle(start + passed, 0.2)
                assert len(logs) == closed
            assert await expect_closed(idle[0]) == b""
            busy[1].write(frame(b"still here"))
            assert await read_reply(busy[0]) == b"still here"
            for _, writer in (idle, busy):
                writer.close()

    with captured_logs() as logs:
        run(scenario())
    assert [log["reason"] for log in logs] == ["idle for connections.max.idle.ms"]


@BOTH_LOOPS
def test_a_peer_that_stopped_reading_is_idle(run: Run) -> None:
    def handle(_: memoryview, __: ConnectionInfo) -> Reply:
        return [frame(bytes(30_000_000))]

    async def scenario() -> None:
        async with listening(handle, connections_max_idle_ms=100) as listener:
            _, writer = await connect(listener)
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # a stream's transport can
            writer.write(frame(b"more"))
            await until(lambda: listener.connection_count == 1)
            await until(lambda: listener.connection_count == 0)
            writer.close()

    run(scenario())


@BOTH_LOOPS
def test_idle_check_can_be_switched_off(run: Run) -> None:
    async def scenario() -> None:
        async with listening(echo, connections_max_idle_ms=-1) as listener:
            reader, writer = await connect(listener)
            await until(lambda: listener.connection_count == 1)
            (connection,) = connections_of(listener)
            for now in (0.0, 1e9, 2e9):
                connection.check_idle(now, None)
            writer.write(frame(b"still here"))
            assert await read_reply(reader) == b"still here"
            writer.close()

    run(scenario())


@BOTH_LOOPS
def test_close_ends_all_connections(run: Run) -> None:
    async def scenario() -> None:
        async with listening(echo) as listener:
            clients = [await connect(listener) for _ in range(5)]
            await until(lambda: listener.connection_count == 5)
            await listener.close()
            for reader, writer in clients:
                assert await expect_closed(reader) == b""
                writer.close()
            with pytest.raises(ConnectionRefusedError):
                await connect(listener)

    run(scenario())


@BOTH_LOOPS
def test_a_port_in_use_is_reported(run: Run) -> None:
    async def scenario() -> None:
        async with listening(echo) as listener:
            second = Listener("127.0.0.1", listener.bound_port, echo)
            with pytest.raises(StartupError, match=f"cannot listen on 127.0.0.1:{listener.bound_port}: .*in use"):
                await second.start()

    run(scenario())


@BOTH_LOOPS
def test_all_addresses_share_the_port_and_the_options(run: Run) -> None:
    async def scenario() -> None:
        settings = ListenerSettings(socket_send_buffer_bytes=70_000, socket_receive_buffer_bytes=60_000)
        listener = Listener("localhost", 0, echo, settings=settings)
        await listener.start()
        reader, writer = await asyncio.open_connection("localhost", listener.bound_port)
        writer.write(frame(b"hello"))
        assert await read_reply(reader) == b"hello"
        (connection,) = connections_of(listener)
        accepted = connection._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        # Linux reports twice the size that was set.
        sizes = [accepted.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)]
        assert sizes in ([70_000, 60_000], [140_000, 120_000])
        writer.close()
        await listener.close()

    run(scenario())
