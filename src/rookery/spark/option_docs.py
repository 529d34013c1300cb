"""Writes docs/spark-options.md from the option table: `python -m rookery.spark.option_docs > docs/spark-options.md`."""

import sys
from collections.abc import Callable

from rookery.base.config_docs import key_table, section
from rookery.spark.option_table import OPTIONS, REFUSED_READ_KEYS, REFUSED_WRITE_KEYS, Option, Scope

_INTRODUCTION = """\
# Options of the Spark source and sink

<!-- Generated from src/rookery/spark/option_table.py by `make docs`. Do not edit. -->

Options of `format("rookery")`; [spark.md](spark.md) shows how to use them. Names, defaults and meanings are those of
Spark's own Kafka connector where it has the option. Names are not case-sensitive. An unknown option is an error.

`kafka.*` are settings of the [client](client-config.md), without the prefix; keys of another kind of client are
ignored. `schema.registry.*` are settings of the [registry's client](serdes.md).
"""
_PARTS: tuple[tuple[str, Callable[[Scope], bool]], ...] = (
    ("Reading and writing", lambda scopes: scopes is Scope.ALL),
    ("Reading", lambda scopes: scopes is Scope.READ),
    ("Batches only", lambda scopes: scopes is Scope.BATCH_READ),
    ("Streams only", lambda scopes: scopes is Scope.STREAM_READ),
    ("Writing", lambda scopes: bool(scopes & Scope.WRITE) and scopes is not Scope.ALL),
)
_INERT = "Accepted for compatibility with Spark's connector, and ignored.\n\n"


def render() -> str:
    parts = [_INTRODUCTION]
    for title, belongs in _PARTS:
        rows = [option for option in OPTIONS.values() if belongs(option.scopes) and option.key.effective]
        parts.append(section(title, _table(rows)))
    parts.append(section("Without effect", _INERT + _table([o for o in OPTIONS.values() if not o.key.effective])))
    parts.append(section("Refused", _refused()))
    return "\n".join(parts)


def _table(options: list[Option]) -> str:
    return key_table(option.key for option in options)


def _refused() -> str:
    lines = [f"- `kafka.{key}`: {reason}.\n" for key, reason in {**REFUSED_READ_KEYS, **REFUSED_WRITE_KEYS}.items()]
    return "".join(lines)


if __name__ == "__main__":
    sys.stdout.write(render())
