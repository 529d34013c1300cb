"""Basic authentication, the outermost layer of the app. It says whose request it is: `principal_of`.

The users are those of the brokers (`registry.broker_users`), or of a file in Jetty's format: lines
`user: password,role,...`. Passwords in it are plain text.
"""

import base64
import binascii
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Final, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.base.errors import ConfigError
from rookery.base.values import value_class
from rookery.registry.broker_users import BrokerUsers
from rookery.registry.errors import RegistryError, http_error
from rookery.registry.rest.responses import error_response
from rookery.registry.roles import USER_TYPE

_UNSUPPORTED_PREFIXES = ("MD5:", "OBF:", "CRYPT:")
ANY_ROLE = "*"
_PRINCIPAL: Final = "rookery.principal"


@value_class
class Credentials:
    password: str = field(repr=False)
    roles: frozenset[str] = frozenset()


def read_credentials(path: Path) -> dict[str, Credentials]:
    """Read the file. Raises ConfigError if a line is invalid, OSError if the file cannot be read."""
    lines = enumerate(path.read_text().splitlines(), start=1)
    stripped = ((number, line.strip()) for number, line in lines)
    return dict(_parse_line(path, number, line) for number, line in stripped if line and line[0] not in "#!")


def _parse_line(path: Path, number: int, line: str) -> tuple[str, Credentials]:
    user, colon, rest = line.partition(":")
    password, *roles = (part.strip() for part in rest.split(","))
    if not (colon and user.strip() and password):
        raise ConfigError(f"authentication.credentials.file: {path}, line {number}: expected user: password,role,...")
    if password.startswith(_UNSUPPORTED_PREFIXES):
        raise ConfigError(f"authentication.credentials.file: {path}, line {number}: only plain passwords are supported")
    return user.strip(), Credentials(password, frozenset(roles))


class Users(Protocol):
    """The users whose passwords are accepted."""

    async def check(self, user: str, password: str) -> RegistryError | None:
        """Return why a request of this user is rejected, or None."""
        ...


class FileUsers:
    """The users of a file that have one of `roles` ("*": any user)."""

    def __init__(self, credentials: Mapping[str, Credentials], roles: Iterable[str]) -> None:
        self._credentials = credentials
        self._roles = frozenset(roles)

    async def check(self, user: str, password: str) -> RegistryError | None:
        known = self._credentials.get(user)
        # The comparison also runs for an unknown user, so that its time does not reveal which users exist.
        is_equal = hmac.compare_digest((known.password if known else "").encode(), password.encode())
        if known is None or not is_equal:
            return unauthorized()
        if ANY_ROLE not in self._roles and not self._roles & known.roles:
            return http_error(403, "Forbidden")
        return None


class ClusterUsers:
    """The users that can log in at the brokers."""

    def __init__(self, users: BrokerUsers) -> None:
        self._users = users

    async def check(self, user: str, password: str) -> RegistryError | None:
        try:
            return None if await self._users.accepts(user, password) else unauthorized()
        except RegistryError as error:
            return error


class BasicAuthentication:
    """Accepts the requests of `users`, and adds the principal to their scopes."""

    def __init__(self, app: ASGIApp, *, realm: str, users: Users) -> None:
        self._app = app
        self._challenge = {"WWW-Authenticate": f'Basic realm="{realm}"'}
        self._users = users

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        user, password = _decode(header)
        error = await self._users.check(user, password)
        if error is None:
            await self._app({**scope, _PRINCIPAL: USER_TYPE + user}, receive, send)
            return
        headers = self._challenge if error.status == 401 else None
        await error_response(error, headers=headers)(scope, receive, send)


def principal_of(scope: Scope) -> str | None:
    """Return the user of a request as `User:name`; None without authentication."""
    principal: str | None = scope.get(_PRINCIPAL)
    return principal


def unauthorized() -> RegistryError:
    return http_error(401, "Unauthorized")


def _decode(header: bytes) -> tuple[str, str]:
    """Return user and password; both are empty if the header is not valid basic authentication."""
    scheme, _, encoded = header.strip().partition(b" ")
    if scheme.lower() != b"basic":
        return "", ""
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    user, _, password = text.partition(":")
    return user, password
