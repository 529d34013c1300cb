"""Keeps libraries from importing what a broker has no use for.

Some libraries import others just in case: to print nicer tracebacks, to know their own version, to register test
strategies. Where that costs more than what we want from them, the other one is hidden while they are imported.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast


@contextmanager
def module_replaced(name: str, replacement: ModuleType | None) -> Iterator[None]:
    """Inside, `import name` gives the replacement, or fails if that is None; a module that is loaded already stays."""
    modules = cast(dict[str, ModuleType | None], sys.modules)
    if name in modules:
        yield
        return
    modules[name] = replacement
    try:
        yield
    finally:
        del modules[name]
