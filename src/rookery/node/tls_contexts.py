"""TLS contexts that are renewed while the node runs: when a key store's file changes, or its settings do.

Key stores are read in a thread. If a new store cannot be used, the error is logged and the old context stays: a broker
with an old certificate serves more clients than one without any.
"""

import asyncio
import ssl
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Final, TypeAlias

import structlog

from rookery.base.errors import ConfigError, StartupError
from rookery.node.background import Job

logger = structlog.get_logger(__name__)

# How often the files are looked at. A change takes effect after at most this time.
_CHECK_INTERVAL_MS: Final = 5000

# Creates a context; reads files. Raises ConfigError.
ContextMaker: TypeAlias = Callable[[], ssl.SSLContext]
_Version: TypeAlias = tuple[tuple[int, int, int] | None, ...]


class RenewedContext:
    """The current context of one listener, or of the connections to one. `name` is for messages."""

    def __init__(self, name: str, make: ContextMaker, files: tuple[Path, ...]) -> None:
        self._name = name
        self._make = make
        self._files = files
        self._version: _Version = ()
        self._context: ssl.SSLContext | None = None

    def current(self) -> ssl.SSLContext:
        assert self._context is not None, "load comes first"
        return self._context

    def load(self) -> None:
        """Create the context. Blocks; raises StartupError with the name of the key that is wrong."""
        self._version = _version_of(self._files)
        try:
            self._context = self._make()
        except ConfigError as error:
            raise StartupError(f"{self._name}: {error}") from error

    def replace(self, make: ContextMaker, files: tuple[Path, ...]) -> None:
        """Use other settings from the next `renew` on."""
        self._make, self._files, self._version = make, files, ()

    def renew(self) -> None:
        """Create the context again if the files have changed. Blocks."""
        version = _version_of(self._files)
        if version == self._version:
            return
        # Also after a failure: the same files are not read, and the error is not logged, every few seconds.
        self._version = version
        try:
            self._context = self._make()
        except ConfigError as error:
            logger.error("the renewed certificates cannot be used, the old ones stay", of=self._name, error=str(error))
            return
        logger.info("certificates renewed", of=self._name)


class TlsContexts:
    """All contexts of a node."""

    def __init__(self, executor: Executor | None) -> None:
        self._executor = executor
        self._contexts: list[RenewedContext] = []

    def add(self, name: str, make: ContextMaker, files: tuple[Path, ...]) -> RenewedContext:
        context = RenewedContext(name, make, files)
        self._contexts.append(context)
        return context

    async def load(self) -> None:
        """Create all contexts. Raises StartupError."""
        for context in self._contexts:
            await self._run(context.load)

    async def renew(self) -> None:
        for context in self._contexts:
            await self._run(context.renew)

    def jobs(self) -> list[Job]:
        return [Job("certificates", lambda: _CHECK_INTERVAL_MS, self.renew)] if self._contexts else []

    async def _run(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._executor, work)


def _version_of(files: tuple[Path, ...]) -> _Version:
    return tuple(map(_state_of, files))


def _state_of(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
