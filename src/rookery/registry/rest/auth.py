"""Basic authentication, in front of everything else.

The credentials are a file in the form of Jetty's: a line `user: password,role,...` each. Passwords are plain text.
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
from rookery.registry.errors import RegistryError
from rookery.registry.rest.answers import failure_answer
from rookery.registry.rest.failures import http_failure

_UNSUPPORTED_PREFIXES = ("MD5:", "OBF:", "CRYPT:")
ANY_ROLE = "*"


@value_class
class Credentials:
    password: str = field(repr=False)
    roles: frozenset[str] = frozenset()


def read_credentials(path: Path) -> dict[str, Credentials]:
    """Raises ConfigError if a line is not as it should be, OSError if there is no such file."""
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
    """Lets requests through whose user has a password and one of `roles` ("*": any user)."""

    def __init__(
        self, app: ASGIApp, *, realm: str, roles: Iterable[str], credentials: Mapping[str, Credentials]
    ) -> None:
        self._app = app
        self._challenge = {"WWW-Authenticate": f'Basic realm="{realm}"'}
        self._roles = frozenset(roles)
        self._credentials = credentials

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        failure = self._refuse(scope) if scope["type"] == "http" else None
        if failure is None:
            await self._app(scope, receive, send)
            return
        headers = self._challenge if failure.status == 401 else None
        await failure_answer(failure, headers=headers)(scope, receive, send)

    def _refuse(self, scope: Scope) -> RegistryError | None:
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        user, password = _decode(header)
        known = self._credentials.get(user)
        # The comparison takes as long for a user who does not exist.
        fits = hmac.compare_digest((known.password if known else "").encode(), password.encode())
        if known is None or not fits:
            return http_failure(401, "Unauthorized")
        if ANY_ROLE not in self._roles and not self._roles & known.roles:
            return http_failure(403, "Forbidden")
        return None


def _decode(header: bytes) -> tuple[str, str]:
    """User and password; both empty if the header is not one of basic authentication."""
    scheme, _, encoded = header.strip().partition(b" ")
    if scheme.lower() != b"basic":
        return "", ""
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    user, _, password = text.partition(":")
    return user, password
