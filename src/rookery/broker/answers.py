"""Converts a coordinator's future to a response: immediately if the future is done, else as an awaitable."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from rookery.base.errors import ErrorCode
from rookery.coordinators.runtime import ResponseFuture

# Errors about the coordinator, not about the request.
COORDINATOR_ERRORS: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

# Errors of a request from this broker to another one.
CONNECTION_ERRORS: Final = frozenset(
    {ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNSUPPORTED_VERSION}
)

ResultT = TypeVar("ResultT")
ResponseT = TypeVar("ResponseT")


def respond(
    answer: ResponseFuture[ResultT], convert: Callable[[ResultT | ErrorCode], ResponseT]
) -> ResponseT | Awaitable[ResponseT]:
    return convert(answer.result()) if answer.done() else _respond_later(answer, convert)


async def _respond_later(
    answer: ResponseFuture[ResultT], convert: Callable[[ResultT | ErrorCode], ResponseT]
) -> ResponseT:
    return convert(await answer)


def respond_to_all(
    answers: Sequence[ResponseFuture[ResultT]], convert: Callable[[list[ResultT | ErrorCode]], ResponseT]
) -> ResponseT | Awaitable[ResponseT]:
    """Respond to a request about several groups or transactions, each of which may have another coordinator."""
    if all(answer.done() for answer in answers):
        return convert([answer.result() for answer in answers])
    return _respond_to_all_later(answers, convert)


async def _respond_to_all_later(
    answers: Sequence[ResponseFuture[ResultT]], convert: Callable[[list[ResultT | ErrorCode]], ResponseT]
) -> ResponseT:
    return convert([await answer for answer in answers])


def code_known_to(version: int, code: ErrorCode, *, fenced_since: int) -> ErrorCode:
    """Return `code`, or INVALID_PRODUCER_EPOCH, which has the same effect, if the version has no PRODUCER_FENCED."""
    is_unknown = code is ErrorCode.PRODUCER_FENCED and version < fenced_since
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else code
