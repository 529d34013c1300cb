"""The checks of arguments and state that all methods of the `Admin` share."""

import asyncio
import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from rookery.client import sync
from rookery.client.admin import Admin
from rookery.client.errors import ClientStateError

UNREACHABLE = {"bootstrap.servers": "127.0.0.1:1"}
SEVERAL = (Iterable, Collection, Sequence)
METHODS = {
    name: method for name, method in inspect.getmembers(Admin, inspect.iscoroutinefunction) if not name.startswith("_")
}


def kinds(annotation: Any) -> list[Any]:
    """Return the types that a parameter accepts."""
    parts = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    return [get_origin(part) or part for part in parts]


def parameters(method: Any) -> dict[str, list[Any]]:
    hints = get_type_hints(method)
    return {name: kinds(hints[name]) for name in inspect.signature(method).parameters if name != "self"}


def filler(allowed: list[Any]) -> Any:
    """Return a valid value for a parameter that is not under test."""
    kind = allowed[0]
    return () if kind in SEVERAL else {} if kind is Mapping else kind() if kind in (int, str, bool) else None


TEXT_FOR_SEVERAL = [
    pytest.param(method, name, id=f"{method_name}-{name}")
    for method_name, method in METHODS.items()
    for name, allowed in parameters(method).items()
    if any(kind in SEVERAL for kind in allowed)
]


def test_there_are_parameters_to_test() -> None:
    assert len(TEXT_FOR_SEVERAL) > 20


@pytest.mark.parametrize(("method", "name"), TEXT_FOR_SEVERAL)
def test_a_string_is_not_accepted_as_a_list(method: Any, name: str) -> None:
    """If it were, `delete_topics("abc")` would delete the topics a, b and c."""

    async def run() -> None:
        required = {
            other: filler(allowed)
            for other, allowed in parameters(method).items()
            if inspect.signature(method).parameters[other].default is inspect.Parameter.empty
        }
        await method(Admin(UNREACHABLE), **{**required, name: "abc"})

    with pytest.raises(TypeError, match=rf"{name} .* pass a list, \['abc'\]"):
        asyncio.run(run())


def test_a_closed_admin_raises() -> None:
    async def run() -> None:
        admin = Admin(UNREACHABLE)
        await admin.close()
        await admin.close()
        with pytest.raises(ClientStateError, match="is closed"):
            await admin.list_topics()
        with pytest.raises(ClientStateError, match="is closed"):
            await admin.describe_groups(["g"])

    asyncio.run(run())


def test_a_closed_synchronous_admin_raises() -> None:
    admin = sync.Admin(UNREACHABLE)
    admin.close()
    admin.close()
    with pytest.raises(ClientStateError, match="is closed"):
        admin.list_topics()
