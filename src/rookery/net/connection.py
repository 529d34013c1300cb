"""One client's connection: passes frames to the handler, and sends replies back in order.

Theory of operation. A read fills the `FrameBuffer`; a turn (`_take_turn`) then takes frames from it one by one and
calls the handler (stage 1: in order, synchronous). The handler returns a reply, or None if the protocol has no reply,
or an awaitable (stage 2), which may finish in any order while later requests go through stage 1. The `Sender` writes
replies in the order of the requests, when the `Outbox` calls. A small request whose handler returns a reply is one
`recv`, one call and one `write`: no task, no future, no timer.

A large request runs its stage 1 in slices (`Held`): the connection handles no further request until its result is done.

A client that exceeds its quota is throttled by `mute`: the connection reads and handles nothing for some time.

A turn ends after a number of frames, so that other connections get theirs, and stalls while too many requests are
unfinished: then reading stops too, which slows the peer down. Invalid bytes close the connection with one log line;
every other exception of a handler is a bug and closes it with a traceback.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, TypeAlias, cast

import structlog

from rookery.base.errors import ProtocolError
from rookery.base.values import value_class
from rookery.net.hang_up import has_hung_up
from rookery.net.outbox import Outbox
from rookery.net.receive import PARTIAL_SIZE_MIN, SCRATCH_SIZE, FrameBuffer, PartialFrames
from rookery.net.send import Reply, Sender
from rookery.protocol.principal import ANONYMOUS, Principal
from rookery.security.authorizer import ClientDecisions

_log = structlog.get_logger(__name__)

FRAMES_PER_TURN = 32
# How often a muted connection looks whether its peer is gone.
_HANG_UP_CHECK_S = 2.0

# The errors of a write to a peer that has closed its connection.
_PEER_CLOSED = {
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
    """The properties of a request's connection that a handler may read, and set for later requests."""

    peer_host: str
    peer_port: int
    listener_name: str
    client_software_name: str = "unknown"
    client_software_version: str = "unknown"
    # Called when the connection is lost. A handler sets it to notice that the process at the other end has ended.
    on_lost: Callable[[], None] | None = None
    # Whether it is the connection of a client to another node, which forwards its requests to this one.
    is_forwarded: bool = False
    # Stops reading requests for some seconds; None if requests do not arrive on a connection of this node.
    mute: Callable[[float], None] | None = None
    # Whether it is the node itself that sends the requests, within its process.
    is_local: bool = False
    # What the authorizer has decided about the principal, for handlers of frequent requests.
    decisions: tuple[Principal, ClientDecisions] | None = None
    # Whether requests are measured; if so, the event loop's time when the last bytes arrived.
    is_measured: bool = False
    received_s: float = inf
    # The seconds for which the last request has throttled its client; 0 once the metrics have recorded them.
    throttled_s: float = 0.0
    # Whether it is another broker that sends the requests, to copy partitions.
    is_follower: bool = False
    # Set by a handler that returns an awaitable: called once, when the response to that request is ready.
    on_finished: Callable[[], None] | None = None
    # The client that has authenticated itself; of a forwarded request, the one that the other node names.
    principal: Principal = ANONYMOUS

    @property
    def peer(self) -> str:
        return f"{self.peer_host}:{self.peer_port}"


class Held:
    """The result of a request that is still in stage 1: no later request of the connection is handled before it."""

    __slots__ = ("_awaitable",)

    def __init__(self, awaitable: Awaitable[Reply | None]) -> None:
        self._awaitable = awaitable

    def __await__(self) -> Generator[Any, Any, Reply | None]:
        return self._awaitable.__await__()


HandlerResult: TypeAlias = Reply | Awaitable[Reply | None] | None
Handler: TypeAlias = Callable[[memoryview, ConnectionInfo], HandlerResult]


@value_class(kw_only=True)
class ConnectionLimits:
    request_size_max: int = 104_857_600
    unfinished_max: int = 8


