"""Decodes Avro in the registry's wire format.

Every row is read with the reader's schema, independent of the schema it was written with; `decoder_program` has the
rules. A writer's schema is fetched from the registry when the first row with its id arrives; no restart is needed.
"""

import json
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np

from rookery.schemas.avro import parse_registered
from rookery.schemas.avro.model import PRIMITIVES, Node
from rookery.schemas.avro.printer import print_schema
from rookery.serdes import RegistryClient, Schema
from rookery.serdes.errors import InvalidSchemaError, SerdesError
from rookery.spark.formats.avro import decoder_kernel as kernel
from rookery.spark.formats.avro.arrays import ProgramRunner
from rookery.spark.formats.avro.decoder_program import DecoderProgram
from rookery.spark.formats.avro.shapes import Shapes
from rookery.spark.formats.columns import Array, ColumnDecoder, DecodedColumn, RowError
from rookery.spark.formats.errors import FormatError
from rookery.spark.formats.framing import NO_ID, Frames, read_frames
from rookery.spark.formats.registries import WriterSchemas, registry_of, row_error

_NO_ENTRY = -1


def parse_root(registry: RegistryClient | None, schema: Schema) -> Node:
    """Parse a schema; those that it refers to are fetched from `registry`. Raises InvalidSchemaError."""
    resolved = registry.resolve(schema) if registry is not None and schema.references else {}
    try:
        return parse_registered(quoted(schema.text), resolved).root
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidSchemaError(f"not a schema of Avro: {error}") from error


def quoted(text: str) -> str:
    """Return the schema as JSON: the bare name of a primitive type is allowed, and gets quotation marks."""
    bare = text.strip()
    return f'"{bare}"' if bare in PRIMITIVES else text


class AvroDecoder(ColumnDecoder):
    """Decodes Avro. `reader` is the text of a schema without references; `settings` are those of the registry."""

    def __init__(self, reader: str, reader_id: int | None, settings: Mapping[str, str]) -> None:
        self._reader = reader
        self._reader_id = reader_id
        self._settings = dict(settings)
        try:
            self._root = parse_root(None, Schema(reader))
        except InvalidSchemaError as error:
            raise FormatError(str(error)) from error
        self.spark_type = Shapes(self._root).spark_type

    @classmethod
    def of(cls, schema: Schema, schema_id: int | None, settings: Mapping[str, str]) -> "AvroDecoder":
        """Create a decoder. `schema` may refer to others, which are fetched from the registry now."""
        registry = registry_of(settings) if schema.references else None
        try:
            return cls(print_schema(parse_root(registry, schema)), schema_id, settings)
        except InvalidSchemaError as error:
            raise FormatError(str(error)) from error

    @classmethod
    def of_pin(cls, pin: str, settings: Mapping[str, str]) -> "AvroDecoder":
        pinned = json.loads(pin)
        return cls(pinned["schema"], pinned["id"], settings)

    def pin(self) -> str:
        return json.dumps({"schema": self._reader, "id": self._reader_id})

    def __reduce__(self) -> tuple[object, ...]:
        return AvroDecoder, (self._reader, self._reader_id, self._settings)

    def decode(self, column: Array, topic: str) -> DecodedColumn:
        frames = read_frames(column)
        entries, errors = self._programs.entries(frames)
        values, failures = self._programs.runner.decode(frames.address, (frames.starts, frames.ends), entries)
        failed = (int(row) for row in np.flatnonzero(failures))
        errors += [self._programs.explain(row, int(frames.ids[row]), int(failures[row])) for row in failed]
        return DecodedColumn(values, sorted(errors), frames.schema_ids())

    @cached_property
    def _programs(self) -> "_WriterPrograms":
        return _WriterPrograms(self._root, partial(registry_of, self._settings))


class _WriterPrograms:
    """The programs of all writers that this process has seen, and the runner of the programs."""

    def __init__(self, reader: Node, registry: Callable[[], RegistryClient]) -> None:
        self._reader = reader
        self._program = DecoderProgram(Shapes(reader))
        self.runner = ProgramRunner(self._program)
        self._registry = registry
        self._writers: WriterSchemas[int] = WriterSchemas(registry, "AVRO", self._add)

    def entries(self, frames: Frames) -> tuple[Any, list[RowError]]:
        """Return where the program of each row's writer starts, and the errors of rows without a program."""
        ids, inverse, counts = np.unique(frames.ids, return_inverse=True, return_counts=True)
        entries, errors = np.full(len(ids), _NO_ENTRY, np.int64), list(frames.errors)
        rows, ends = np.argsort(inverse, kind="stable"), np.cumsum(counts)
        # The most frequent ids first: if there are too many to request, the real ids are probably among the frequent.
        for index in np.argsort(-counts, kind="stable"):
            found = _NO_ENTRY if ids[index] == NO_ID else self._writers.find(int(ids[index]))
            if isinstance(found, SerdesError):
                errors += [row_error(int(row), found) for row in rows[ends[index] - counts[index] : ends[index]]]
            else:
                entries[index] = found
        return entries[inverse], errors

    def explain(self, row: int, schema_id: int, failure: int) -> RowError:
        if failure >= kernel.FAILURE_MESSAGES:
            text = self._program.messages[failure - kernel.FAILURE_MESSAGES]
        else:
            text = kernel.FAILURES[failure]
        return RowError(row, "InvalidDataError", f"data of the schema {schema_id} cannot be read: {text}")

    def _add(self, schema: Schema) -> int:
        entry = self._program.add(parse_root(self._registry(), schema), self._reader)
        self.runner.reload()
        return entry
