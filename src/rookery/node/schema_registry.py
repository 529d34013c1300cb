"""The schema registry in a broker's process, where `schema.registry.listeners` switches it on.

Nothing of the registry is imported before it is switched on: it needs libraries that a broker does not.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rookery.base.config_registry import LISTENERS
from rookery.base.distribution import install_hint
from rookery.base.errors import StartupError
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
    """Of one node; its schemas are kept by the broker at `address`."""

    def __init__(self, settings: Settings, address: str) -> None:
        self._node = _make(settings, address)

    def bind(self) -> None:
        """Take its ports. StartupError, in terms of the broker's keys, if one of them cannot be had."""
        with _told_in_broker_terms():
            self._node.bind()

    async def start(self) -> None:
        """Serve; the broker does already."""
        with _told_in_broker_terms():
            await self._node.start()

    async def stop(self, *, clean: bool) -> None:
        await self._node.stop(clean=clean)


@contextmanager
def _told_in_broker_terms() -> Iterator[None]:
    from rookery.registry.settings import in_terms_of_broker

    try:
        yield
    except StartupError as error:
        raise StartupError(in_terms_of_broker(str(error))) from error


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
