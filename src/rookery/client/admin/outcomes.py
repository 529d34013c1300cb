"""`Outcome`: the result for one of several resources, which the operations of the `Admin` return.

The error of one resource does not affect the others, so it is a value here; `check` raises it.
"""

from typing import Self

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.values import value_class


def check(code: int, what: str) -> None:
    if code != ErrorCode.NONE:
        raise ApiError(ErrorCode(code), what)


@value_class
class Outcome:
    """The result for the resource `name`: a topic, a group, a partition."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None

    def check(self) -> Self:
        """Return this outcome, or raise its error as ApiError."""
        check(self.error, self.message or self.name)
        return self

    @classmethod
    def of(cls, name: str, code: int, message: str | None = None) -> "Outcome":
        """Build an outcome from the fields of a response's row; old versions of most APIs have no message."""
        return Outcome(name, ErrorCode(code), message)

    @classmethod
    def failed(cls, name: str, error: ApiError) -> "Outcome":
        return Outcome(name, error.code, error.message)
