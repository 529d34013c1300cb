"""What the formats have in common, for those who do not care which one it is.

A format is a package (`schemas.avro`, `schemas.json_schema`, `schemas.protobuf`) with the functions of `Format`.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

SchemaType: TypeAlias = Literal["AVRO", "JSON", "PROTOBUF"]
# Which changes count as compatible. The two differ for JSON Schema alone.
Policy: TypeAlias = Literal["STRICT", "LENIENT"]


class InvalidSchemaError(ValueError):
    """The text is no schema; the message says what is wrong with it, and where."""


class Reference(NamedTuple):
    """`name` is what the schema's text calls it: a full name in Avro, a URI in JSON Schema, an import in Protobuf."""

    name: str
    subject: str
    version: int


class Incompatibility(NamedTuple):
    """One reason why a reader does not understand a writer.

    `description` says "{reader}" and "{writer}" where one of the two schemas is meant: which of them is the new one
    depends on the direction of the check. `detail` is the name or the value that it is about.
    """

    kind: str
    description: str
    path: str = ""
    detail: str | None = None

    def describe(self, reader: str, writer: str) -> str:
        """In the form that Confluent's registry gives, with "new" and "old" put in."""
        text = self.description.replace("{reader}", reader).replace("{writer}", writer)
        extra = "" if self.detail is None else f", additionalInfo:'{self.detail}'"
        return f"{{errorType:'{self.kind}', description:'{text}'{extra}}}"


class ParsedSchema(Protocol):
    """Immutable. Two schemas of one type are the same if their canonical texts and their references are."""

    @property
    def schema_type(self) -> SchemaType: ...

    @property
    def name(self) -> str | None:
        """The full name of the record or message; None where the schema has none."""
        ...

    @property
    def references(self) -> tuple[Reference, ...]: ...

    @property
    def canonical(self) -> str:
        """What a registry stores and returns."""
        ...

    @property
    def raw(self) -> Any:
        """What the format's library works with."""
        ...

    def normalized(self) -> "ParsedSchema":
        """Without differences that have no meaning."""
        ...

    def formatted(self, form: str) -> str:
        """The text in another form: "resolved" (Avro), "serialized" (Protobuf); the canonical one for "" and for forms
        of other formats."""
        ...


class Format(Protocol):
    def parse(
        self, text: str, resolved: Mapping[str, str] = {}, references: tuple[Reference, ...] = ()
    ) -> ParsedSchema:
        """`resolved` has the text of each schema that is referred to, by the reference's name, and of those that they
        refer to; dependencies come first. Raises InvalidSchemaError."""
        ...

    def parse_registered(
        self, text: str, resolved: Mapping[str, str] = {}, references: tuple[Reference, ...] = ()
    ) -> ParsedSchema:
        """The same for a schema that is registered already, by a registry that may have been less strict. (In some
        formats what is not strictly valid cannot be compared either, and this is the same function.)"""
        ...

    def check(self, reader: Any, writer: Any, policy: Policy = "STRICT") -> list[Incompatibility]:
        """What keeps `reader` from reading data that `writer` wrote. Both are of this format. `policy` makes a
        difference to JSON Schema only."""
        ...
