"""A registry in memory: decisions are replayed at once, and the log is kept."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from rookery.registry import decisions, queries
from rookery.registry.decisions import Decision
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
    """References are name, subject, version."""
    made = tuple(SchemaReference(name=name, subject=subject, version=version) for name, subject, version in references)
    return RegisterSchemaRequest(schema=text, references=made or None, **fields)


def properties(**names: str | None) -> Metadata:
    return Metadata(properties=names)


def compacted(log: list[Record]) -> list[Record]:
    """What compaction leaves: the last value of each key, in order."""
    last = {key: index for index, (key, _) in enumerate(log)}
    return [record for index, record in enumerate(log) if last[record[0]] == index]


def replayed(log: list[Record], **defaults: Any) -> State:
    state = State(**defaults)
    for record in log:
        state.replay(*record)
    return state


class Stage:
    def __init__(self, **defaults: Any) -> None:
        self.state = State(**defaults)
        self.log: list[Record] = []

    def carry_out(self, decision: Decision[T]) -> T:
        for record in decision.records:
            self.state.replay(*record)
        self.log += decision.records
        return decision.result

    def register(self, subject: str, text: str | None, *references: tuple[str, str, int], **fields: Any) -> int:
        return self.carry_out(decisions.register(self.state, subject, schema(text, *references, **fields))).id

    def delete(self, subject: str, version: str | None = None, *, permanent: bool = False) -> list[int]:
        if version is None:
            return self.carry_out(decisions.delete_subject(self.state, subject, permanent=permanent))
        return [self.carry_out(decisions.delete_version(self.state, subject, version, permanent=permanent))]

    def configure(self, subject: str | None, **fields: Any) -> None:
        self.carry_out(decisions.put_config(self.state, subject, ConfigUpdateRequest(**fields)))

    def set_mode(self, subject: str | None, mode: str | None, *, force: bool = False) -> None:
        self.carry_out(decisions.put_mode(self.state, subject, ModeUpdateRequest(mode=mode), force=force))

    def versions(self, subject: str) -> list[int]:
        """Deleted ones are negative."""
        return queries.list_versions(self.state, subject, deleted=True, deleted_as_negative=True)


@contextmanager
def refused(code: int, text: str = "") -> Iterator[None]:
    """With this code, and with a message that has this text."""
    with pytest.raises(RegistryError) as caught:
        yield
    assert caught.value.code == code, caught.value.message
    assert text in caught.value.message
    assert str(code).startswith(str(int(caught.value.status)))
