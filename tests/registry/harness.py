"""A registry in memory, which replays planned writes immediately and keeps the log."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from rookery.registry import commands, queries
from rookery.registry.commands import PlannedWrite
from rookery.registry.entities import (
    ConfigUpdateRequest,
    Metadata,
    ModeUpdateRequest,
    RegisterSchemaRequest,
    SchemaReference,
)
from rookery.registry.errors import RegistryError
from rookery.registry.records import Record
from rookery.registry.state import State

T = TypeVar("T")


def schema(text: str | None, *references: tuple[str, str, int], **fields: Any) -> RegisterSchemaRequest:
    """Return a request. A reference is a name, a subject and a version."""
    made = tuple(SchemaReference(name=name, subject=subject, version=version) for name, subject, version in references)
    return RegisterSchemaRequest(schema=text, references=made or None, **fields)


def properties(**names: str | None) -> Metadata:
    return Metadata(properties=names)


def compacted(log: list[Record]) -> list[Record]:
    """Return what compaction leaves: the last value of each key, in order."""
    last = {key: index for index, (key, _) in enumerate(log)}
    return [record for index, record in enumerate(log) if last[record[0]] == index]


def replayed(log: list[Record], **defaults: Any) -> State:
    state = State(**defaults)
    for record in log:
        state.replay(*record)
    return state


class Harness:
    def __init__(self, **defaults: Any) -> None:
        self.state = State(**defaults)
        self.log: list[Record] = []

    def apply(self, planned: PlannedWrite[T]) -> T:
        for record in planned.records:
            self.state.replay(*record)
        self.log += planned.records
        return planned.result

    def register(self, subject: str, text: str | None, *references: tuple[str, str, int], **fields: Any) -> int:
        return self.apply(commands.register(self.state, subject, schema(text, *references, **fields))).id

    def delete(self, subject: str, version: str | None = None, *, permanent: bool = False) -> list[int]:
        if version is None:
            return self.apply(commands.delete_subject(self.state, subject, permanent=permanent))
        return [self.apply(commands.delete_version(self.state, subject, version, permanent=permanent))]

    def configure(self, subject: str | None, **fields: Any) -> None:
        self.apply(commands.put_config(self.state, subject, ConfigUpdateRequest(**fields)))

    def set_mode(self, subject: str | None, mode: str | None, *, force: bool = False) -> None:
        self.apply(commands.put_mode(self.state, subject, ModeUpdateRequest(mode=mode), force=force))

    def versions(self, subject: str) -> list[int]:
        """Return the versions; deleted ones are negative."""
        return queries.list_versions(self.state, subject, deleted=True, deleted_as_negative=True)


@contextmanager
def raises_code(code: int, text: str = "") -> Iterator[None]:
    """Expect a RegistryError with this code and a message that contains `text`."""
    with pytest.raises(RegistryError) as caught:
        yield
    assert caught.value.code == code, caught.value.message
    assert text in caught.value.message
    assert str(code).startswith(str(int(caught.value.status)))
