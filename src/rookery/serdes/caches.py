"""Values that are made once per key, by whichever thread asks first. A value that cannot be made is asked for again."""

import threading
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class OnceCache(Generic[_Key, _Value]):
    """Threads wait for each other only if they ask for the same key. A copy in another process starts empty."""

    def __init__(self, make: Callable[[_Key], _Value]) -> None:
        self._make = make
        self._made: dict[_Key, _Value] = {}
        self._lock = threading.Lock()
        # Each lives for as long as somebody makes the value, or waits for it.
        self._makers: WeakValueDictionary[_Key, Any] = WeakValueDictionary()

    def __getitem__(self, key: _Key) -> _Value:
        try:
            return self._made[key]
        except KeyError:
            return self._make_once(key)

    def __reduce__(self) -> tuple[object, ...]:
        return OnceCache, (self._make,)

    def _make_once(self, key: _Key) -> _Value:
        with self._lock:
            maker = self._makers.get(key)
            if maker is None:
                maker = self._makers[key] = threading.Lock()
        with maker:
            if key not in self._made:
                self._made[key] = self._make(key)
            return self._made[key]
