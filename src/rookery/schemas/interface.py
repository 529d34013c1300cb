"""The interface that all formats implement, for callers that do not depend on a particular format.

A format is a package (`schemas.avro`, `schemas.json_schema`, `schemas.protobuf`) with the functions of `Format`.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

SchemaType: TypeAlias = Literal["AVRO", "JSON", "PROTOBUF"]
# The rule which changes count as compatible. The two policies differ for JSON Schema only.
Policy: TypeAlias = Literal["STRICT", "LENIENT"]


class InvalidSchemaError(ValueError):
    """The text is not a valid schema; the message says what is wrong, and where."""


class Reference(NamedTuple):
    """A reference to a registered schema.

    `name` is its name in the text of the referring schema: a full name in Avro, a URI in JSON Schema, an import in
    Protobuf.
    """

    name: str
    subject: str
    version: int


class Incompatibility(NamedTuple):
    """One reason why a reader's schema cannot read data of a writer's schema.

    `description` contains the placeholders "{reader}" and "{writer}": which of the two schemas is the new one depends
    on the direction of the check. `detail` is the name or the value that does not match.
    """

    kind: str
    description: str
    path: str = ""
    detail: str | None = None

    def describe(self, reader: str, writer: str) -> str:
        """Return the message in the form of Confluent's registry. `reader` and `writer` are "new" and "old"."""
        text = self.description.replace("{reader}", reader).replace("{writer}", writer)
        extra = "" if self.detail is None else f", additionalInfo:'{self.detail}'"
        return f"{{errorType:'{self.kind}', description:'{text}'{extra}}}"


class ParsedSchema(Protocol):
    """A parsed schema, immutable. Two schemas of one type are equal if canonical texts and references are equal."""

    @property
    def schema_type(self) -> SchemaType: ...

    @property
    def name(self) -> str | None:
        """The full name of the record or message; None if the schema has none."""
        ...

    @property
    def references(self) -> tuple[Reference, ...]: ...

    @property
    def canonical(self) -> str:
        """The text that a registry stores and returns."""
        ...

    @property
    def raw(self) -> Any:
        """The schema in the form that the format's library needs."""
        ...

    def normalized(self) -> "ParsedSchema":
        """Return the normal form: schemas that differ only in insignificant details have the same normal form."""
        ...

    def formatted(self, form: str) -> str:
        """Return the text in another form: "resolved" (Avro) or "serialized" (Protobuf).

        Returns the canonical text for "" and for the forms of other formats.
        """
        ...


class Format(Protocol):
    def parse(
        self, text: str, resolved: Mapping[str, str] = {}, references: tuple[Reference, ...] = ()
    ) -> ParsedSchema:
        """Parse a new schema. Raises InvalidSchemaError.

        `resolved` maps the name of each reference, direct or indirect, to the text of its schema; dependencies come
        first.
        """
        ...

    def parse_registered(
        self, text: str, resolved: Mapping[str, str] = {}, references: tuple[Reference, ...] = ()
    ) -> ParsedSchema:
        """Parse a schema that is registered already, possibly by a registry that was less strict.

        In formats in which a schema that is not strictly valid cannot be compared, this is the same as `parse`.
        """
        ...

    def check(self, reader: Any, writer: Any, policy: Policy = "STRICT") -> list[Incompatibility]:
        """Return the reasons why `reader` cannot read data of `writer`; both are schemas of this format.

        `policy` matters for JSON Schema only.
        """
        ...
