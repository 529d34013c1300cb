"""Value classes: like `@dataclass(frozen=True, slots=True)`, created in a third of the time.

A broker has about a hundred of them, and generating the code of each took a quarter of its start. Here the comparison
methods are shared, and assignments are forbidden by the type checker only, which also makes creating values cheaper.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform, overload

_Class = TypeVar("_Class", bound=type)


@overload
def value_class(cls: _Class, /) -> _Class: ...
@overload
def value_class(*, kw_only: bool) -> Callable[[_Class], _Class]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value_class(cls: Any = None, /, *, kw_only: bool = False) -> Any:
    """Make a class whose instances are equal if all their fields are; works with `dataclasses.fields` and `replace`.

    A field that must not appear in logs is a `field(repr=False)`.
    """
    return _make(cls, kw_only) if cls is not None else lambda cls: _make(cls, kw_only)


def _make(cls: Any, kw_only: bool) -> Any:
    # `dataclass` would otherwise set the signature as the docstring, and computing that takes as long as everything
    # else.
    cls.__doc__ = cls.__doc__ or cls.__name__
    made: Any = dataclass(slots=True, kw_only=kw_only, eq=False, repr=False)(cls)
    names = tuple(each.name for each in fields(made))
    shown = tuple(each.name for each in fields(made) if each.repr)
    contents: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()

    def equal(self: Any, other: object) -> Any:
        return contents(self) == contents(other) if other.__class__ is self.__class__ else NotImplemented

    def representation(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    made.__eq__ = equal
    made.__hash__ = lambda self: hash(contents(self))
    made.__repr__ = representation
    return made
