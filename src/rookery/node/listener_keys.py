"""Finds keys `listener.name.NAME.[MECHANISM.]KEY` that no listener of this node reads. Pure; `settings` calls it.

As in Kafka they do not end the start, since one file may serve nodes with different listeners. But a misspelt name
leaves a listener with weaker settings than the file seems to say, so that each of them is in a warning.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from rookery.base.config import BROKER_KEYS, LISTENER_PREFIX

# In lower case, as in keys. Listeners with other mechanisms end the start.
_MECHANISMS: Final = frozenset({"plain", "scram-sha-256", "scram-sha-512", "oauthbearer", "gssapi"})


def unused_listener_keys(static: Mapping[str, str], listeners: Iterable[str]) -> tuple[str, ...]:
    """Return the keys of listeners other than `listeners`, and of mechanisms that do not exist."""
    names = {listener.lower() for listener in listeners}
    return tuple(sorted(name for name in static if name.startswith(LISTENER_PREFIX) and not _is_used(name, names)))


def _is_used(name: str, listeners: set[str]) -> bool:
    listener, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    # The names are in lower case: Kafka does not find others either.
    return listener in listeners and (rest in BROKER_KEYS or rest.partition(".")[0] in _MECHANISMS)
