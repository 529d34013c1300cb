"""Finds the error codes in a response of any API, by its schema. For metrics: every response is looked at.

A response without errors costs a look at each of its error codes. Parts that are frozen are skipped: they are shared by
many responses, and have none.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final, NamedTuple, TypeAlias

from rookery.protocol.codec import FieldShape, response_shape
from rookery.protocol.message import FrozenMessage, Message, Struct

ErrorFinder: TypeAlias = Callable[[Struct], Sequence[int]]

_NO_ERRORS: Final[Sequence[int]] = ()
_ERROR_KIND: Final = "error_code"


class _Plan(NamedTuple):
    """The fields of a struct that are error codes, and those whose structs have some."""

    codes: tuple[str, ...]
    nested: "tuple[tuple[FieldShape, _Plan], ...]"


@cache
def error_finder(api_key: int, version: int) -> ErrorFinder | None:
    """Return a function that returns the error codes of a response, without NONE; None if responses have no codes."""
    plan = _plan(response_shape(api_key, version))
    if not plan.codes and not plan.nested:
        return None
    if not plan.nested and len(plan.codes) == 1:
        (name,) = plan.codes

        def find_one(response: Struct) -> Sequence[int]:
            code = vars(response).get(name)
            return (code,) if code else _NO_ERRORS

        return find_one

    def find(response: Struct) -> Sequence[int]:
        found: list[int] = []
        assert isinstance(response, Message)
        _collect(response, plan, found)
        return found

    return find


def _plan(shape: Sequence[FieldShape]) -> _Plan:
    codes = tuple(field.name for field in shape if field.kind == _ERROR_KIND and not field.is_array)
    nested = ((field, _plan(field.fields)) for field in shape if field.fields)
    return _Plan(codes, tuple((field, plan) for field, plan in nested if plan.codes or plan.nested))


def _collect(message: Message, plan: _Plan, found: list[int]) -> None:
    if type(message) is FrozenMessage:
        return
    fields = message.__dict__
    for name in plan.codes:
        if code := fields.get(name):
            found.append(code)
    for field, nested in plan.nested:
        value = fields.get(field.name)
        if not value:
            continue
        for item in value if field.is_array else (value,):
            _collect(item, nested, found)
