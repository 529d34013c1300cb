"""The registry's ASGI app: routes built from the table of endpoints, and the layers in front of them.

    authentication > cached responses > contexts in paths > routes > dispatch > guard

`server` runs it with uvicorn; tests call it without a socket.
"""

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.registry.broker_users import BrokerUsers, broker_login
from rookery.registry.errors import RegistryError, http_error
from rookery.registry.rest import compatibility, config, contexts, mode, openapi, schemas, server, subjects, versions
from rookery.registry.rest.access import Guard
from rookery.registry.rest.auth import BasicAuthentication, ClusterUsers, FileUsers, Users, read_credentials
from rookery.registry.rest.dispatch import Resource
from rookery.registry.rest.endpoints import Endpoint, Registry
from rookery.registry.rest.forwarding import Forwarder
from rookery.registry.rest.paths import resolve
from rookery.registry.rest.response_cache import ResponseCache
from rookery.registry.rest.responses import error_response
from rookery.registry.roles import RoleSource
from rookery.registry.settings import Authentication, Authorization, RegistrySettings

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *server.ENDPOINTS,
    *subjects.ENDPOINTS,
    *versions.ENDPOINTS,
    *schemas.ENDPOINTS,
    *compatibility.ENDPOINTS,
    *config.ENDPOINTS,
    *mode.ENDPOINTS,
    *contexts.ENDPOINTS,
)


def create_app(registry: Registry, settings: RegistrySettings, *, broker_users: BrokerUsers | None = None) -> ASGIApp:
    """Create the app. Raises ConfigError, or OSError for the credentials, if a file cannot be used.

    `broker_users` check passwords, if no file has them; by default those of the brokers in the settings.
    """
    forwarder = Forwarder(registry, settings)
    authentication = settings.authentication
    if authentication.is_basic and authentication.credentials_file is None and broker_users is None:
        broker_users = BrokerUsers(broker_login(settings.client_config))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await forwarder.close()
        if broker_users is not None:
            broker_users.close()

    roles = _roles(settings.authorization)
    routes = _routes(registry, settings, forwarder, Guard(roles))
    app: ASGIApp = Starlette(
        routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _handle_routing_error}
    )

    def revision() -> tuple[int, int]:
        if roles is not None:
            roles.current()
        return registry.revision, 0 if roles is None else roles.revision

    app = ResponseCache(_with_resolved_paths(app), revision, per_user=roles is not None)
    if not authentication.is_basic:
        return app
    return BasicAuthentication(app, realm=authentication.realm, users=_users(authentication, broker_users))


def _users(authentication: Authentication, broker_users: BrokerUsers | None) -> Users:
    if authentication.credentials_file is not None:
        return FileUsers(read_credentials(authentication.credentials_file), authentication.roles)
    assert broker_users is not None, "created before"
    return ClusterUsers(broker_users)


def _roles(authorization: Authorization | None) -> RoleSource | None:
    if authorization is None:
        return None
    return RoleSource(authorization.rules, authorization.rules_file, authorization.super_users)


def _routes(registry: Registry, settings: RegistrySettings, forwarder: Forwarder, guard: Guard) -> list[Route]:
    by_path: dict[str, list[Endpoint]] = defaultdict(list)
    for endpoint in ENDPOINTS:
        by_path[endpoint.path].append(endpoint)
    resources = {path: Resource(endpoints, registry, settings, forwarder, guard) for path, endpoints in by_path.items()}

    async def describe(_: Request) -> Response:
        document = openapi.document(ENDPOINTS, needs_authentication=settings.authentication.is_basic)
        return Response(document, media_type=openapi.MEDIA_TYPE)

    described = Route(openapi.PATH, describe)
    return [*(Route(path, resource, methods=None) for path, resource in resources.items()), described]


def _with_resolved_paths(app: ASGIApp) -> ASGIApp:
    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                path, query = resolve(scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1"))
            except RegistryError as error:
                await error_response(error)(scope, receive, send)
                return
            scope = {**scope, "path": path, "root_path": "", "query_string": query.encode("latin-1")}
        await app(scope, receive, send)

    return call


async def _handle_routing_error(_: Request, error: Exception) -> Response:
    """Return the response for an error of the router, such as an unknown path."""
    assert isinstance(error, HTTPException)
    return error_response(http_error(error.status_code), headers=error.headers)
