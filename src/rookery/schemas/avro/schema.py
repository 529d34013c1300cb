"""An Avro schema for the registry.

    text --parser--> tree (model) --printer--> canonical text
                        |  |
                        |  +--normal_form--> tree of the normal form
                        +--compatibility--> incompatibilities with another schema

A referenced schema is parsed first, so that its names are known. The canonical text only names its outermost type; the
form "resolved" contains all definitions.
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
        """`known` holds the full names of the outermost types of the references."""
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
        """The decoded JSON with all definitions, for fastavro."""
        return read_json(self.formatted("resolved"))

    def normalized(self) -> "AvroSchema":
        references = sorted(dict.fromkeys(self.references), key=lambda each: (each.subject, each.version))
        return AvroSchema(normalize(self.root), self._known, tuple(references))

    def formatted(self, form: str) -> str:
        return print_schema(self.root) if form.lower() == "resolved" else self.canonical


def parse(text: str, resolved: Mapping[str, str] = {}, references: tuple[Reference, ...] = ()) -> AvroSchema:
    """Parse a new schema, which must satisfy the specification in full."""
    return _parse(text, resolved, references, strict=True)


def parse_registered(text: str, resolved: Mapping[str, str] = {}, references: tuple[Reference, ...] = ()) -> AvroSchema:
    """Parse a registered schema: names need not be ASCII, and defaults are not checked."""
    return _parse(text, resolved, references, strict=False)


def _parse(text: str, resolved: Mapping[str, str], references: tuple[Reference, ...], *, strict: bool) -> AvroSchema:
    parser = Parser(strict=strict)
    roots = [parser.parse(each) for each in resolved.values()]
    known = frozenset(root.full_name for root in roots if isinstance(root, Named))
    schema = AvroSchema(parser.parse(text), known, references)
    if resolved:
        # Together with its references it may be too deep to be parsed again: then it must not be registered.
        read_json(schema.canonical)
        read_json(schema.formatted("resolved"))
    return schema
