"""The behaviour of all endpoints: methods, media types, parameters, bodies, and their errors."""

import asyncio

import pytest
from starlette.types import Message, Scope

from rookery.registry.rest.app import ENDPOINTS
from rookery.registry.rest.endpoints import Endpoint
from tests.registry.rest.memory import V1_JSON, Rest

SCHEMA = '"string"'
WITH_BODY = [endpoint for endpoint in ENDPOINTS if endpoint.body is not None]


def _address(endpoint: Endpoint) -> str:
    return endpoint.path.format(subject="orders", version="1", id="1")


def _name(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


# Paths and methods


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/nothing", "/subjects/a/b", "/subjects/a/versions/1/2", "/subjects//versions"])
def test_unknown_paths(rest: Rest, method: str, path: str) -> None:
    assert rest.fail(method, path) == (404, 404, "HTTP 404 Not Found")


@pytest.mark.parametrize(
    "path", ["/schemas/ids/a", "/schemas/ids/2147483648", "/subjects?offset=a", "/subjects?limit=1.5"]
)
def test_invalid_numbers(rest: Rest, path: str) -> None:
    assert rest.fail("GET", path) == (404, 404, "HTTP 404 Not Found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/subjects", "GET, HEAD, OPTIONS"),
        ("POST", "/schemas/ids/1", "GET, HEAD, OPTIONS"),
        ("GET", "/subjects/orders", "DELETE, OPTIONS, POST"),
        ("PATCH", "/config", "DELETE, GET, HEAD, OPTIONS, PUT"),
        ("GET", "/compatibility/subjects/orders/versions", "OPTIONS, POST"),
    ],
)
def test_unsupported_methods(rest: Rest, method: str, path: str, allowed: str) -> None:
    assert rest.fail(method, path) == (405, 405, "HTTP 405 Method Not Allowed")
    assert rest.call(method, path).headers["allow"] == allowed
    answer = rest.call("OPTIONS", path)
    assert (answer.status_code, answer.content, answer.headers["allow"]) == (200, b"", allowed)


def test_head_is_get_without_a_body(rest: Rest) -> None:
    rest.register("orders", SCHEMA)
    for path in ("/subjects", "/subjects/nothing/versions"):
        head, get = rest.call("HEAD", path), rest.call("GET", path)
        assert head.content == b""
        assert (head.status_code, head.headers) == (get.status_code, get.headers)


@pytest.mark.parametrize("path", ["/subjects/%ff/versions", "/contexts/%ff/subjects", "/subjects?subjectPrefix=%ff"])
def test_paths_are_unicode(rest: Rest, path: str) -> None:
    assert rest.fail("GET", path) == (400, 400, "HTTP 400 Bad Request")


@pytest.mark.parametrize("path", ["/schemas/ids/1", "/subjects/orders/versions/1"])
def test_tags_are_rejected(rest: Rest, path: str) -> None:
    rest.register("orders", SCHEMA)
    assert rest.get(path)["schema"] == SCHEMA
    assert rest.fail("GET", f"{path}?findTags=PII") == (422, 42201, "Schema tags are not supported")


def test_a_trailing_slash_is_ignored(rest: Rest) -> None:
    assert rest.get("/subjects/") == []


# Media types


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=_name)
def test_responses_have_the_requested_media_type(rest: Rest, endpoint: Endpoint) -> None:
    for media_type in (V1_JSON, "application/vnd.schemaregistry+json", "application/json"):
        answer = rest.call(endpoint.method, _address(endpoint), {}, headers={"Accept": media_type})
        assert answer.headers["content-type"] == media_type
    assert rest.call(endpoint.method, _address(endpoint), {}).headers["content-type"] == V1_JSON


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=_name)
def test_unsupported_media_types(rest: Rest, endpoint: Endpoint) -> None:
    path = _address(endpoint)
    error = rest.fail(endpoint.method, path, headers={"Accept": "text/html"})
    assert error == (406, 406, "HTTP 406 Not Acceptable")
    error = rest.fail(endpoint.method, path, headers={"Accept": "html"})
    assert error == (400, 400, "HTTP 400 Bad Request")
    error = rest.fail(endpoint.method, path, headers={"Content-Type": "text/plain"})
    assert error == (415, 415, "HTTP 415 Unsupported Media Type")


# Bodies


@pytest.mark.parametrize("endpoint", WITH_BODY, ids=_name)
@pytest.mark.parametrize("body", ["", "  ", "null"])
def test_a_body_is_required(rest: Rest, endpoint: Endpoint, body: str) -> None:
    error = rest.fail(endpoint.method, _address(endpoint), content=body)
    assert error == (422, 422, f"{endpoint.name}.request must not be null (was null)")


