"""Basic authentication, the outermost layer of the app.

The credentials are in a file in Jetty's format: lines `user: password,role,...`. Passwords are plain text.
"""

import base64
import binascii
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.base.errors import ConfigError
from rookery.base.values import value_class
from rookery.registry.errors import RegistryError, http_error
from rookery.registry.rest.responses import error_response

_UNSUPPORTED_PREFIXES = ("MD5:", "OBF:", "CRYPT:")
ANY_ROLE = "*"


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


class BasicAuthentication:
    """Accepts requests of users with a valid password and one of `roles` ("*": any user)."""

    def __init__(
        self, app: ASGIApp, *, realm: str, roles: Iterable[str], credentials: Mapping[str, Credentials]
    ) -> None:
        self._app = app
        self._challenge = {"WWW-Authenticate": f'Basic realm="{realm}"'}
        self._roles = frozenset(roles)
        self._credentials = credentials

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._check(scope) if scope["type"] == "http" else None
        if error is None:
            await self._app(scope, receive, send)
            return
        headers = self._challenge if error.status == 401 else None
        await error_response(error, headers=headers)(scope, receive, send)

    def _check(self, scope: Scope) -> RegistryError | None:
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        user, password = _decode(header)
        known = self._credentials.get(user)
        # The comparison also runs for an unknown user, so that its time does not reveal which users exist.
        is_equal = hmac.compare_digest((known.password if known else "").encode(), password.encode())
        if known is None or not is_equal:
            return http_error(401, "Unauthorized")
        if ANY_ROLE not in self._roles and not self._roles & known.roles:
            return http_error(403, "Forbidden")
        return None


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
