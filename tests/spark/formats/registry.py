"""A registry in memory, which serves thousands of schemas per second and fails on demand; options of columns."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from rookery.serdes import RegistryClient, Schema
from rookery.serdes.client import VersionLike
from rookery.serdes.entities import RegisteredSchema
from rookery.serdes.errors import RegistryRequestError, RegistryUnavailableError
from rookery.spark.formats import registries
from rookery.spark.options import FormatOptions

SETTINGS: Mapping[str, str] = {"schema.registry.url": "http://registry.invalid"}


class MemoryRegistry(RegistryClient):
    """A registry in memory. Ids start at 1; `requested` has the ids that were requested."""

    def __init__(self) -> None:
        super().__init__(SETTINGS["schema.registry.url"])
        self.schemas: list[Schema] = []
        self.subjects: dict[str, list[int]] = {}
        self.requested: list[int] = []
        self.is_down = False

    def add(self, text: str, schema_type: str = "AVRO") -> int:
        self.schemas.append(Schema(text, schema_type))  # type: ignore[arg-type]
        return len(self.schemas)

    def get_by_id(self, schema_id: int) -> Schema:
        self._check()
        self.requested.append(schema_id)
        if not 0 < schema_id <= len(self.schemas):
            raise RegistryRequestError(404, 40403, f"Schema {schema_id} not found")
        return self.schemas[schema_id - 1]

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        self._check()
        if schema not in self.schemas:
            self.schemas.append(schema)
        schema_id = self.schemas.index(schema) + 1
        self.subjects.setdefault(subject, []).append(schema_id)
        return schema_id

    def get_version(self, subject: str, version: VersionLike = "latest", *, deleted: bool = False) -> RegisteredSchema:
        self._check()
        ids = self.subjects.get(subject, [])
        number = len(ids) if version == "latest" else version
        if not 0 < number <= len(ids):
            raise RegistryRequestError(404, 40401, f"Subject '{subject}' not found.")
        return RegisteredSchema(subject, number, ids[number - 1], self.schemas[ids[number - 1] - 1])

    def resolve(self, schema: Schema) -> dict[str, str]:
        self._check()
        return {}

    def _check(self) -> None:
        if self.is_down:
            raise RegistryUnavailableError({SETTINGS["schema.registry.url"]: "connection refused"})


@contextmanager
def memory_registry() -> Iterator[MemoryRegistry]:
    """Make a registry in memory the registry of all decoders and encoders."""
    registry = MemoryRegistry()
    with mock.patch.object(registries, "_client", return_value=registry):
        yield registry


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def format_options(format: str, **given: Any) -> FormatOptions:
    """Return the options of a column, with defaults for all that are not given."""
    values: dict[str, Any] = {
        "format": format,
        "schema": None,
        "subject": None,
        "version": "latest",
        "message": None,
        "detailed": False,
        "registry": SETTINGS,
        "on_error": "fail",
    }
    return FormatOptions(**values | given)
