"""From a coordinator's future to a response: at once where it is done, otherwise when it is."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, TypeVar

from rookery.base.errors import ErrorCode
from rookery.protocol.message import Message

ResultT = TypeVar("ResultT")
Answer: TypeAlias = asyncio.Future[ResultT | ErrorCode]


def respond(answer: Answer[ResultT], convert: Callable[[ResultT | ErrorCode], Message]) -> Message | Awaitable[Message]:
    return convert(answer.result()) if answer.done() else _respond_later(answer, convert)


async def _respond_later(answer: Answer[ResultT], convert: Callable[[ResultT | ErrorCode], Message]) -> Message:
    return convert(await answer)


def respond_to_all(
    answers: Sequence[Answer[ResultT]], convert: Callable[[list[ResultT | ErrorCode]], Message]
) -> Message | Awaitable[Message]:
    """For requests that concern several groups, each of which has its coordinator."""
    if all(answer.done() for answer in answers):
        return convert([answer.result() for answer in answers])
    return _respond_to_all_later(answers, convert)


async def _respond_to_all_later(
    answers: Sequence[Answer[ResultT]], convert: Callable[[list[ResultT | ErrorCode]], Message]
) -> Message:
    return convert([await answer for answer in answers])
