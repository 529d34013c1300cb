"""Handles a request: method, media types, parameters, body, then the handler or the leader.

If a request has several errors, the order of these checks decides which one the response reports. It is the order of
Confluent's registry.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rookery.registry.errors import RegistryError, http_error
from rookery.registry.rest import bodies
from rookery.registry.rest.access import Guard
from rookery.registry.rest.auth import principal_of
from rookery.registry.rest.endpoints import Call, Endpoint, Registry
from rookery.registry.rest.forwarding import Forwarder
from rookery.registry.rest.media_types import JSON, V1_JSON, MalformedHeaderError, accepts_request, negotiate
from rookery.registry.rest.parameters import Value
from rookery.registry.rest.paths import parse_query
from rookery.registry.rest.responses import entity_response, error_response, raw_response, without_body
from rookery.registry.settings import RegistrySettings

_log = structlog.get_logger(__name__)
# Smaller bodies are decoded on the event loop. That takes one or two milliseconds, if every value must be converted.
_SMALL_BODY_BYTES: Final = 16 * 1024


class Resource:
    """The endpoints of one path, as an ASGI app."""

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        registry: Registry,
        settings: RegistrySettings,
        forwarder: Forwarder,
        guard: Guard,
    ) -> None:
        self._endpoints: Mapping[str, Endpoint] = {endpoint.method: endpoint for endpoint in endpoints}
        self._registry = registry
        self._settings = settings
        self._forwarder = forwarder
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except ClientDisconnect:
            return
        if request.method == "HEAD":
            response = without_body(response)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        endpoint = self._endpoints.get("GET" if request.method == "HEAD" else request.method)
        if endpoint is None:
            return self._unsupported_method(request)
        media_type = JSON
        try:
            media_type = _negotiate(request)
            return await self._call(endpoint, request, media_type)
        except RegistryError as error:
            return error_response(error, V1_JSON if error.status == 415 else media_type)
        except ClientDisconnect:
            raise
        except Exception:
            _log.exception("request failed", method=request.method, path=request.scope["path"])
            return error_response(http_error(500, "Internal Server Error"), media_type)

    def _unsupported_method(self, request: Request) -> Response:
        methods = {*self._endpoints, "OPTIONS"} | ({"HEAD"} if "GET" in self._endpoints else set())
        headers = {"Allow": ", ".join(sorted(methods))}
        return (
            Response(headers=headers)
            if request.method == "OPTIONS"
            else error_response(http_error(405), headers=headers)
        )

    async def _call(self, endpoint: Endpoint, request: Request, media_type: str) -> Response:
        values = _decode_values(endpoint, request)
        body = b"" if endpoint.body is None else await bodies.read(request, self._settings.request_body_bytes_max)
        decoded = await self._decode_body(endpoint, body)
        call = Call(self._registry, self._settings, values, decoded, principal_of(request.scope))
        if endpoint.write is None:
            entity = await self._run_handler(endpoint, call)
            return raw_response(entity, media_type) if endpoint.raw else entity_response(entity, media_type)
        if self._registry.is_leader:
            result = await self._registry.write(lambda state: self._guard.run(endpoint, state, call))
            return entity_response(result, media_type)
        if endpoint.write.checks_locally and (done := await self._find_done(endpoint, call)) is not None:
            return entity_response(done, media_type)
        return await self._forwarder.forward(request, body, endpoint.write)

    async def _decode_body(self, endpoint: Endpoint, body: bytes) -> Any:
        if endpoint.body is None:
            return None
        if len(body) <= _SMALL_BODY_BYTES:
            return bodies.decode(endpoint, body)
        return await self._registry.run_query(lambda _: bodies.decode(endpoint, body))

    async def _run_handler(self, endpoint: Endpoint, call: Call) -> Any:
        if call.parses_schemas:
            return await self._registry.run_query(lambda state: self._guard.run(endpoint, state, call))
        return self._guard.run(endpoint, self._registry.state, call)

    async def _find_done(self, endpoint: Endpoint, call: Call) -> Any:
        """Return the result if there is nothing to write; None if only the leader, whose state is newer, can tell."""
        try:
            planned = await self._run_handler(endpoint, call)
        except RegistryError:
            return None
        return None if planned.records else planned.result


def _negotiate(request: Request) -> str:
    if not accepts_request(request.headers.get("content-type", "")):
        raise http_error(415)
    try:
        media_type = negotiate(", ".join(request.headers.getlist("accept")))
    except MalformedHeaderError:
        raise http_error(400) from None
    if media_type is None:
        raise http_error(406)
    return media_type


def _decode_values(endpoint: Endpoint, request: Request) -> dict[str, Value]:
    texts = parse_query(request.scope["query_string"].decode("latin-1"))
    values = {parameter.name: parameter.decode(texts.get(parameter.name, [])) for parameter in endpoint.query}
    for parameter in endpoint.path_parameters:
        values[parameter.name] = parameter.decode([unquote(request.path_params[parameter.name])])
    return values
