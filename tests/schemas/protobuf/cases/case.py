"""The classes of the cases."""

from typing import NamedTuple

from rookery.schemas.interface import Reference
from rookery.schemas.protobuf import ProtobufSchema, parse


class Imports(NamedTuple):
    """A schema with imports. `resolved` maps their names to texts; those with a version are references."""

    text: str
    resolved: dict[str, str]
    references: tuple[Reference, ...] = ()


class Case(NamedTuple):
    """`rule` is the rule that the case tests. `differences` are all of them, compatible or not: "KIND path".

    A text without a syntax is proto3.
    """

    rule: str
    writer: str | Imports
    reader: str | Imports
    differences: tuple[str, ...] = ()


def parse_side(side: str | Imports) -> ProtobufSchema:
    schema = Imports(side, {}) if isinstance(side, str) else side
    resolved = {name: with_syntax(text) for name, text in schema.resolved.items()}
    return parse(with_syntax(schema.text), resolved, schema.references)


def with_syntax(text: str) -> str:
    return text if text.startswith("syntax") else f'syntax = "proto3"; {text}'
