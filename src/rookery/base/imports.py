"""Keeps libraries from importing modules that a broker does not need.

Some libraries import others just in case: to print nicer tracebacks, to find their own version, to register test
strategies. If that import is expensive, the module is hidden while the library is imported.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast


@contextmanager
def module_replaced(name: str, replacement: ModuleType | None) -> Iterator[None]:
    """Make `import name` return the replacement, or fail if that is None; a module that is already loaded stays."""
    modules = cast(dict[str, ModuleType | None], sys.modules)
    if name in modules:
        yield
        return
    modules[name] = replacement
    try:
        yield
    finally:
        del modules[name]
