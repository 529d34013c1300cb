"""Generates docs/config.md from the tables: `python -m rookery.base.config_docs > docs/config.md`.

`client.settings.docs` generates the page of the clients' keys with the same sections and tables.
"""

import sys
from collections.abc import Callable, Iterable

from rookery.base.config import BROKER_KEYS, can_update
from rookery.base.config_key import INT_MAX, LONG_MAX, ConfigKey, ConfigType, format_value
from rookery.base.config_topic import TOPIC_KEYS

_INTRODUCTION = """\
# Configuration

<!-- Generated from the tables in src/rookery/base/config_*.py by `make docs`. Do not edit. -->

Keys, types, defaults and limits are those of Apache Kafka 4; a description says so where a default differs. A broker
reads them from a properties file (`rookery start --config server.properties`) and from the command line
(`--set key=value`, which takes precedence). An unknown key is an error; a key without effect is accepted and logged at
the start.

Topics have their own values (`rookery topics create --config key=value`, `rookery configs alter`); a key that a topic
does not set gets its value from the first of the *broker keys* that is set. Broker keys marked with a star can be
changed while the broker runs, for one broker or for all.
"""
_STAR = " \\*"
_NAMES = {INT_MAX: "2147483647 (no limit)", LONG_MAX: "9223372036854775807 (no limit)"}


def render() -> str:
    broker_keys = [key for key in BROKER_KEYS.values() if not key.internal]
    parts = [
        _INTRODUCTION,
        section("Topic configs", _topic_table(key for key in TOPIC_KEYS.values() if not key.internal)),
        section("Broker configs", _broker_table(key for key in broker_keys if key.effective)),
        section(
            "Broker configs without effect",
            "Known and checked, so that a Kafka server's properties file is accepted.\n\n"
            + _broker_table(key for key in broker_keys if not key.effective),
        ),
    ]
    return "\n".join(parts)


def section(title: str, body: str) -> str:
    return f"## {title}\n\n{body}"


def _topic_table(keys: Iterable[ConfigKey]) -> str:
    rows = [
        (f"`{key.name}`", _type(key), _default(key), _limits(key), _names(key.synonyms), _topic_text(key))
        for key in keys
    ]
    return markdown_table(("key", "type", "default", "allowed", "broker keys", "meaning"), rows)


def key_table(keys: Iterable[ConfigKey], *, mark: Callable[[ConfigKey], str] = lambda key: "") -> str:
    """Return a table with a line per key; `mark` is appended to the name."""
    rows = [(f"`{key.name}`" + mark(key), _type(key), _default(key), _limits(key), key.doc) for key in keys]
    return markdown_table(("key", "type", "default", "allowed", "meaning"), rows)


def _broker_table(keys: Iterable[ConfigKey]) -> str:
    return key_table(keys, mark=lambda key: _STAR * can_update(key.name))


def markdown_table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [titles, ("---",) * len(titles), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _topic_text(key: ConfigKey) -> str:
    return key.doc if key.effective else f"{key.doc} No effect."


def _type(key: ConfigKey) -> str:
    return key.type.name.lower()


def _default(key: ConfigKey) -> str:
    if isinstance(key.default, int) and key.default in _NAMES:
        return _NAMES[key.default]
    text = format_value(key.default)
    return "" if not text else f"`{text}`"


def _limits(key: ConfigKey) -> str:
    if key.choices:
        return ", ".join(key.choices)
    if key.minimum is None and key.maximum is None:
        return "true, false" if key.type is ConfigType.BOOLEAN else ""
    text = f"{'' if key.minimum is None else key.minimum}..{'' if key.maximum is None else key.maximum}"
    return text if key.also is None else f"{text} or {key.also}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    sys.stdout.write(render())
