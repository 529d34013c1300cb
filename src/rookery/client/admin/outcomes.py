"""How one of several things went: what every operation of the `Admin` on several things answers with.

An error of one thing does not keep the others from being done, so it is a value here; `check` raises it for those who
want that.
"""

from typing import Self

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.values import value_class


def check(code: int, what: str) -> None:
    if code != ErrorCode.NONE:
        raise ApiError(ErrorCode(code), what)


@value_class
class Outcome:
    """`name` says of what: a topic, a group, a partition."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None

    def check(self) -> Self:
        """Itself, or ApiError."""
        check(self.error, self.message or self.name)
        return self

    @classmethod
    def of(cls, name: str, code: int, message: str | None = None) -> "Outcome":
        """From the fields of a response's row; old versions of most APIs have no message."""
        return Outcome(name, ErrorCode(code), message)

    @classmethod
    def failed(cls, name: str, error: ApiError) -> "Outcome":
        return Outcome(name, error.code, error.message)
