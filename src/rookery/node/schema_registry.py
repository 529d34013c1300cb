"""The schema registry in a broker's process, where `schema.registry.listeners` switches it on.

It runs on an event loop in a thread of its own: what its clients ask for, parsing of large schemas above all, must not
hold up the broker's loop. The two share nothing but the interpreter; the registry reaches the broker as any client.

Nothing of the registry is imported before it is switched on: it needs libraries that a broker does not.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rookery.base.config_registry import LISTENERS
from rookery.base.distribution import install_hint
from rookery.base.errors import StartupError
from rookery.base.loop_thread import LoopThread
from rookery.node.settings import Settings

if TYPE_CHECKING:
    from rookery.registry.node import RegistryNode

# Not known before the listeners have their ports; for a look at the other keys any address does.
_ANY_BROKER = "127.0.0.1:9092"


def check_registry(settings: Settings) -> None:
    """Before anything is opened: ConfigError, or StartupError if the registry's libraries are not there."""
    if settings.has_registry:
        _make(settings, _ANY_BROKER)


class SchemaRegistry:
    """Of one node; its schemas are kept by the broker at `address`. `new_loop` makes the loop of its thread."""

    def __init__(self, settings: Settings, address: str, *, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._node = _make(settings, address)
        self._new_loop = new_loop
        self._thread: LoopThread | None = None
        self._starting: asyncio.Task[Any] | None = None

    def bind(self) -> None:
        """Take its ports. StartupError, in terms of the broker's keys, if one of them cannot be had."""
        with _told_in_broker_terms():
            self._node.bind()

    async def start(self) -> None:
        """Serve; the broker does already."""
        self._thread = LoopThread("rookery-registry", self._new_loop)
        with _told_in_broker_terms():
            await self._on_its_loop(self._start())

    async def stop(self, *, clean: bool) -> None:
        if self._thread is None:
            await self._node.stop(clean=clean)
            return
        await self._on_its_loop(self._stop(clean=clean))
        thread, self._thread = self._thread, None
        await asyncio.to_thread(thread.stop)

    async def _start(self) -> None:
        self._starting = asyncio.current_task()
        await self._node.start()

    async def _stop(self, *, clean: bool) -> None:
        if self._starting is not None:
            # A start that was cancelled is still letting go of what it had.
            await asyncio.wait([self._starting])
        await self._node.stop(clean=clean)

    async def _on_its_loop(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._thread is not None
        await asyncio.wrap_future(self._thread.submit(work))


@contextmanager
def _told_in_broker_terms() -> Iterator[None]:
    from rookery.registry.settings import with_broker_names

    try:
        yield
    except StartupError as error:
        raise StartupError(with_broker_names(str(error))) from error


def _make(settings: Settings, address: str) -> "RegistryNode":
    try:
        from rookery.registry.node import RegistryNode
        from rookery.registry.settings import RegistrySettings
    except ModuleNotFoundError as error:
        raise StartupError(
            f"{LISTENERS} is set, but the module {error.name} is missing. "
            f"Install the registry's libraries: {install_hint('registry')}."
        ) from error
    return RegistryNode(RegistrySettings.of_broker(settings.layers.static, bootstrap_servers=address))
