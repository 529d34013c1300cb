"""A cache of responses to GET, as they were sent.

A response to GET depends only on the state, the roles and the request, with its user. It is cached until one of the
first two changes, with all parts of the request that it depends on as its key. So the look-up of a schema by its id,
which every consumer does, costs little more than reading the request.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rookery.registry.rest.auth import principal_of

_SIZE_BYTES_MAX: Final = 32 * 1024 * 1024
_COUNT_MAX: Final = 20_000
_VARYING_HEADERS: Final = frozenset({b"accept", b"content-type"})


class _Response(NamedTuple):
    start: Message
    body: Message


class ResponseCache:
    """`revision` returns a value that changes whenever the state or the roles do.

    `per_user`: users with different roles get different responses.
    """

    def __init__(self, app: ASGIApp, revision: Callable[[], object], *, per_user: bool = False) -> None:
        self._app = app
        self._revision = revision
        self._per_user = per_user
        self._responses: dict[object, _Response] = {}
        self._responses_revision = revision()
        self._size_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        if self._responses_revision != self._revision():
            self._clear()
        varying = [header for header in scope["headers"] if header[0] in _VARYING_HEADERS]
        user = principal_of(scope) if self._per_user else None
        key = (user, scope["raw_path"], scope["query_string"], *map(tuple, varying))
        response = self._responses.get(key)
        if response is None:
            await self._call_app(scope, receive, send, key)
        else:
            await send(response.start)
            await send(response.body)

    async def _call_app(self, scope: Scope, receive: Receive, send: Send, key: object) -> None:
        revision = self._revision()
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)
            await send(message)

        await self._app(scope, receive, keep)
        if len(messages) == 2 and messages[0]["status"] == 200 and revision == self._revision():
            self._store(key, _Response(*messages))

    def _store(self, key: object, response: _Response) -> None:
        size_bytes = len(response.body["body"])
        if len(self._responses) == _COUNT_MAX or self._size_bytes + size_bytes > _SIZE_BYTES_MAX:
            self._clear()
        if size_bytes <= _SIZE_BYTES_MAX:
            self._responses[key] = response
            self._size_bytes += size_bytes

    def _clear(self) -> None:
        self._responses.clear()
        self._size_bytes = 0
        self._responses_revision = self._revision()
