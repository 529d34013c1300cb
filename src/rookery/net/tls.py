"""TLS on accepted connections: a layer between a socket's transport and a `Connection`, which sees a transport.

The event loops' own TLS is not used, because a listener needs what they do not offer: the connection counts from the
moment it is accepted, so that limits and time-outs apply to handshakes too; a peer that sends nothing costs no TLS
state; and every connection takes the context of that moment, so that certificates are renewed without a restart
(docs/decisions/0037). The bytes of all connections of a listener arrive in one shared buffer, and decrypted bytes go
directly to the buffer of the connection's frames.

States:

    state        ends when                                   behaviour
    accepted     the first bytes arrive -> handshake         no TLS state yet
    handshake    it is complete -> open; fails -> closed     nothing reaches the connection
    open         the peer or the connection closes           decrypts and encrypts
    closed       never                                       drops everything
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from rookery.base.types import Buffer
from rookery.net.connection import Connection

# How many bytes are encrypted before they are passed to the socket; it bounds the copy in memory.
_PIECE_SIZE: Final = 262_144


class TlsLayer(asyncio.BufferedProtocol, asyncio.Transport):
    """The protocol of the socket's transport, and the transport of `connection`.

    `new_context` returns the context of a new connection. `on_open` is called after the handshake with the client's
    certificate (DER; None if it has none), and may reject the connection by returning a reason.
    """

    def __init__(
        self,
        connection: Connection,
        new_context: Callable[[], ssl.SSLContext],
        scratch: memoryview,
        on_open: Callable[[Connection, bytes | None], str | None],
    ) -> None:
        super().__init__()
        self._connection = connection
        self._new_context = new_context
        self._scratch = scratch
        self._on_open = on_open
        self._raw: asyncio.Transport
        self._loop: asyncio.AbstractEventLoop
        self._incoming: ssl.MemoryBIO
        self._outgoing: ssl.MemoryBIO
        self._tls: ssl.SSLObject | None = None
        self._context: ssl.SSLContext | None = None
        self._is_open = False
        self._is_closing = False
        self._reading_paused = False
        self._read_scheduled = False

    # The protocol of the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        self._connection.connection_made(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = True
        self._tls = None
        self._connection.connection_lost(error)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch

    def buffer_updated(self, count: int) -> None:
        if self._is_closing:
            return
        if self._tls is None:
            self._begin()
        self._incoming.write(self._scratch[:count])
        if self._is_open or self._shake_hands():
            self._read()

    def eof_received(self) -> bool:
        if not self._is_open or self._is_closing:
            return False
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        if self._is_open:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        if self._is_open:
            self._connection.resume_writing()

    # The handshake

    def _begin(self) -> None:
        self._context = self._new_context()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def _shake_hands(self) -> bool:
        """Continue the handshake; return whether it is complete."""
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            # The peer gets the alert.
            self._flush()
            self._fail(f"the TLS handshake failed: {error.reason or error}")
            return False
        self._flush()
        self._is_open = True
        reason = self._on_open(self._connection, self._tls.getpeercert(binary_form=True))
        if reason is not None:
            self._fail(reason)
        return not self._is_closing

    def _fail(self, reason: str) -> None:
        self._connection.reject(reason)

    # Received bytes

    def _read(self) -> None:
        """Decrypt what has arrived, as far as the connection takes it."""
        has_more = True
        while has_more and not (self._reading_paused or self._is_closing):
            buffer = self._connection.get_buffer(-1)
            count, has_more, is_end = self._decrypt(buffer)
            if count:
                self._connection.buffer_updated(count)
            if is_end and not self._is_closing and not self._connection.eof_received():
                self.close()

    def _decrypt(self, buffer: memoryview) -> tuple[int, bool, bool]:
        """Fill a buffer; return the number of bytes, whether more may follow, and whether the peer sends no more."""
        assert self._tls is not None
        read, count, size = self._tls.read, 0, len(buffer)
        try:
            while count < size:
                got = read(size - count, buffer[count:])
                if not got:
                    return count, False, True
                count += cast(int, got)
        except ssl.SSLWantReadError:
            return count, False, False
        except ssl.SSLError as error:
            self._connection.reject(f"invalid TLS data: {error.reason or error}")
            return 0, False, False
        return count, True, False

    def _read_later(self) -> None:
        self._read_scheduled = False
        if self._is_closing or self._reading_paused:
            return
        if self._is_open:
            self._read()
        if not self._reading_paused and not self._is_closing:
            self._raw.resume_reading()

    # The transport of the connection

    def write(self, data: Buffer) -> None:
        if self._tls is None or self._is_closing:
            return
        if len(data) <= _PIECE_SIZE:
            self._tls.write(data)
            self._flush()
            return
        view = memoryview(data)
        for start in range(0, len(view), _PIECE_SIZE):
            self._tls.write(view[start : start + _PIECE_SIZE])
            self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    def pause_reading(self) -> None:
        if not self._reading_paused:
            self._reading_paused = True
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading; decrypted bytes that were not taken before come first."""
        self._reading_paused = False
        if not self._read_scheduled:
            self._read_scheduled = True
            self._loop.call_soon(self._read_later)

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if self._tls is not None and self._is_open:
            # It raises because the peer's end has not arrived, which is not needed: this side sends no more.
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()
        self._raw.close()

    def abort(self) -> None:
        self._is_closing = True
        self._raw.abort()

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sslcontext":
            return self._context or True
        return self._raw.get_extra_info(name, default)
