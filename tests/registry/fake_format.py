"""A minimal schema format, for tests of the registry that are not about formats.

A schema is a list of fields such as "name, age?, @address": "?" means that the field has a default, "@" that it is the
referenced schema of that name. The normal form has sorted fields. "!" is invalid, and "~" is invalid in new schemas.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rookery.schemas.interface import Incompatibility, InvalidSchemaError, Policy, Reference, SchemaType


@dataclass(frozen=True)
class FakeSchema:
    fields: tuple[str, ...]
    resolved: Mapping[str, str]
    references: tuple[Reference, ...]
    schema_type: SchemaType = "AVRO"
    name: str | None = None
    raw: None = None

    @property
    def canonical(self) -> str:
        return ",".join(self.fields)

    def normalized(self) -> "FakeSchema":
        return replace(self, fields=tuple(sorted(self.fields)))

    def formatted(self, form: str) -> str:
        if form != "resolved":
            return self.canonical
        return ",".join(self.resolved[field[1:]] if field.startswith("@") else field for field in self.fields)


class FakeFormat:
    def __init__(self, schema_type: SchemaType) -> None:
        self.schema_type = schema_type

    def parse(self, text: str, resolved: Mapping[str, str] = {}, references: tuple[Reference, ...] = ()) -> FakeSchema:
        if "~" in text:
            raise InvalidSchemaError(f"'~' at {text.index('~')}")
        return self.parse_registered(text, resolved, references)

    def parse_registered(
        self, text: str, resolved: Mapping[str, str] = {}, references: tuple[Reference, ...] = ()
    ) -> FakeSchema:
        if "!" in text:
            raise InvalidSchemaError(f"'!' at {text.index('!')}")
        fields = tuple(field.strip() for field in text.split(","))
        for field in fields:
            if field.startswith("@") and field[1:] not in resolved:
                raise InvalidSchemaError(f"{field} is not there")
        return FakeSchema(fields, resolved, references, self.schema_type)

    def check(self, reader: FakeSchema, writer: FakeSchema, policy: Policy = "STRICT") -> list[Incompatibility]:
        written = {field.rstrip("?") for field in writer.fields}
        return [
            Incompatibility("MISSING", "{reader} has a field that {writer} lacks", detail=field)
            for field in reader.fields
            if not field.endswith("?") and field not in written
        ]
