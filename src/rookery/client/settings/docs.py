"""Generates docs/client-config.md from the tables: `python -m rookery.client.settings.docs > docs/client-config.md`."""

import sys
from collections.abc import Iterable, Mapping

from rookery.base.config_docs import key_table, section
from rookery.base.config_key import ConfigKey
from rookery.client.settings.admin import ADMIN_KEYS
from rookery.client.settings.consumer import CONSUMER_KEYS
from rookery.client.settings.parser import is_unsupported
from rookery.client.settings.producer import PRODUCER_KEYS

_INTRODUCTION = """\
# Configuration of the clients

<!-- Generated from the tables in src/rookery/client/settings by `make docs`. Do not edit. -->

`Producer`, `Consumer` and `Admin` take a mapping of Kafka's names to values. Keys, types, defaults and limits are those
of Apache Kafka 4. A value is a Python value (`5`, `True`, `["a", "b"]`) or its text in a properties file (`"5"`,
`"true"`, `"a,b"`).

Unknown keys, invalid values and invalid combinations are errors. One error lists all mistakes and names the keys; for
an unknown key it suggests a similar one. Python objects are not part of the mapping, but arguments of the client:
`key_serializer`, `value_serializer`, `partitioner`, `key_deserializer`, `value_deserializer`, `assignors`,
`interceptors`.

Combinations of keys:

- `acks` other than `all`, or `retries=0`, turns idempotence off; together with `enable.idempotence=true` it is an
  error, and so is a `transactional.id` without idempotence. More than 5 requests in flight need
  `enable.idempotence=false`.
- `delivery.timeout.ms` must be at least `linger.ms` + `request.timeout.ms`; if it is not set, it is raised to that.
- Without a `group.id` there are no automatic commits, and `group.instance.id` is an error.
- With `group.protocol=consumer` the broker determines `session.timeout.ms`, `heartbeat.interval.ms` and the assignor;
  only then can `group.remote.assignor` be set. In the classic protocol, `heartbeat.interval.ms` must be less than
  `session.timeout.ms`.
- `fetch.max.wait.ms` must not exceed `request.timeout.ms`; if it is not set, it is at most half of that.
- The admin client's `default.api.timeout.ms` must be at least `request.timeout.ms`; if it is not set, it is raised.
- `reconnect.backoff.ms` without `reconnect.backoff.max.ms` is constant.
"""
_NO_EFFECT = "Known and checked, so that the properties of a Kafka client are accepted.\n\n"
_UNSUPPORTED = "Any value but the default is an error, which says what to do instead.\n\n"
_CLIENTS = {"Producer": PRODUCER_KEYS, "Consumer": CONSUMER_KEYS, "Admin": ADMIN_KEYS}


def render() -> str:
    shared = [key for name, key in PRODUCER_KEYS.items() if all(keys.get(name) == key for keys in _CLIENTS.values())]
    names = {key.name for key in shared}
    own = {client: _without(keys, names) for client, keys in _CLIENTS.items()}
    # A key of two clients has one row if they agree on its default.
    rest = {(key.name, key.default): key for key in [*shared, *(key for keys in own.values() for key in keys)]}
    others = [rest[name] for name in sorted(rest, key=lambda name: name[0]) if not rest[name].internal]
    return "\n".join(
        [
            _INTRODUCTION,
            section("All clients", key_table(filter(_has_effect, shared))),
            *(section(client, key_table(filter(_has_effect, keys))) for client, keys in own.items()),
            section("Without effect", _NO_EFFECT + key_table(key for key in others if _has_no_effect(key))),
            section("Not supported", _UNSUPPORTED + key_table(key for key in others if is_unsupported(key))),
        ]
    )


def _without(keys: Mapping[str, ConfigKey], names: Iterable[str]) -> list[ConfigKey]:
    return [key for name, key in keys.items() if name not in names]


def _has_effect(key: ConfigKey) -> bool:
    return key.effective


def _has_no_effect(key: ConfigKey) -> bool:
    return not key.effective and not is_unsupported(key)


if __name__ == "__main__":
    sys.stdout.write(render())
