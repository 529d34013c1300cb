"""From a request to its answer: method, media types, parameters, body, then the handler or the leader.

The order of these checks decides which of several mistakes is told; it is that of Confluent's registry.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rookery.registry.errors import RegistryError
from rookery.registry.rest import bodies
from rookery.registry.rest.answers import entity_answer, failure_answer, raw_answer, without_body
from rookery.registry.rest.endpoints import Call, Endpoint, Registry
from rookery.registry.rest.failures import http_failure
from rookery.registry.rest.forwarding import Forwarder
from rookery.registry.rest.media_types import JSON, V1_JSON, MalformedHeaderError, accepts_request, negotiate
from rookery.registry.rest.parameters import Value
from rookery.registry.rest.paths import parse_query
from rookery.registry.settings import RegistrySettings

_log = structlog.get_logger(__name__)
# Decoded on the event loop: a millisecond or two, if every value has to be made to fit.
_SMALL_BODY_BYTES: Final = 16 * 1024


class Resource:
    """Everything at one path, as an ASGI app."""

    def __init__(
        self, endpoints: Iterable[Endpoint], registry: Registry, settings: RegistrySettings, forwarder: Forwarder
    ) -> None:
        self._endpoints: Mapping[str, Endpoint] = {endpoint.method: endpoint for endpoint in endpoints}
        self._registry = registry
        self._settings = settings
        self._forwarder = forwarder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            answer = await self._answer(request)
        except ClientDisconnect:
            return
        if request.method == "HEAD":
            answer = without_body(answer)
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        endpoint = self._endpoints.get("GET" if request.method == "HEAD" else request.method)
        if endpoint is None:
            return self._other_method(request)
        media_type = JSON
        try:
            media_type = _negotiate(request)
            return await self._call(endpoint, request, media_type)
        except RegistryError as failure:
            return failure_answer(failure, V1_JSON if failure.status == 415 else media_type)
        except ClientDisconnect:
            raise
        except Exception:
            _log.exception("request failed", method=request.method, path=request.scope["path"])
            return failure_answer(http_failure(500, "Internal Server Error"), media_type)

    def _other_method(self, request: Request) -> Response:
        methods = {*self._endpoints, "OPTIONS"} | ({"HEAD"} if "GET" in self._endpoints else set())
        headers = {"Allow": ", ".join(sorted(methods))}
        return (
            Response(headers=headers)
            if request.method == "OPTIONS"
            else failure_answer(http_failure(405), headers=headers)
        )

    async def _call(self, endpoint: Endpoint, request: Request, media_type: str) -> Response:
        values = _decode_values(endpoint, request)
        sent = b"" if endpoint.body is None else await bodies.read(request, self._settings.request_body_bytes_max)
        call = Call(self._registry, self._settings, values, await self._decode_body(endpoint, sent))
        if endpoint.writing is None:
            answer = await self._ask(endpoint, call)
            return raw_answer(answer, media_type) if endpoint.raw else entity_answer(answer, media_type)
        if self._registry.is_leader:
            written = await self._registry.write(lambda state: endpoint.handler(state, call))
            return entity_answer(written, media_type)
        if endpoint.writing.is_often_done and (done := await self._already_done(endpoint, call)) is not None:
            return entity_answer(done, media_type)
        return await self._forwarder.forward(request, sent, endpoint.writing)

    async def _decode_body(self, endpoint: Endpoint, sent: bytes) -> Any:
        if endpoint.body is None:
            return None
        if len(sent) <= _SMALL_BODY_BYTES:
            return bodies.decode(endpoint, sent)
        return await self._registry.ask(lambda _: bodies.decode(endpoint, sent))

    async def _ask(self, endpoint: Endpoint, call: Call) -> Any:
        if call.parses_schemas:
            return await self._registry.ask(lambda state: endpoint.handler(state, call))
        return endpoint.handler(self._registry.state, call)

    async def _already_done(self, endpoint: Endpoint, call: Call) -> Any:
        """The answer if there is nothing to write; None if the leader has to decide, whose state is newer."""
        try:
            decision = await self._ask(endpoint, call)
        except RegistryError:
            return None
        return None if decision.records else decision.result


def _negotiate(request: Request) -> str:
    if not accepts_request(request.headers.get("content-type", "")):
        raise http_failure(415)
    try:
        media_type = negotiate(", ".join(request.headers.getlist("accept")))
    except MalformedHeaderError:
        raise http_failure(400) from None
    if media_type is None:
        raise http_failure(406)
    return media_type


def _decode_values(endpoint: Endpoint, request: Request) -> dict[str, Value]:
    texts = parse_query(request.scope["query_string"].decode("latin-1"))
    values = {parameter.name: parameter.decode(texts.get(parameter.name, [])) for parameter in endpoint.query}
    for parameter in endpoint.path_parameters:
        values[parameter.name] = parameter.decode([unquote(request.path_params[parameter.name])])
    return values
