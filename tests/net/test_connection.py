"""Connections over real sockets: order, pipelining, flow control, files, and peers that misbehave."""

import asyncio
import errno
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from rookery.base.errors import ProtocolError
from rookery.base.files import FileSlice, OsFiles
from rookery.net.connection import FRAMES_PER_TURN, ConnectionInfo, HandlerResult, Held
from rookery.net.listener import Listener
from rookery.net.send import Reply
from tests.net.support import (
    BOTH_LOOPS,
    MemoryFile,
    Run,
    connect,
    connections_of,
    echo,
    expect_closed,
    frame,
    listening,
    read_reply,
    reset,
    until,
)
from tests.support.logs import captured_logs


@BOTH_LOOPS
def test_requests_are_answered(run: Run) -> None:
    async def scenario() -> None:
        async with listening(echo) as listener:
            reader, writer = await connect(listener)
            for body in (b"", b"a", b"b" * 100_000, b"c" * 5_000_000):
                writer.write(frame(body))
                assert await read_reply(reader) == body
            writer.close()

    run(scenario())


@BOTH_LOOPS
def test_bytes_that_arrive_one_by_one(run: Run) -> None:
    async def scenario() -> None:
        async with listening(echo) as listener:
            reader, writer = await connect(listener)
            for byte in frame(b"hello") + frame(b"world"):
                writer.write(bytes([byte]))
                await asyncio.sleep(0)
            assert [await read_reply(reader), await read_reply(reader)] == [b"hello", b"world"]
            writer.close()

    run(scenario())


@BOTH_LOOPS
def test_many_pipelined_requests_are_answered_in_order(run: Run) -> None:
    async def scenario() -> None:
        async with listening(echo) as listener:
            reader, writer = await connect(listener)
            bodies = [b"%d" % number for number in range(20 * FRAMES_PER_TURN + 1)]
            writer.write(b"".join(map(frame, bodies)))
            assert [await read_reply(reader) for _ in bodies] == bodies
            writer.close()

    run(scenario())


@BOTH_LOOPS
def test_connections_do_not_mix_up_their_bytes(run: Run) -> None:
    """Connections share a buffer unless bytes remain between reads; here many bytes remain."""

    async def client(listener: Listener, seed: int) -> None:
        chance = random.Random(seed)
        reader, writer = await connect(listener)
        bodies = [chance.randbytes(chance.choice((0, 10, 3000, 70_000, 600_000))) for _ in range(15)]
        data = b"".join(map(frame, bodies))

        async def send() -> None:
            position = 0
            while position < len(data):
                size = chance.choice((1, 50, 5000, 300_000))
                writer.write(data[position : position + size])
                position += size
                await writer.drain()
                await asyncio.sleep(0)

        sending = asyncio.create_task(send())
        assert [await read_reply(reader) for _ in bodies] == bodies
        await sending
        writer.close()

    async def scenario() -> None:
        async with listening(echo) as listener:
            await asyncio.gather(*(client(listener, seed) for seed in range(6)))

    run(scenario())


