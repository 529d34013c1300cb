"""The typer application that every group of commands is made with.

typer's help shows the type of each option. Next to a flag, which takes no value, that type would make users write
one (`--json <bool>`), so flags show none.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

_PARAMETERS: ContextVar[Mapping[str, Any]] = ContextVar("parameters", default={})  # noqa: B039 - never changed
Function = TypeVar("Function", bound=Callable[..., Any])


class Command(TyperCommand):
    """A command whose flags show no type in the help."""

    def get_params(self, ctx: Any) -> Any:
        return _without_flag_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        _PARAMETERS.set(ctx.params)
        return super().invoke(ctx)


class Group(TyperGroup):
    """A group of commands whose own flags show no type in the help."""

    def get_params(self, ctx: Any) -> Any:
        return _without_flag_types(super().get_params(ctx))


class App(typer.Typer):
    """A typer application with these classes; `options` are those of `typer.Typer`."""

    def __init__(self, **options: Any) -> None:
        defaults: dict[str, Any] = {"cls": Group, "no_args_is_help": True}
        super().__init__(**defaults | options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Function], Function]:
        defaults: dict[str, Any] = {"cls": Command}
        return super().command(name, **defaults | options)


def current_parameters() -> Mapping[str, Any]:
    """Return the parameters of the command that runs, by name."""
    return _PARAMETERS.get()


def _without_flag_types(params: Any) -> Any:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params
