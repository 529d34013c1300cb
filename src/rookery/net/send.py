"""The sending half of a connection: sends replies in the order of their requests, and never faster than the peer reads.

A reply is a list of buffers and file slices. Replies that consist of buffers are joined and written to the transport.
The transport's limits are zero, so that it reports immediately when the peer does not keep up, and nothing more is
written until it has caught up. Slices of a few bytes are read into buffers: one write instead of a system call for each
part. A reply with larger slices bypasses the transport, by `send` and `sendfile` on a duplicate of the socket. The
transport is empty at that moment, which preserves the order of the bytes, and the duplicate has its own descriptor,
which the event loop can watch for writability independently of the transport's. Without a plain socket (TLS, a
simulated network), slices are read in pieces and written to the transport.

States:

    state      ends when                                behaviour
    open       the transport or the socket is full      `flush` sends all that is ready
    waiting    it can take bytes again -> open          replies queue
    closed     never                                    drops everything
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import TypeAlias, cast

from rookery.base.files import FileSlice
from rookery.base.types import Buffer
from rookery.protocol.framing import parts_size

Reply: TypeAlias = list[Buffer | FileSlice]

# How many bytes are joined into one write, after which the transport may report that the peer does not keep up.
_BATCH_SIZE_MAX = 262_144
# How many bytes one connection sends before the event loop serves others.
_TURN_SIZE_MAX = 2_097_152
_PIECE_SIZE = 262_144
# Up to this size it is cheaper to copy a reply's slices than to send them separately.
_COPIED_SIZE_MAX = 16_384


class Sender:
    """`unfinished` counts the replies that were not yet passed to the transport or the kernel."""

    def __init__(self, on_progress: Callable[[], None]) -> None:
        self._on_progress = on_progress
        self._queue: deque[Reply | asyncio.Future[Reply | None]] = deque()
        self._parts: deque[Buffer | FileSlice] = deque()
        self._waiting = False
        self._closed = False
        self._loop: asyncio.AbstractEventLoop
        self._transport: asyncio.Transport
        # The transport's own socket; None with TLS or a simulated network.
        self._plain_socket: socket.socket | None = None
        # Its duplicate, made for the first reply with large slices.
        self._socket: socket.socket | None = None
        self._watching = False
        self.bytes_sent = 0

    def open(self, transport: asyncio.Transport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        transport.set_write_buffer_limits(high=0)
        if transport.get_extra_info("sslcontext") is None:
            self._plain_socket = transport.get_extra_info("socket")

    @property
    def unfinished(self) -> int:
        return len(self._queue)

    @property
    def has_parked(self) -> bool:
        """Whether a request waits for an event that may never happen (a plain future, see `close`)."""
        return any(map(_is_parked, self._queue))

    @property
    def is_mid_reply(self) -> bool:
        """Whether a reply was sent only in part, so that the connection cannot be closed gracefully."""
        return bool(self._parts)

    def push(self, reply: "Reply | asyncio.Future[Reply | None]") -> None:
        self._queue.append(reply)

    def pause(self) -> None:
        """The transport is full."""
        self._waiting = True

    def resume(self) -> None:
        """The transport or the socket accepts bytes again."""
        self._waiting = False
        self._on_progress()

    def flush(self) -> None:
        """Send the replies that are ready. Raises the exception of a reply's future, or an OSError of peer or file."""
        if self._waiting or self._closed or (self._parts and not self._send_parts()):
            return
        batch: list[Buffer] = []
        batch_size = 0
        while not self._waiting and self._queue:
            head = self._queue[0]
            reply = head if isinstance(head, list) else self._result(head)
            if reply is None:
                # Not done: later replies wait, too. Kafka's clients fail a connection whose responses are out of order.
                break
            buffers = reply if FileSlice not in map(type, reply) else _read_if_small(reply)
            if buffers is None:
                self._write(batch)
                batch, batch_size = [], 0
                if self._waiting or not self._start_parts(reply):
                    return
                continue
            self._queue.popleft()
            batch += buffers  # type: ignore[arg-type]  # no file slices among them, see above
            batch_size += sum(map(len, buffers))
            if batch_size > _BATCH_SIZE_MAX:
                self._write(batch)
                batch, batch_size = [], 0
        self._write(batch)

    @staticmethod
    def _result(future: "asyncio.Future[Reply | None]") -> Reply | None:
        """Return the result of a future: empty for a request without a reply, None while it is not done."""
        return (future.result() or []) if future.done() else None

    def _write(self, batch: list[Buffer]) -> None:
        if batch:
            data = batch[0] if len(batch) == 1 else b"".join(batch)
            self.bytes_sent += len(data)
            self._transport.write(data)

    def _start_parts(self, reply: Reply) -> bool:
        """Begin to send the first reply of the queue, which has large slices; return whether it is complete."""
        for part in reply:
            if isinstance(part, FileSlice):
                if part.size:
                    self._parts.append(part)
            elif self._parts and not isinstance(before := self._parts[-1], FileSlice):
                # Adjacent buffers are sent in one call.
                self._parts[-1] = b"".join((before, part))
            elif part:
                self._parts.append(part)
        if self._socket is None and self._plain_socket is not None:
            self._duplicate_socket(self._plain_socket)
        return self._send_parts()

    def _duplicate_socket(self, plain_socket: socket.socket) -> None:
        try:
            self._socket = socket.socket(fileno=os.dup(plain_socket.fileno()))
        except OSError:
            # Most likely no descriptor is left: this reply is sent by the transport.
            return
        self._socket.setblocking(False)

    def _send_parts(self) -> bool:
        """Send parts of the first reply; return whether it is complete. If not, `resume` will be called."""
        if self._socket is not None and self._transport.get_write_buffer_size() == 0:
            done = self._send_to_socket(self._socket)
        else:
            done = self._send_to_transport()
        if done:
            self._queue.popleft()
        return done

    def _send_to_socket(self, peer: socket.socket) -> bool:
        """Send parts with system calls until the socket is full; return whether all were sent."""
        budget = _TURN_SIZE_MAX
        try:
            while self._parts and budget > 0:
                sent = self._send_part(peer, self._parts[0])
                budget -= sent
                self.bytes_sent += sent
        except BlockingIOError:
            pass
        if not self._parts:
            self._unwatch()
            return True
        self._waiting = True
        if not self._watching:
            self._watching = True
            self._loop.add_writer(peer.fileno(), self.resume)
        return False

    def _send_part(self, peer: socket.socket, part: Buffer | FileSlice) -> int:
        if isinstance(part, FileSlice) and (descriptor := part.file.descriptor()) is not None:
            sent = os.sendfile(peer.fileno(), descriptor, part.position, min(part.size, _TURN_SIZE_MAX))
            if not sent:
                raise _too_short(part)
        else:
            data = _read_piece(part) if isinstance(part, FileSlice) else part
            # More data follows a header immediately: one TCP segment instead of two.
            sent = peer.send(data, socket.MSG_MORE if len(self._parts) > 1 else 0)
        self._advance(part, sent)
        return sent

    def _advance(self, part: Buffer | FileSlice, sent: int) -> None:
        """Remove the first `sent` bytes of the first part."""
        if isinstance(part, FileSlice):
            rest: Buffer | FileSlice = FileSlice(part.file, part.position + sent, part.size - sent)
            remaining = part.size - sent
        else:
            rest = memoryview(part)[sent:]
            remaining = len(rest)
        if remaining:
            self._parts[0] = rest
        else:
            self._parts.popleft()

    def _send_to_transport(self) -> bool:
        """Write parts to the transport until it is full; return whether all were written."""
        budget = _TURN_SIZE_MAX
        while self._parts:
            part = self._parts[0]
            data = _read_piece(part) if isinstance(part, FileSlice) else part
            self._advance(part, len(data))
            budget -= len(data)
            self.bytes_sent += len(data)
            self._transport.write(data)
            # `write` calls `pause` if the peer does not keep up.
            if self._waiting and self._parts:
                return False
            if budget <= 0 and self._parts:
                self._waiting = True
                self._loop.call_soon(self.resume)
                return False
        return True

    def _unwatch(self) -> None:
        if self._watching and self._socket is not None:
            self._watching = False
            self._loop.remove_writer(self._socket.fileno())

    def close(self) -> None:
        """Release everything.

        Parked requests (plain futures) are cancelled, since no peer waits for them; a coroutine runs to its end, since
        cancelling it could leave a change half done.
        """
        self._closed = True
        self._unwatch()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        for entry in filter(_is_parked, self._queue):
            cast("asyncio.Future[Reply | None]", entry).cancel()
        self._queue.clear()
        self._parts.clear()


def _is_parked(entry: "Reply | asyncio.Future[Reply | None]") -> bool:
    return isinstance(entry, asyncio.Future) and not isinstance(entry, asyncio.Task) and not entry.done()


def _read_if_small(reply: Reply) -> list[Buffer] | None:
    """Return a reply with its slices read into buffers if it is small, else None."""
    if parts_size(reply) > _COPIED_SIZE_MAX:
        return None
    return [_read_all(part) if isinstance(part, FileSlice) else part for part in reply]


def _read_all(part: FileSlice) -> bytes:
    data = part.file.read_at(part.position, part.size)
    if len(data) < part.size:
        raise _too_short(part)
    return data


def _read_piece(part: FileSlice) -> bytes:
    data = part.file.read_at(part.position, min(part.size, _PIECE_SIZE))
    if not data:
        raise _too_short(part)
    return data


def _too_short(part: FileSlice) -> OSError:
    return OSError(f"{part.file.path} ends before byte {part.position}: {part.size} bytes are missing")
