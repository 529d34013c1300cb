"""Values that are made once per key, by whichever thread asks first. A value that cannot be made is asked for again."""

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class OnceCache(Generic[_Key, _Value]):
    """One lock: who waits for a registry would wait for it with another key too."""

    def __init__(self, make: Callable[[_Key], _Value]) -> None:
        self._make = make
        self._made: dict[_Key, _Value] = {}
        self._lock = threading.Lock()

    def __getitem__(self, key: _Key) -> _Value:
        try:
            return self._made[key]
        except KeyError:
            return self._make_once(key)

    def _make_once(self, key: _Key) -> _Value:
        with self._lock:
            if key not in self._made:
                self._made[key] = self._make(key)
            return self._made[key]
