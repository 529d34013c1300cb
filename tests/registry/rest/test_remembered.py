import asyncio
from typing import Any

import pytest
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from rookery.registry.rest import remembered
from rookery.registry.rest.remembered import RememberedAnswers
from tests.registry.rest.memory import Rest


class Counting:
    """Answers with how often it was asked."""

    def __init__(self) -> None:
        self.revision = 0
        self.count = 0
        self.status = 200
        self.front = RememberedAnswers(self, lambda: self.revision)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.count += 1
        await Response(str(self.count), self.status)(scope, receive, send)

    def ask(self, path: bytes = b"/a", *, method: str = "GET", query: bytes = b"", **headers: str) -> str:
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


def test_the_same_is_answered_again(app: Counting) -> None:
    assert [app.ask(), app.ask(user_agent="x"), app.ask()] == ["1", "1", "1"]


def test_not_after_a_change(app: Counting) -> None:
    assert app.ask() == "1"
    app.revision += 1
    assert [app.ask(), app.ask()] == ["2", "2"]


def test_what_the_answer_depends_on(app: Counting) -> None:
    requests: list[dict[str, Any]] = [
        {},
        {"path": b"/b"},
        {"query": b"x"},
        {"accept": "application/json"},
        {"content_type": "application/json"},
    ]
    first = [app.ask(**request) for request in requests]
    assert first == ["1", "2", "3", "4", "5"]
    assert [app.ask(**request) for request in requests] == first


@pytest.mark.parametrize("method", ["POST", "HEAD"])
def test_only_get(app: Counting, method: str) -> None:
    assert [app.ask(method=method), app.ask(method=method)] == ["1", "2"]


def test_failures_are_found_out_again(app: Counting) -> None:
    app.status = 404
    assert [app.ask(), app.ask()] == ["1", "2"]


def test_memory_is_bounded(app: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "_COUNT_MAX", 2)
    assert [app.ask(b"/a"), app.ask(b"/b"), app.ask(b"/c"), app.ask(b"/c"), app.ask(b"/a")] == ["1", "2", "3", "3", "4"]
    monkeypatch.setattr(remembered, "_SIZE_BYTES_MAX", 0)
    assert [app.ask(b"/d"), app.ask(b"/d")] == ["5", "6"]


def test_a_deleted_schema_is_gone() -> None:
    rest = Rest()
    rest.register("orders", '"string"')
    assert rest.get("/schemas/ids/1") == rest.get("/schemas/ids/1") == {"schema": '"string"'}
    rest.delete("/subjects/orders")
    assert rest.get("/schemas/ids/1") == {"schema": '"string"'}
    rest.delete("/subjects/orders?permanent=true")
    assert rest.fail("GET", "/schemas/ids/1") == (404, 40403, "Schema 1 not found")
