"""A cache that computes each value once per key, in the first thread that requests it. Failures are not cached."""

import threading
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class OnceCache(Generic[_Key, _Value]):
    """Threads wait for each other only if they request the same key. A pickled copy is empty."""

    def __init__(self, make: Callable[[_Key], _Value]) -> None:
        self._make = make
        self._made: dict[_Key, _Value] = {}
        self._lock = threading.Lock()
        # One lock per key that is being computed. It exists only while a thread computes the value or waits for it:
        # keys whose computation always fails would otherwise accumulate.
        self._key_locks: WeakValueDictionary[_Key, Any] = WeakValueDictionary()

    def __getitem__(self, key: _Key) -> _Value:
        try:
            return self._made[key]
        except KeyError:
            return self._make_once(key)

    def __reduce__(self) -> tuple[object, ...]:
        return OnceCache, (self._make,)

    def _make_once(self, key: _Key) -> _Value:
        with self._lock:
            key_lock = self._key_locks.get(key)
            if key_lock is None:
                key_lock = self._key_locks[key] = threading.Lock()
        with key_lock:
            if key not in self._made:
                self._made[key] = self._make(key)
            return self._made[key]