@BOTH_LOOPS
def test_without_a_free_descriptor_files_are_sent_by_the_transport(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"records" * 100_000)
    file = OsFiles().open(path)

    def no_more(_: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    async def scenario() -> None:
        size = (700_000).to_bytes(4, "big")
        async with listening(lambda _, __: [size, FileSlice(file, 0, 700_000)]) as listener:
            reader, writer = await connect(listener)
            monkeypatch.setattr(os, "dup", no_more)
            writer.write(frame(b"more"))
            assert await read_reply(reader) == b"records" * 100_000
            writer.close()

    run(scenario())


class Parking:
    """Replies to `later...` requests upon `release`, to `never...` requests not at all, and to others immediately."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.parked: dict[bytes, asyncio.Future[Reply | None]] = {}

    def __call__(self, request: memoryview, _: ConnectionInfo) -> HandlerResult:
        body = bytes(request)
        self.seen.append(body)
        if body.startswith(b"never"):
            return None
        if not body.startswith(b"later"):
            return [frame(body)]
        self.parked[body] = asyncio.get_running_loop().create_future()
        return self.parked[body]

    def release(self, body: bytes) -> None:
        self.parked.pop(body).set_result([frame(body)])


@BOTH_LOOPS
def test_replies_keep_the_order_of_requests_while_one_waits(run: Run) -> None:
    async def scenario() -> None:
        handle = Parking()
        async with listening(handle) as listener:
            reader, writer = await connect(listener)
            bodies = [b"first", b"later 1", b"never", b"second", b"later 2", b"third"]
            writer.write(b"".join(map(frame, bodies)))
            await until(lambda: handle.seen == bodies)
            assert await read_reply(reader) == b"first"
            handle.release(b"later 2")
            handle.release(b"later 1")
            expected = [b"later 1", b"second", b"later 2", b"third"]
            assert [await read_reply(reader) for _ in expected] == expected
            writer.close()

    run(scenario())


@BOTH_LOOPS
def test_a_held_request_finishes_before_the_next_is_handled(run: Run) -> None:
    async def scenario() -> None:
        gate, parked, handled = asyncio.Event(), asyncio.Event(), list[bytes]()

        async def hold() -> Reply:
            await gate.wait()
            return [frame(b"held")]

        async def wait() -> Reply:
            await parked.wait()
            return [frame(b"waited")]

        def handle(request: memoryview, info: ConnectionInfo) -> HandlerResult:
            handled.append(bytes(request))
            if handled[-1] == b"hold":
                return Held(hold())
            return wait() if handled[-1] == b"wait" else echo(request, info)

        async with listening(handle) as listener:
            reader, writer = await connect(listener)
            other_reader, other_writer = await connect(listener)
            writer.write(frame(b"wait") + frame(b"hold") + frame(b"after"))
            await until(lambda: len(handled) == 2)
            # Neither more bytes nor an earlier reply makes the connection continue.
            writer.write(frame(b"last"))
            parked.set()
            assert await read_reply(reader) == b"waited"
            other_writer.write(frame(b"other"))
            assert await read_reply(other_reader) == b"other"
            assert handled == [b"wait", b"hold", b"other"]
            gate.set()
            assert [await read_reply(reader) for _ in range(3)] == [b"held", b"after", b"last"]
            for each in (writer, other_writer):
                each.close()

    run(scenario())


@BOTH_LOOPS
def test_coroutines_are_awaited_and_may_have_no_reply(run: Run) -> None:
    async def reply_to(body: bytes) -> Reply | None:
        await asyncio.sleep(0)
        return None if body == b"no reply" else [frame(body)]

    async def scenario() -> None:
        async with listening(lambda request, _: reply_to(bytes(request))) as listener:
            reader, writer = await connect(listener)
            writer.write(frame(b"a") + frame(b"no reply") + frame(b"b"))
            assert [await read_reply(reader), await read_reply(reader)] == [b"a", b"b"]
            writer.close()

    run(scenario())


@BOTH_LOOPS
def test_at_most_eight_requests_are_unfinished(run: Run) -> None:
    async def scenario() -> None:
        handle = Parking()
        async with listening(handle) as listener:
            reader, writer = await connect(listener)
            bodies = [b"later %d" % number for number in range(100)]
            writer.write(b"".join(map(frame, bodies)))
            await until(lambda: len(handle.seen) == 8)
            other_reader, other_writer = await connect(listener)
            other_writer.write(frame(b"others are served"))
            assert await read_reply(other_reader) == b"others are served"
            assert len(handle.seen) == 9
            for number, body in enumerate(bodies):
                await until(lambda body=body: body in handle.parked)  # type: ignore[misc]  # the default binds it now
                assert len(handle.seen) <= number + 10
                handle.release(body)
                assert await read_reply(reader) == body
            writer.close()
            other_writer.close()

    run(scenario())


@BOTH_LOOPS
def test_a_slow_reader_does_not_make_memory_grow(run: Run) -> None:
    """The client sends megabytes of requests, each with a reply of a megabyte, and does not read."""
    handled = 0

    def handle(_: memoryview, __: ConnectionInfo) -> Reply:
        nonlocal handled
        handled += 1
        return [frame(bytes(1_000_000))]

    async def scenario() -> None:
        async with listening(handle) as listener:
            reader, writer = await connect(listener)
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # a stream's transport can
            writer.write(frame(b"more") * 500)
            await until(lambda: handled >= 9)
            for _ in range(100):
                await asyncio.sleep(0)
            (connection,) = connections_of(listener)
            assert handled <= 20
            assert connection.unsent_bytes <= 2_000_000
            assert connection._sender.unfinished <= 8
            writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
            for _ in range(500):
                assert len(await read_reply(reader)) == 1_000_000
            writer.close()

    run(scenario())


def _slices(path: Path, chance: random.Random) -> tuple[list[FileSlice], bytes]:
    """Return slices of files with and without a descriptor, and their bytes."""
    data = chance.randbytes(6_000_000)
    path.write_bytes(data)
    slices, expected = [], []
    for file in (OsFiles().open(path), MemoryFile(data), OsFiles().open(path)):
        for size in (3_000_000, 0, 1, 70_000):
            position = chance.randint(0, len(data) - size)
            slices.append(FileSlice(file, position, size))
            expected.append(data[position : position + size])
    return slices, b"".join(expected)


@BOTH_LOOPS
@pytest.mark.parametrize("direct", [True, False], ids=["sendfile", "transport"])
def test_file_slices_arrive_complete_at_a_reader_that_pauses(run: Run, direct: bool, tmp_path: Path) -> None:
    chance = random.Random(1)
    slices, expected = _slices(tmp_path / "segment", chance)
    body_size = len(expected) + 6

    def handle(request: memoryview, _: ConnectionInfo) -> Reply:
        if bytes(request) == b"small":
            return [frame(b"small")]
        return [body_size.to_bytes(4, "big"), b"abc", *slices, b"", b"xyz"]

    async def scenario() -> None:
        async with listening(handle) as listener:
            reader, writer = await connect(listener)
            await until(lambda: listener.connection_count == 1)
            if not direct:
                connections_of(listener)[0]._sender._plain_socket = None
            writer.write((frame(b"small") + frame(b"large")) * 3)
            received = bytearray()
            while len(received) < 3 * (9 + 4 + body_size):
                received += await reader.read(chance.choice((1000, 100_000, 1_000_000)))
                if chance.random() < 0.2:
                    await asyncio.sleep(0.001)
            assert received == (frame(b"small") + frame(b"abc" + expected + b"xyz")) * 3
            assert (connections_of(listener)[0]._sender._socket is not None) == direct
            writer.close()

    run(scenario())


@BOTH_LOOPS
def test_a_small_slice_is_sent_together_with_its_neighbours(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"0123456789")
    file = OsFiles().open(path)
    slices = {b"there": FileSlice(file, 3, 4), b"beyond": FileSlice(file, 8, 4)}

    async def scenario() -> None:
        def handle(request: memoryview, _: ConnectionInfo) -> Reply:
            return [(7).to_bytes(4, "big"), b"ab", slices[bytes(request)], b"c"]

        async with listening(handle) as listener:
            reader, writer = await connect(listener)
            writer.write(frame(b"there"))
            assert await read_reply(reader) == b"ab3456c"
            assert connections_of(listener)[0]._sender._socket is None, "the transport was not bypassed"
            writer.write(frame(b"beyond"))
            assert await reader.read() == b"", "no partial reply was sent"

    with captured_logs() as logs:
        run(scenario())
    assert [log["event"] for log in logs] == ["reply failed"]


@BOTH_LOOPS
def test_files_are_never_buffered_for_a_slow_reader(run: Run) -> None:
    file = MemoryFile(bytes(50_000_000))

    async def scenario() -> None:
        async with listening(lambda _, __: [FileSlice(file, 0, 50_000_000)]) as listener:
            _, writer = await connect(listener)
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # a stream's transport can
            await until(lambda: listener.connection_count == 1)
            (connection,) = connections_of(listener)
            connection._sender._plain_socket = None
            writer.write(frame(b"more") * 100)
            await until(lambda: connection._sender._waiting and len(file.read_sizes) > 0)
            for _ in range(100):
                await asyncio.sleep(0)
            assert sum(file.read_sizes) < 20_000_000
            assert connection.unsent_bytes <= 1_000_000
            assert connection._sender.unfinished <= 8
            writer.transport.abort()
            await until(lambda: listener.connection_count == 0)

    run(scenario())


@BOTH_LOOPS
def test_a_peer_that_resets_while_a_file_is_sent(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(20_000_000))
    file = OsFiles().open(path)

    async def scenario() -> None:
        async with listening(lambda _, __: [FileSlice(file, 0, 20_000_000)]) as listener:
            reader, writer = await connect(listener)
            writer.write(frame(b"more"))
            await reader.readexactly(1000)
            (connection,) = connections_of(listener)
            reset(writer)
            await until(lambda: listener.connection_count == 0)
            assert connection._sender._socket is None

    with captured_logs() as logs:
        run(scenario())
    assert logs == []


@BOTH_LOOPS
def test_closing_the_listener_while_a_file_is_sent(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(20_000_000))
    file = OsFiles().open(path)

    async def scenario() -> None:
        async with listening(lambda _, __: [FileSlice(file, 0, 20_000_000)]) as listener:
            reader, writer = await connect(listener)
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # a stream's transport can
            writer.write(frame(b"more"))
            await until(lambda: any(connection._sender.is_mid_reply for connection in connections_of(listener)))
            await listener.close()
            assert listener.connection_count == 0
            writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
            assert len(await expect_closed(reader)) < 20_000_000
            writer.close()

    run(scenario())


@BOTH_LOOPS
def test_a_file_that_is_too_short_closes_the_connection(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(100))
    file = OsFiles().open(path)

    async def scenario() -> None:
        async with listening(lambda _, __: [FileSlice(file, 0, 200)]) as listener:
            reader, writer = await connect(listener)
            writer.write(frame(b"more"))
            await expect_closed(reader)
            writer.close()

    with captured_logs() as logs:
        run(scenario())
    assert [log["event"] for log in logs] == ["reply failed"]


@BOTH_LOOPS
def test_a_peer_that_finished_sending_still_gets_its_replies(run: Run) -> None:
    async def scenario() -> None:
        handle = Parking()

        async def work(result: HandlerResult) -> Reply | None:
            assert isinstance(result, asyncio.Future)
            reply: Reply | None = await result
            return reply

        async with listening(lambda data, info: work(handle(data, info))) as listener:
            reader, writer = await connect(listener)
            bodies = [b"later %d" % number for number in range(20)]
            writer.write(b"".join(map(frame, bodies)))
            writer.write_eof()
            for body in bodies:
                await until(lambda body=body: body in handle.parked)  # type: ignore[misc]  # the default binds it now
                handle.release(body)
            assert await reader.read() == b"".join(map(frame, bodies))
            await until(lambda: listener.connection_count == 0)
            writer.close()

    run(scenario())


@pytest.mark.parametrize("end", [reset, asyncio.StreamWriter.write_eof, asyncio.StreamWriter.close])
@BOTH_LOOPS
def test_parked_requests_end_with_their_connection(run: Run, end: Callable[[asyncio.StreamWriter], None]) -> None:
    async def scenario() -> None:
        handle = Parking()
        async with listening(handle) as listener:
            _, writer = await connect(listener)
            writer.write(frame(b"later"))
            await until(lambda: b"later" in handle.parked)
            end(writer)
            await until(lambda: handle.parked[b"later"].cancelled())

    run(scenario())


@BOTH_LOOPS
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "an HTTP request on a plaintext listener"),
        (b"\xff\xff\xff\xfe", "a frame with the negative size -2"),
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes is larger than socket.request.max.bytes=1000"),
        (b"\x00\x00\x00\x03bad", "a reason of the handler"),
    ],
)
def test_bad_bytes_close_the_connection_with_one_line(run: Run, data: bytes, reason: str) -> None:
    def handle(request: memoryview, info: ConnectionInfo) -> Reply:
        if bytes(request) == b"bad":
            raise ProtocolError("a reason of the handler")
        return echo(request, info)

    async def scenario() -> None:
        async with listening(handle, socket_request_max_bytes=1000) as listener:
            reader, writer = await connect(listener)
            other_reader, other_writer = await connect(listener)
            writer.write(frame(b"good") + data)
            assert await expect_closed(reader) in (frame(b"good"), b"")
            other_writer.write(frame(b"others are served"))
            assert await read_reply(other_reader) == b"others are served"
            for each in (writer, other_writer):
                each.close()

    with captured_logs() as logs:
        run(scenario())
    (log,) = logs
    assert (log["event"], log["reason"], log["log_level"]) == ("connection closed", reason, "warning")
    assert log["peer"].startswith("127.0.0.1:")


@BOTH_LOOPS
@pytest.mark.parametrize("later", [False, True], ids=["stage 1", "stage 2"])
def test_a_bug_in_a_handler_closes_only_its_connection(run: Run, later: bool) -> None:
    async def fail() -> Reply:
        raise ValueError("a bug")

    def handle(request: memoryview, info: ConnectionInfo) -> HandlerResult:
        if bytes(request) != b"bug":
            return echo(request, info)
        if later:
            return fail()
        raise ValueError("a bug")

    async def scenario() -> None:
        async with listening(handle) as listener:
            reader, writer = await connect(listener)
            other_reader, other_writer = await connect(listener)
            writer.write(frame(b"bug"))
            assert await expect_closed(reader) == b""
            other_writer.write(frame(b"others are served"))
            assert await read_reply(other_reader) == b"others are served"
            for each in (writer, other_writer):
                each.close()

    with captured_logs() as logs:
        run(scenario())
    assert [(log["event"], log["exc_info"]) for log in logs] == [("request failed", True)]


@BOTH_LOOPS
def test_a_port_scan_is_not_logged(run: Run) -> None:
    async def scenario() -> None:
        async with listening(echo) as listener:
            for _ in range(50):
                scanner = socket.create_connection(("127.0.0.1", listener.bound_port))
                scanner.close()
            await asyncio.sleep(0)
            reader, writer = await connect(listener)
            writer.write(frame(b"still here"))
            assert await read_reply(reader) == b"still here"
            await until(lambda: listener.connection_count == 1)
            writer.close()

    with captured_logs() as logs:
        run(scenario())
    assert logs == []


@BOTH_LOOPS
def test_the_handler_may_read_and_set_properties_of_the_connection(run: Run) -> None:
    seen = []
    lost = asyncio.Event()

    def handle(request: memoryview, info: ConnectionInfo) -> Reply:
        seen.append((info.peer, info.listener_name, info.client_software_name))
        info.client_software_name, info.on_lost = "kcat", lost.set
        return echo(request, info)

    async def scenario() -> None:
        async with listening(handle, name="CLIENTS") as listener:
            reader, writer = await connect(listener)
            for _ in range(2):
                writer.write(frame(b"who am I"))
                await read_reply(reader)
            host, port = writer.get_extra_info("sockname")
            assert seen == [(f"{host}:{port}", "CLIENTS", "unknown"), (f"{host}:{port}", "CLIENTS", "kcat")]
            assert not lost.is_set()
            writer.close()
            await asyncio.wait_for(lost.wait(), 10)

    run(scenario())


@BOTH_LOOPS
def test_incomplete_frames_are_bounded_over_all_connections(run: Run) -> None:
    async def scenario() -> None:
        async with listening(echo, queued_max_request_bytes=1_000_000) as listener:
            half = frame(bytes(400_000))[:300_000]
            peers = [await connect(listener) for _ in range(4)]
            for count, (_, writer) in enumerate(peers[:3], 1):
                writer.write(half)
                await until(lambda count=count: listener.partial_bytes == count * 300_000)  # type: ignore[misc]
            with captured_logs() as logs:
                peers[3][1].write(half)
                assert await expect_closed(peers[0][0]) == b""
            assert "incomplete" in str(logs)
            await until(lambda: listener.partial_bytes == 900_000)
            # The others may complete their frames.
            peers[1][1].write(bytes(100_004))
            assert len(await read_reply(peers[1][0])) == 400_000
            for _, writer in peers:
                writer.close()
            await until(lambda: listener.partial_bytes == 0)

    run(scenario())