class Connection(asyncio.BufferedProtocol):
    """`on_made` may reject the connection by returning a reason; `on_lost` is called once for each accepted one."""

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
        self.info = ConnectionInfo("unknown", 0, listener_name, mute=self.mute)
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
        # While the client is throttled: the end of that time, and the timer of the next look at it.
        self._is_muted = False
        self._muted_until = 0.0
        self._mute_timer: asyncio.TimerHandle | None = None
        self._has_hung_up = False
        self._stalled = False
        self._turn_scheduled = False
        self._reading_paused = False
        self._peer_finished = False
        self._ending = False
        self._closing = False
        self._received = False
        self.bytes_received = 0
        self._sent_before = 0
        self._idle_since: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.info.peer_host, self.info.peer_port = peer[0], peer[1]
        if self._on_made is not None and (reason := self._on_made(self)):
            # The listener has not counted this connection: `on_lost` would decrement its count.
            self._on_lost = None
            self._fail(reason)
            return
        self._sender.open(self._transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        if self._is_partial:
            self._update_partial(0)
        # Release the buffer here: the connection is part of reference cycles, which are collected much later.
        self._frames.release()
        self._sender.close()
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        if self._on_lost is not None:
            self._on_lost(self)
        if self.info.on_lost is not None:
            self.info.on_lost()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.writable()

    def buffer_updated(self, count: int) -> None:
        self._received = True
        if self.info.is_measured:
            self.info.received_s = self._loop.time()
        self._frames.received(count)
        self.bytes_received += count
        if not self._closing:
            self._take_turn()
        size = self._frames.partial_size
        if size >= PARTIAL_SIZE_MIN or self._is_partial:
            self._update_partial(size)

    def _update_partial(self, size: int) -> None:
        """Report the size of a large incomplete frame to `PartialFrames`, and its completion."""
        self._is_partial = size >= PARTIAL_SIZE_MIN and not self._closing
        if self._partial_frames is not None:
            self._partial_frames.update(self, size if self._is_partial else 0)

    def eof_received(self) -> bool:
        """The peer sends no more, but may still read: it gets the replies of running requests.

        It does not get those of parked requests: most peers that send an end of file are gone, and a long poll would
        keep their connections open.
        """
        self._peer_finished = True
        return not (self._is_finished() or self._sender.has_parked)

    def pause_writing(self) -> None:
        self._sender.pause()

    def resume_writing(self) -> None:
        self._sender.resume()

    def _take_turn(self) -> None:
        """Handle the complete frames, up to the limit of a turn, and schedule their replies."""
        reason = None
        try:
            has_more = self._handle_frames()
        except ProtocolError as error:
            has_more, reason = False, str(error)
        except Exception:
            _log.exception("request failed", peer=self.info.peer)
            self.abort()
            return
        self._frames.end_turn()
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
        """Handle frames; return whether some may be left for another turn."""
        handle, sender, frames, info = self._handle, self._sender, self._frames, self.info
        for _ in range(FRAMES_PER_TURN):
            if self._held or self._is_muted:
                return True
            if sender.unfinished >= self._unfinished_max:
                # Replies that are ready wait for the outbox and count as unfinished. Sending them now may be enough.
                self._flush()
                if sender.unfinished >= self._unfinished_max:
                    return True
            if self._closing or self._ending:
                return False
            frame = frames.next_frame()
            if frame is None:
                return False
            result = handle(frame, info)
            if type(result) is list:
                sender.push(result)
                self._has_replies = True
            elif result is not None:
                self._held = type(result) is Held
                self._await_result(cast("Awaitable[Reply | None]", result))
        return True

    def _await_result(self, result: Awaitable[Reply | None]) -> None:
        future = asyncio.ensure_future(result)
        self._sender.push(future)
        if self._held:
            self._holder = future
        if (on_finished := self.info.on_finished) is None:
            future.add_done_callback(self._on_result)
        else:
            self.info.on_finished = None
            future.add_done_callback(partial(self._on_measured_result, on_finished))

    def _on_measured_result(self, on_finished: Callable[[], None], future: "asyncio.Future[Reply | None]") -> None:
        on_finished()
        self._on_result(future)

    def _on_result(self, future: "asyncio.Future[Reply | None]") -> None:
        # An earlier request may finish before the held one, which is the last that was taken. Resuming then would
        # handle later requests concurrently with its stage 1.
        if self._held and self._holder is future:
            self._held, self._holder = False, None
        if not self._closing:
            self._on_progress()
        elif not future.cancelled() and (error := future.exception()) is not None:
            _log.warning("request failed after its connection closed", peer=self.info.peer, error=repr(error))

    def _on_progress(self) -> None:
        """Send replies: one became ready, the outbox is flushed, or the peer reads again."""
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
            # The handler is shutting down: the client will use another broker.
            self.abort()
        except ProtocolError as error:
            self._fail(str(error))
        except OSError as error:
            if error.errno not in _PEER_CLOSED:
                _log.error("reply failed", peer=self.info.peer, error=str(error))
            self.abort()
        except Exception:
            _log.exception("request failed", peer=self.info.peer)
            self.abort()

    def _stall(self) -> None:
        """Stop reading until the buffered frames are handled."""
        if self._closing:
            return
        self._stalled = True
        if not self._reading_paused and not self._peer_finished:
            self._reading_paused = True
            self._transport.pause_reading()
        self._schedule_turn()

    def _schedule_turn(self) -> None:
        """Schedule a turn, unless the connection must first finish requests or is muted."""
        is_blocked = self._turn_scheduled or self._held or self._is_muted
        if not is_blocked and self._sender.unfinished < self._unfinished_max:
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

    def mute(self, duration_s: float) -> None:
        """Handle no further request for `duration_s` seconds. Replies are still sent."""
        if self._closing or self._peer_finished or self._has_hung_up:
            return
        self._is_muted = True
        self._muted_until = max(self._muted_until, self._loop.time() + duration_s)
        self._stall()
        if self._mute_timer is None:
            self._check_mute()

    def refuse(self, reason: str, *, after_s: float) -> None:
        """Handle no request of a new connection, and close it after `after_s` seconds."""
        self._is_muted = True
        self._stall()
        self._mute_timer = self._loop.call_later(after_s, self.drop, reason)

    def _check_mute(self) -> None:
        """End the mute at its time, or if the peer has closed the connection.

        While reading is paused, the event loop does not report an end of file, and a client that is gone would keep its
        connection for as long as it is throttled. Its last requests are read and handled at once.
        """
        self._mute_timer = None
        left_s = self._muted_until - self._loop.time()
        if left_s > 0:
            self._has_hung_up = has_hung_up(self._transport.get_extra_info("socket"))
            if not self._has_hung_up:
                self._mute_timer = self._loop.call_later(min(left_s, _HANG_UP_CHECK_S), self._check_mute)
                return
        self._is_muted = False
        # The time that a connection is idle begins now.
        self._received = True
        self._schedule_turn()

    def _is_finished(self) -> bool:
        """Return whether no more requests are handled and all replies were sent."""
        return (self._ending or (self._peer_finished and not self._stalled)) and not self._sender.unfinished

    def use(self, handle: Handler) -> None:
        """Pass later requests to another handler."""
        self._handle = handle

    def limit_requests(self, size_max: int, key: str) -> None:
        """Limit the size of later requests; `key` is the setting that has it."""
        self._frames.limit(size_max, key)

    def end(self) -> None:
        """Handle no more requests, and close the connection when the replies to earlier ones were sent."""
        self._ending = True
        if self._is_finished():
            self._loop.call_soon(self._on_progress)

    def _fail(self, reason: str) -> None:
        """Log the reason and close the connection after the replies that were written."""
        if not self._closing:
            _log.warning("connection closed", peer=self.info.peer, reason=reason)
            self.close()

    def reject(self, reason: str) -> None:
        """Log the reason and close the connection after the bytes that were written."""
        self._fail(reason)

    def drop(self, reason: str) -> None:
        """Close the connection immediately, and release the received bytes."""
        if not self._closing:
            _log.warning("connection closed", peer=self.info.peer, reason=reason)
        self._is_partial = False
        self._frames.release()
        self.abort()

    def close(self) -> None:
        """Close the connection after the written replies; immediately if a reply was written only in part."""
        if self._sender.is_mid_reply:
            self.abort()
        elif not self._closing:
            self._closing = True
            self._transport.close()

    def abort(self) -> None:
        """Close the connection immediately; replies that the peer has not received are lost."""
        self._closing = True
        self._transport.abort()

    @property
    def bytes_sent(self) -> int:
        return self._sender.bytes_sent

    @property
    def unsent_bytes(self) -> int:
        """The bytes in memory that the peer has not read yet."""
        return self._transport.get_write_buffer_size()

    def check_idle(self, now: float, idle_max: float | None) -> None:
        """Close the connection if no bytes were received or sent for `idle_max` seconds.

        Called periodically with the event loop's time in seconds. A peer that stopped reading is idle, too; a muted one
        is not.
        """
        sent = self._sender.bytes_sent - self.unsent_bytes
        if self._received or self._is_muted or sent != self._sent_before or self._idle_since is None:
            self._received = False
            self._sent_before = sent
            self._idle_since = now
        elif idle_max is not None and now - self._idle_since >= idle_max:
            _log.info("connection closed", peer=self.info.peer, reason="idle for connections.max.idle.ms")
            self.abort()
        self._frames.trim()
