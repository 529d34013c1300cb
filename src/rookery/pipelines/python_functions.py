"""The Python functions of a pipeline: `enrich.py:enrich`, a function of DataFrames that returns one.

A file is run as a module of its own that nobody can import, so that Spark sends what its functions use along with them.
"""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


class FunctionError(Exception):
    """A function cannot be used; the text says why."""


def load_function(file: Path, name: str) -> Callable[..., Any]:
    module = ModuleType(f"pipeline:{file.name}")
    module.__file__ = str(file)
    try:
        exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
    except Exception as error:
        raise FunctionError(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    function = module.__dict__.get(name)
    if not callable(function):
        raise FunctionError(f"{file} has no function {name}")
    return function  # type: ignore[no-any-return]  # whatever the user wrote
