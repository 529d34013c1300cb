"""The schema registry in a broker's process, enabled by `schema.registry.listeners`.

It runs on its own event loop in its own thread, because its requests, above all the parsing of large schemas, must not
block the broker's loop. The two share only the interpreter; the registry connects to the broker like any client.

No module of the registry is imported unless it is enabled: it needs libraries that a broker does not.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from rookery.base.codes import SecurityProtocol
from rookery.base.config_registry import CLIENT_PREFIX, LISTENERS, REGISTRY_PREFIX
from rookery.base.distribution import install_hint
from rookery.base.errors import ConfigError, StartupError
from rookery.base.loop_thread import LoopThread
from rookery.node.settings import Settings

if TYPE_CHECKING:
    from rookery.registry.node import RegistryNode

CLIENT_KEYS: Final = REGISTRY_PREFIX + CLIENT_PREFIX
BOOTSTRAP: Final = f"{CLIENT_KEYS}bootstrap.servers"
PROTOCOL: Final = f"{CLIENT_KEYS}security.protocol"

# The broker's address is not known before the listeners are bound; to check the other keys, any address will do.
_ANY_BROKER = "127.0.0.1:9092"


def check_registry(settings: Settings) -> None:
    """Check the registry's settings before anything is opened.

    Raises ConfigError if a setting is invalid, and StartupError if the registry's libraries are not installed.
    """
    if settings.has_registry:
        _create(settings, _ANY_BROKER)
        if BOOTSTRAP not in settings.layers.static and not has_listener(settings):
            raise ConfigError(
                f"{LISTENERS} is set, but no listener of this broker uses {store_protocol(settings).name}, with which "
                f"the registry connects to it. Set {PROTOCOL} to the protocol of one of listeners, with the keys "
                f"{CLIENT_KEYS}sasl.* and {CLIENT_KEYS}ssl.* of a client, or set {BOOTSTRAP}."
            )


def store_protocol(settings: Settings) -> SecurityProtocol:
    """Return the security protocol with which the registry, and checks of schemas, connect to this broker."""
    text = settings.layers.static.get(PROTOCOL, "PLAINTEXT").strip().upper()
    return SecurityProtocol[text] if text in SecurityProtocol.__members__ else SecurityProtocol.PLAINTEXT


def has_listener(settings: Settings) -> bool:
    protocol = store_protocol(settings)
    return any(settings.security[each.name].protocol is protocol for each in settings.listeners)


class SchemaRegistry:
    """The registry of one node. It stores its schemas in the broker at `address`; `new_loop` creates its event loop."""

    def __init__(self, settings: Settings, address: str, *, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._node = _create(settings, address)
        self._new_loop = new_loop
        self._thread: LoopThread | None = None
        self._starting: asyncio.Task[Any] | None = None

    def bind(self) -> None:
        """Bind its ports. Raises StartupError, with the names of the broker's keys, if a port cannot be bound."""
        with _broker_key_names():
            self._node.bind()

    async def start(self) -> None:
        """Serve. The broker must already serve."""
        self._thread = LoopThread("rookery-registry", self._new_loop)
        with _broker_key_names():
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
            # A cancelled start is still releasing its resources.
            await asyncio.wait([self._starting])
        await self._node.stop(clean=clean)

    async def _on_its_loop(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._thread is not None
        await asyncio.wrap_future(self._thread.submit(work))


@contextmanager
def _broker_key_names() -> Iterator[None]:
    """Replace the registry's config keys by the broker's in the text of a StartupError."""
    from rookery.registry.settings import with_broker_names

    try:
        yield
    except StartupError as error:
        raise StartupError(with_broker_names(str(error))) from error


def _create(settings: Settings, address: str) -> "RegistryNode":
    try:
        from rookery.registry.node import RegistryNode
        from rookery.registry.settings import RegistrySettings
    except ModuleNotFoundError as error:
        raise StartupError(
            f"{LISTENERS} is set, but the module {error.name} is missing. "
            f"Install the registry's libraries: {install_hint('registry')}."
        ) from error
    return RegistryNode(RegistrySettings.of_broker(settings.layers.static, bootstrap_servers=address))
