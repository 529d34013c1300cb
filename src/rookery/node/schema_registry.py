"""The schema registry in a broker's process, where `schema.registry.listeners` switches it on.

Nothing of the registry is imported before it is switched on: it needs libraries that a broker does not.
"""

from typing import TYPE_CHECKING

from rookery.base.config_registry import LISTENERS
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


async def start_registry(settings: Settings, address: str) -> "RegistryNode | None":
    """The registry, serving, if it is switched on; its schemas are kept by the broker at `address`."""
    if not settings.has_registry:
        return None
    registry = _make(settings, address)
    await registry.start()
    return registry


def _make(settings: Settings, address: str) -> "RegistryNode":
    try:
        from rookery.registry.node import RegistryNode
        from rookery.registry.settings import RegistrySettings
    except ModuleNotFoundError as error:
        raise StartupError(
            f"{LISTENERS} is set, but the module {error.name} is missing. "
            "Install the registry's libraries: pip install 'rookery[registry]'."
        ) from error
    return RegistryNode(RegistrySettings.of_broker(settings.layers.static, bootstrap_servers=address))
