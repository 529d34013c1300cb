"""One client's connection: frames to the handler, replies back in order.

Theory of operation. A read fills the `FrameBuffer`; a turn then takes frames from it one by one and calls the handler
(stage 1: in order, synchronous). The handler answers at once with a reply, or with None where the protocol wants no
reply, or with an awaitable (stage 2), which may finish in any order while later requests go through stage 1. The
`Sender` puts replies on the wire in the order of the requests, when the `Outbox` says that it is time. A small request
that is answered at once is one `recv`, one call and one `write`: no task, no future, no timer.

A large request takes its stage 1 in slices (`Held`): the connection looks at no further request before it is answered.

A turn ends after a number of frames, so that others get theirs, and stalls while too many requests are unfinished: then
reading stops too, and the peer feels it. Untrusted bytes end the connection with one log line; everything else that a
handler raises is a bug and ends it with a traceback.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import structlog

from rookery.base.errors import ProtocolError
from rookery.base.values import value_class
from rookery.net.outbox import Outbox
from rookery.net.receive import PARTIAL_SIZE_MIN, SCRATCH_SIZE, FrameBuffer, PartialFrames
from rookery.net.send import Reply, Sender

_log = structlog.get_logger(__name__)

FRAMES_PER_TURN = 32

# How a peer that went away shows when writing to it.
_PEER_GONE = {
    errno.EPIPE,
    errno.ECONNRESET,
    errno.ECONNABORTED,
    errno.ENOTCONN,
    errno.ETIMEDOUT,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
}


@dataclass(slots=True)
class ConnectionInfo:
    """What a handler may know and remember about the connection that a request came on."""

    peer_host: str
    peer_port: int
    listener_name: str
    client_software_name: str = "unknown"
    client_software_version: str = "unknown"

    @property
    def peer(self) -> str:
        return f"{self.peer_host}:{self.peer_port}"


class Held:
    """An answer to wait for, before which no later request of the connection is looked at: stage 1 is not over yet."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Coroutine[Any, Any, Reply | None]) -> None:
        self._answer = answer

    def __await__(self) -> Generator[Any, Any, Reply | None]:
        return self._answer.__await__()


Answer: TypeAlias = Reply | Awaitable[Reply | None] | None
Handler: TypeAlias = Callable[[memoryview, ConnectionInfo], Answer]


@value_class(kw_only=True)
class ConnectionLimits:
    request_size_max: int = 104_857_600
    unfinished_max: int = 8


