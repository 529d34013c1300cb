"""The outcome of one item of a request to the controller."""

from typing import Final, NamedTuple

from rookery.base.errors import ErrorCode


class Outcome(NamedTuple):
    """Success, or the error code and message of the response, for one item of a request."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


OK: Final = Outcome()
