import asyncio
from typing import Any

import pytest
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from rookery.registry.rest import response_cache
from rookery.registry.rest.response_cache import ResponseCache
from tests.registry.rest.memory import Rest


class Counting:
    """Responds with the number of requests that it received."""

    def __init__(self) -> None:
        self.revision = 0
        self.count = 0
        self.status = 200
        self.front = ResponseCache(self, lambda: self.revision)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.count += 1
        await Response(str(self.count), self.status)(scope, receive, send)

    def get(self, path: bytes = b"/a", *, method: str = "GET", query: bytes = b"", **headers: str) -> str:
        sent: list[Message] = []
        scope: dict[str, Any] = {"type": "http", "method": method, "raw_path": path, "query_string": query}
        scope["headers"] = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Message:
            raise AssertionError

        asyncio.run(self.front(scope, receive, send))
        start, body = sent
        assert start["status"] == self.status
        text: str = body["body"].decode()
        return text


@pytest.fixture
def app() -> Counting:
    return Counting()


def test_equal_requests_get_the_cached_response(app: Counting) -> None:
    assert [app.get(), app.get(user_agent="x"), app.get()] == ["1", "1", "1"]


def test_a_change_clears_the_cache(app: Counting) -> None:
    assert app.get() == "1"
    app.revision += 1
    assert [app.get(), app.get()] == ["2", "2"]


def test_the_key_contains_what_the_response_depends_on(app: Counting) -> None:
    requests: list[dict[str, Any]] = [
        {},
        {"path": b"/b"},
        {"query": b"x"},
        {"accept": "application/json"},
        {"content_type": "application/json"},
    ]
    first = [app.get(**request) for request in requests]
    assert first == ["1", "2", "3", "4", "5"]
    assert [app.get(**request) for request in requests] == first


@pytest.mark.parametrize("method", ["POST", "HEAD"])
def test_only_get_is_cached(app: Counting, method: str) -> None:
    assert [app.get(method=method), app.get(method=method)] == ["1", "2"]


def test_errors_are_not_cached(app: Counting) -> None:
    app.status = 404
    assert [app.get(), app.get()] == ["1", "2"]


def test_memory_is_bounded(app: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_cache, "_COUNT_MAX", 2)
    assert [app.get(b"/a"), app.get(b"/b"), app.get(b"/c"), app.get(b"/c"), app.get(b"/a")] == ["1", "2", "3", "3", "4"]
    monkeypatch.setattr(response_cache, "_SIZE_BYTES_MAX", 0)
    assert [app.get(b"/d"), app.get(b"/d")] == ["5", "6"]


def test_a_deleted_schema_is_not_found() -> None:
    rest = Rest()
    rest.register("orders", '"string"')
    assert rest.get("/schemas/ids/1") == rest.get("/schemas/ids/1") == {"schema": '"string"'}
    rest.delete("/subjects/orders")
    assert rest.get("/schemas/ids/1") == {"schema": '"string"'}
    rest.delete("/subjects/orders?permanent=true")
    assert rest.fail("GET", "/schemas/ids/1") == (404, 40403, "Schema 1 not found")
