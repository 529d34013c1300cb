"""The client of the counted broker: frames over plain sockets. It runs in another process and is not counted."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from bench import wire
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message

# Runs an operation once.
RunOnce: TypeAlias = Callable[[], None]


class Client:
    """One connection to the broker at `port`."""

    def __init__(self, port: int) -> None:
        self._socket = wire.connect(port)

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> bytes:
        return wire.read_reply(self._socket)

    def exchange(self, frame: bytes) -> bytes:
        self.send(frame)
        return self.receive()

    def call(self, api_key: ApiKey, version: int, **fields: Any) -> Message:
        frame = wire.request_frame(api_key, version, Message(**fields))
        return wire.decode_reply(api_key, version, self.exchange(frame))


def require_success(error_codes: Iterable[int]) -> None:
    """Raise WireError unless every error code is 0."""
    failed = [code for code in error_codes if code]
    if failed:
        raise wire.WireError(f"the broker answered with the error codes {failed[:10]}")


def repeat(port: int, frame: bytes, api_key: ApiKey, version: int, check: Callable[[Message], None]) -> RunOnce:
    """Send `frame` on each run. The first reply is decoded and checked, every later one must be equal to it."""
    client = Client(port)
    first = client.exchange(frame)
    check(wire.decode_reply(api_key, version, first))

    def run() -> None:
        if client.exchange(frame) != first:
            raise wire.WireError(f"the reply to {api_key!r} differs from the first one")

    return run