@pytest.mark.parametrize("endpoint", WITH_BODY, ids=_name)
@pytest.mark.parametrize("body", ["{", "{]", "nothing", "'a'", "[]", "1", '"a"', '{"a":' + "[" * 10_000])
def test_a_body_is_an_object(rest: Rest, endpoint: Endpoint, body: str | bytes) -> None:
    assert rest.fail(endpoint.method, _address(endpoint), content=body)[:2] == (400, 400)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"mode": []}', "The request body has a value of the wrong type at $.mode"),
        (b"[]", "The request body has a value of the wrong type at $"),
        (b'{"mode" "a"}', "The request body is not JSON at byte 8"),
        (b'{"mode": ', "The request body is not JSON at its end"),
        (b'{"mode": "' + rb"\udc00" + b'"}', "The request body is not JSON at byte 16"),
        (b'{"mode": "\xff"}', "The request body is not UTF-8 at byte 10"),
        (b'{"other": "\xff"}', "The request body is not UTF-8 at byte 11"),
        (b'{"mode":' + b"[" * 1_000_000, "The request body is nested too deeply"),
    ],
)
def test_the_error_describes_the_problem_of_a_body(rest: Rest, body: bytes, message: str) -> None:
    assert rest.fail("PUT", "/mode", content=body) == (400, 400, message)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"schema": {"type": "string"}}, "$.schema"),
        ({"schema": SCHEMA, "version": 2**31}, "$.version"),
        ({"schema": SCHEMA, "references": [{}, {"version": "last"}]}, "$.references[1].version"),
        ({"schema": SCHEMA, "metadata": {"properties": {"a": []}}}, "$.metadata.properties[...]"),
    ],
)
def test_values_of_the_wrong_type(rest: Rest, body: dict[str, object], path: str) -> None:
    expected = (400, 400, f"The request body has a value of the wrong type at {path}")
    assert rest.fail("POST", "/subjects/orders/versions", body) == expected


def test_numbers_and_booleans_may_be_strings(rest: Rest) -> None:
    rest.put("/mode/orders", {"mode": "IMPORT"})
    assert rest.register("orders", SCHEMA, id="7", version="3") == 7
    assert rest.put("/config", {"normalize": "true"}) == {"normalize": True}


def test_strings_may_be_numbers_and_booleans(rest: Rest) -> None:
    properties = rb'{"a": 5, "b": 1.50, "c": true, "d": "null"}'
    sent = rb'{"schema": "\"string\"", "metadata": {"properties": ' + properties + b"}}"
    rest.client.post("/subjects/orders/versions", content=sent)
    found = rest.get("/subjects/orders/versions/1")["metadata"]["properties"]
    assert found == {"a": "5", "b": "1.50", "c": "true", "d": "null"}
    assert rest.fail("POST", "/subjects/orders/versions", {"schema": 5})[:2] == (422, 42201)
    assert rest.fail("PUT", "/config", {"compatibility": True})[:2] == (422, 42203)
    assert rest.put("/config", {"compatibilityGroup": 5, "normalize": True, "other": None}) == {
        "compatibilityGroup": "5",
        "normalize": True,
    }


def test_unknown_fields_are_ignored(rest: Rest) -> None:
    assert rest.register("orders", SCHEMA, name="x", schemaTagsToAdd=None) == 1
    assert rest.put("/config", {"compatibility": "FULL", "other": 1}) == {"compatibility": "FULL"}


def test_no_content_type_is_json(rest: Rest) -> None:
    answer = rest.client.post("/subjects/orders/versions", content=b'{"schema": "\\"string\\""}')
    assert "content-type" not in answer.request.headers
    assert answer.json() == {"id": 1}


@pytest.mark.parametrize("endpoint", WITH_BODY, ids=_name)
def test_bodies_have_a_limit(endpoint: Endpoint) -> None:
    rest = Rest(size_limit_filter_max_request_body_size="100")
    too_large = b" " * 101
    expected = (413, 413, "Request body is too large: 101>100")
    assert rest.fail(endpoint.method, _address(endpoint), content=too_large) == expected
    assert rest.fail(endpoint.method, _address(endpoint), content=iter([too_large])) == expected
    assert rest.fail(endpoint.method, _address(endpoint), content=b" " * 100)[0] == 422


def test_a_disconnected_client_gets_no_response(rest: Rest) -> None:
    coming: list[Message] = [{"type": "http.disconnect"}, {"type": "http.request", "body": b"{", "more_body": True}]
    sent: list[Message] = []

    async def receive() -> Message:
        return coming.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {"type": "http", "method": "PUT", "raw_path": b"/config", "query_string": b"", "headers": []}

    async def ask() -> None:
        await rest.app(scope, receive, send)

    asyncio.run(ask())
    assert sent == []


def test_internal_errors_are_not_disclosed(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.registry.queries.list_subjects", lambda *_, **__: 1 / 0)
    assert rest.fail("GET", "/subjects") == (500, 500, "Internal Server Error")
