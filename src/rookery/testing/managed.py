"""What the embedded broker and the embedded cluster have in common: context managers, and ports that stay reserved."""

import asyncio
import socket
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Final, Protocol, Self

HOST: Final = "127.0.0.1"


class Runner(Protocol):
    """One run of a broker: `BrokerThread` in the test's process, `BrokerProcess` in another one.

    `stop` is called once after a `start` that returned, and also ends a paused broker. Called from another thread
    during `start`, it ends it: `start` then raises StartupError.
    """

    def start(self) -> None:
        """Return when the broker serves. Raises StartupError, after releasing everything, if it cannot."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself, after `start` returned: a node of a cluster does when its disk fails."""
        ...

    def stop(self, *, clean: bool) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def advance_time(self, seconds: float) -> None: ...


class Managed(ABC):
    """A context manager, for `with` and `async with`."""

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)


def reserve_port() -> socket.socket:
    """Bind a free port. A process that sets SO_REUSEADDR, as the broker does, may listen on it; the system does not
    assign it to one that requests any port."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((HOST, 0))
    return reserved
