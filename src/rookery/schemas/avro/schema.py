"""An Avro schema as the registry handles it.

    text --parsing--> tree (model) --printing--> canonical text
                        |  |
                        |  +--normalizing--> tree of the normal form
                        +--compatibility--> what keeps one from reading the other's data

A reference is a schema that is read before, so that its names are known. In the canonical text its outermost type is
named, not spelled out; the form "resolved" spells everything out.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from rookery.schemas.avro.json_text import read_json
from rookery.schemas.avro.model import Named, Node, Record
from rookery.schemas.avro.normal_form import normalize
from rookery.schemas.avro.parser import Parser
from rookery.schemas.avro.printer import print_schema
from rookery.schemas.interface import Reference


class AvroSchema:
    schema_type: Literal["AVRO"] = "AVRO"

    def __init__(self, root: Node, known: frozenset[str], references: tuple[Reference, ...]) -> None:
        """`known` has the full names of the types that are referred to."""
        self.root = root
        self.references = references
        self._known = known

    @property
    def name(self) -> str | None:
        return self.root.full_name if isinstance(self.root, Record) else None

    @cached_property
    def canonical(self) -> str:
        return print_schema(self.root, self._known)

    @cached_property
    def raw(self) -> Any:
        """The decoded JSON without references: what fastavro parses."""
        return read_json(self.formatted("resolved"))

    def normalized(self) -> "AvroSchema":
        references = sorted(dict.fromkeys(self.references), key=lambda each: (each.subject, each.version))
        return AvroSchema(normalize(self.root), self._known, tuple(references))

    def formatted(self, form: str) -> str:
        return print_schema(self.root) if form.lower() == "resolved" else self.canonical


def parse(text: str, resolved: Mapping[str, str] = {}, references: tuple[Reference, ...] = ()) -> AvroSchema:
    """A schema that is new has to be valid in all parts."""
    return _parse(text, resolved, references, strict=True)


def parse_registered(text: str, resolved: Mapping[str, str] = {}, references: tuple[Reference, ...] = ()) -> AvroSchema:
    """Names and defaults are taken as they are."""
    return _parse(text, resolved, references, strict=False)


def _parse(text: str, resolved: Mapping[str, str], references: tuple[Reference, ...], *, strict: bool) -> AvroSchema:
    parser = Parser(strict=strict)
    roots = [parser.parse(each) for each in resolved.values()]
    known = frozenset(root.full_name for root in roots if isinstance(root, Named))
    schema = AvroSchema(parser.parse(text), known, references)
    if resolved:
        # With what it refers to it may be too deep to be read again.
        read_json(schema.canonical)
        read_json(schema.formatted("resolved"))
    return schema