class Connection(asyncio.BufferedProtocol):
    """`on_made` may refuse the connection by returning a reason; `on_lost` is called once for each that it accepted."""

    def __init__(
        self,
        handle: Handler,
        *,
        limits: ConnectionLimits | None = None,
        scratch: memoryview | None = None,
        outbox: Outbox | None = None,
        partial_frames: "PartialFrames[Connection] | None" = None,
        listener_name: str = "PLAINTEXT",
        on_made: "Callable[[Connection], str | None] | None" = None,
        on_lost: "Callable[[Connection], None] | None" = None,
    ) -> None:
        limits = limits or ConnectionLimits()
        self.info = ConnectionInfo("unknown", 0, listener_name)
        self._handle = handle
        self._unfinished_max = limits.unfinished_max
        scratch = memoryview(bytearray(SCRATCH_SIZE)) if scratch is None else scratch
        self._frames = FrameBuffer(scratch, limits.request_size_max)
        self._partial_frames = partial_frames
        self._is_partial = False
        self._sender = Sender(self._on_progress)
        self._outbox = outbox or Outbox()
        self._on_made = on_made
        self._on_lost = on_lost
        self._transport: asyncio.Transport
        self._loop: asyncio.AbstractEventLoop
        self._has_replies = False
        self._held = False
        self._holder: asyncio.Future[Reply | None] | None = None
        self._stalled = False
        self._turn_scheduled = False
        self._reading_paused = False
        self._peer_finished = False
        self._closing = False
        self._received = False
        self._sent_before = 0
        self._idle_since: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.info.peer_host, self.info.peer_port = peer[0], peer[1]
        if self._on_made is not None and (reason := self._on_made(self)):
            self._on_lost = None
            self._fail(reason)
            return
        self._sender.open(self._transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        if self._is_partial:
            self._note_partial(0)
        # A connection is part of cycles, which are collected much later.
        self._frames.release()
        self._sender.close()
        if self._on_lost is not None:
            self._on_lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.writable()

    def buffer_updated(self, count: int) -> None:
        self._received = True
        self._frames.received(count)
        if not self._closing:
            self._take_turn()
        size = self._frames.partial_size
        if size >= PARTIAL_SIZE_MIN or self._is_partial:
            self._note_partial(size)

    def _note_partial(self, size: int) -> None:
        """Tell of a large frame that is not complete, and when that is over."""
        self._is_partial = size >= PARTIAL_SIZE_MIN and not self._closing
        if self._partial_frames is not None:
            self._partial_frames.note(self, size if self._is_partial else 0)

    def eof_received(self) -> bool:
        """The peer sends no more, but may still read: it gets the replies that are being worked on.

        It does not get those of parked requests: most peers that end are gone, and a long poll would hold on to them.
        """
        self._peer_finished = True
        return not (self._is_finished() or self._sender.has_parked)

    def pause_writing(self) -> None:
        self._sender.pause()

    def resume_writing(self) -> None:
        self._sender.resume()

    def _take_turn(self) -> None:
        """Handle the frames that are there, as many as a turn allows, and send what is ready."""
        reason = None
        try:
            has_more = self._handle_frames()
        except ProtocolError as error:
            has_more, reason = False, str(error)
        except Exception:
            _log.exception("request failed", peer=self.info.peer)
            self.abort()
            return
        self._frames.settle()
        if reason is not None:
            self._flush()
            self._fail(reason)
            return
        if self._has_replies:
            self._has_replies = False
            self._outbox.add(self._loop, self._on_progress)
        if has_more:
            self._stall()

    def _handle_frames(self) -> bool:
        """Whether frames may be left for another turn."""
        handle, sender, frames, info = self._handle, self._sender, self._frames, self.info
        for _ in range(FRAMES_PER_TURN):
            if self._held:
                return True
            if sender.unfinished >= self._unfinished_max:
                self._flush()
                if sender.unfinished >= self._unfinished_max:
                    return True
            if self._closing:
                return False
            frame = frames.next_frame()
            if frame is None:
                return False
            answer = handle(frame, info)
            if type(answer) is list:
                sender.push(answer)
                self._has_replies = True
            elif answer is not None:
                self._held = type(answer) is Held
                self._await_answer(cast("Awaitable[Reply | None]", answer))
        return True

    def _await_answer(self, answer: Awaitable[Reply | None]) -> None:
        future = asyncio.ensure_future(answer)
        self._sender.push(future)
        if self._held:
            self._holder = future
        future.add_done_callback(self._on_answer)

    def _on_answer(self, future: "asyncio.Future[Reply | None]") -> None:
        # A held request is the last that was taken, so an earlier one may be answered first: only its own end counts.
        if self._held and self._holder is future:
            self._held, self._holder = False, None
        if not self._closing:
            self._on_progress()
        elif not future.cancelled() and (error := future.exception()) is not None:
            _log.warning("request failed after its connection closed", peer=self.info.peer, error=repr(error))

    def _on_progress(self) -> None:
        """A reply became ready, or it is time to send, or the peer reads again."""
        if self._closing:
            return
        self._flush()
        if self._stalled:
            self._schedule_turn()
        elif self._is_finished():
            self.close()

    def _flush(self) -> None:
        if self._closing:
            return
        try:
            self._sender.flush()
        except asyncio.CancelledError:
            # Whoever answers requests is stopping: the client will ask somebody else.
            self.abort()
        except ProtocolError as error:
            self._fail(str(error))
        except OSError as error:
            if error.errno not in _PEER_GONE:
                _log.error("reply failed", peer=self.info.peer, error=str(error))
            self.abort()
        except Exception:
            _log.exception("request failed", peer=self.info.peer)
            self.abort()

    def _stall(self) -> None:
        """Stop reading until the frames at hand are handled."""
        if self._closing:
            return
        self._stalled = True
        if not self._reading_paused and not self._peer_finished:
            self._reading_paused = True
            self._transport.pause_reading()
        self._schedule_turn()

    def _schedule_turn(self) -> None:
        if not self._turn_scheduled and not self._held and self._sender.unfinished < self._unfinished_max:
            self._turn_scheduled = True
            self._loop.call_soon(self._take_scheduled_turn)

    def _take_scheduled_turn(self) -> None:
        self._turn_scheduled = False
        if self._closing:
            return
        self._stalled = False
        self._take_turn()
        if self._stalled or self._closing:
            return
        if self._is_finished():
            self.close()
        elif self._reading_paused:
            self._reading_paused = False
            self._transport.resume_reading()

    def _is_finished(self) -> bool:
        return self._peer_finished and not self._stalled and not self._sender.unfinished

    def _fail(self, reason: str) -> None:
        """End a connection whose peer does not follow the rules."""
        if not self._closing:
            _log.warning("connection closed", peer=self.info.peer, reason=reason)
            self.close()

    def refuse(self, reason: str) -> None:
        """End the connection at once, and let go of what has arrived."""
        if not self._closing:
            _log.warning("connection closed", peer=self.info.peer, reason=reason)
        self._is_partial = False
        self._frames.release()
        self.abort()

    def close(self) -> None:
        """End the connection after what has been written to it; at once if a reply is stuck half way."""
        if self._sender.is_mid_reply:
            self.abort()
        elif not self._closing:
            self._closing = True
            self._transport.close()

    def abort(self) -> None:
        self._closing = True
        self._transport.abort()

    @property
    def unsent_bytes(self) -> int:
        """What waits in memory for the peer to read."""
        return self._transport.get_write_buffer_size()

    def check_idle(self, now: float, idle_max: float | None) -> None:
        """Called now and then, with the event loop's time in seconds: closes a connection on which nothing moves.

        Bytes count in both directions, so a peer that stopped reading is idle too.
        """
        sent = self._sender.bytes_sent - self.unsent_bytes
        if self._received or sent != self._sent_before or self._idle_since is None:
            self._received = False
            self._sent_before = sent
            self._idle_since = now
        elif idle_max is not None and now - self._idle_since >= idle_max:
            _log.info("connection closed", peer=self.info.peer, reason="idle for connections.max.idle.ms")
            self.abort()
        self._frames.trim()
