"""The changes of a mapping whose entries are set and removed one by one, as are most parts of an image."""

from collections.abc import Mapping
from typing import Generic, TypeVar

from rookery.base.errors import CorruptionError

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class EntryChanges(Generic[_Key, _Value]):
    """Collects changes of `before`, which is copied only if there are some. `what` names an entry in errors."""

    def __init__(self, before: Mapping[_Key, _Value], what: str) -> None:
        self._before = before
        self._what = what
        # None for an entry that was removed.
        self._changed: dict[_Key, _Value | None] = {}

    def set(self, key: _Key, value: _Value) -> None:
        self._changed[key] = value

    def remove(self, key: _Key) -> None:
        if (self._changed[key] if key in self._changed else self._before.get(key)) is None:
            raise CorruptionError(f"the metadata log removes an unknown {self._what}: {key}")
        self._changed[key] = None

    def build(self) -> Mapping[_Key, _Value]:
        if not self._changed:
            return self._before
        return {key: value for key, value in {**self._before, **self._changed}.items() if value is not None}

    def differences(self, after: Mapping[_Key, _Value]) -> frozenset[_Key]:
        return frozenset(key for key in self._changed if self._before.get(key) != after.get(key))
