"""Answers that are given again and again, kept as they went out.

An answer to GET follows from the state and from what the request says: it is kept until the state changes, under all
parts of the request that it depends on. Looking up a schema by its id, which every consumer does, costs little more
than reading the request.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SIZE_BYTES_MAX: Final = 32 * 1024 * 1024
_COUNT_MAX: Final = 20_000
_VARYING_HEADERS: Final = frozenset({b"accept", b"content-type"})


class _Answer(NamedTuple):
    start: Message
    body: Message


class RememberedAnswers:
    """`revision` changes whenever the state does."""

    def __init__(self, app: ASGIApp, revision: Callable[[], int]) -> None:
        self._app = app
        self._revision = revision
        self._answers: dict[object, _Answer] = {}
        self._answers_revision = revision()
        self._size_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        if self._answers_revision != self._revision():
            self._forget()
        varying = [header for header in scope["headers"] if header[0] in _VARYING_HEADERS]
        key = (scope["raw_path"], scope["query_string"], *map(tuple, varying))
        answer = self._answers.get(key)
        if answer is None:
            await self._ask(scope, receive, send, key)
        else:
            await send(answer.start)
            await send(answer.body)

    async def _ask(self, scope: Scope, receive: Receive, send: Send, key: object) -> None:
        revision = self._revision()
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)
            await send(message)

        await self._app(scope, receive, keep)
        if len(messages) == 2 and messages[0]["status"] == 200 and revision == self._revision():
            self._remember(key, _Answer(*messages))

    def _remember(self, key: object, answer: _Answer) -> None:
        size_bytes = len(answer.body["body"])
        if len(self._answers) == _COUNT_MAX or self._size_bytes + size_bytes > _SIZE_BYTES_MAX:
            self._forget()
        if size_bytes <= _SIZE_BYTES_MAX:
            self._answers[key] = answer
            self._size_bytes += size_bytes

    def _forget(self) -> None:
        self._answers.clear()
        self._size_bytes = 0
        self._answers_revision = self._revision()
