"""The clients of this process, one for each set of settings: Spark's Python processes serve many queries and tasks.

Connections and metadata thus outlive a task. They end with the process; a forked child creates its own clients. Each
kind of client takes the keys of `kafka.*` that it supports.
"""

import os
from collections.abc import Callable, Collection, Mapping
from threading import Lock
from typing import Final, TypeAlias, TypeVar

from rookery.base.errors import ApiError
from rookery.client.settings.admin import ADMIN_KEYS
from rookery.client.settings.consumer import CONSUMER_KEYS
from rookery.client.settings.producer import PRODUCER_KEYS
from rookery.client.sync import Admin, Consumer, Producer
from rookery.spark.failures import unreachable

# The limit for the first response of a cluster: short enough to report a wrong address soon, long enough for a broker
# that is starting. Later requests use the client's own time-outs.
_FIRST_RESPONSE_MS: Final = 10_000
_LIMITS: Final = ("default.api.timeout.ms", "request.timeout.ms")

Client = TypeVar("Client")
_Key: TypeAlias = tuple[int, frozenset[tuple[str, str]]]

_lock = Lock()
_admins: dict[_Key, Admin] = {}
_consumers: dict[_Key, Consumer[bytes, bytes]] = {}
_producers: dict[_Key, Producer[bytes, bytes]] = {}


def admin_for(config: Mapping[str, str]) -> Admin:
    """Return the shared admin client. Raises SourceError if no broker responds."""

    def make(settings: dict[str, str]) -> Admin:
        _check_reachable(settings)
        return Admin(settings)

    return _find(_admins, config, ADMIN_KEYS, make)


def consumer_for(config: Mapping[str, str]) -> Consumer[bytes, bytes]:
    """Return the shared consumer. Only one thread at a time may use it; Spark's workers have one thread."""
    return _find(_consumers, config, CONSUMER_KEYS, Consumer)


def producer_for(config: Mapping[str, str]) -> Producer[bytes, bytes]:
    return _find(_producers, config, PRODUCER_KEYS, Producer)


def _find(
    clients: dict[_Key, Client],
    config: Mapping[str, str],
    keys: Collection[str],
    make: Callable[[dict[str, str]], Client],
) -> Client:
    settings = {name: text for name, text in config.items() if name in keys}
    key = (os.getpid(), frozenset(settings.items()))
    with _lock:
        if key not in clients:
            clients[key] = make(settings)
        return clients[key]


def _check_reachable(settings: Mapping[str, str]) -> None:
    limits = {name: int(settings.get(name, _FIRST_RESPONSE_MS)) for name in _LIMITS}
    quick = {name: str(min(limit_ms, _FIRST_RESPONSE_MS)) for name, limit_ms in limits.items()}
    admin = Admin({**settings, **quick})
    try:
        admin.describe_cluster()
    except ApiError as error:
        raise unreachable(settings, error) from None
    finally:
        admin.close()
