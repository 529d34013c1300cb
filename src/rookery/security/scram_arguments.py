"""Parser of `--add-scram`: the first users of a cluster, in the form of kafka-storage. Pure.

    SCRAM-SHA-256=[name=alice,password=secret]
    SCRAM-SHA-512=[name=alice,iterations=8192,salt="c2FsdA==",saltedpassword="..."]

Salt and salted password are in base64. A value may stand in double quotes; it cannot have a comma. Errors never quote
the text, any part of which may belong to a password.
"""

import base64
import binascii
from collections.abc import Callable

from rookery.base.errors import ConfigError
from rookery.security.scram_credentials import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    credential_of,
    salted_password,
)

_OPTION = "--add-scram"
_FIELDS = ("name", "salt", "iterations", "password", "saltedpassword")
_EXAMPLE = "SCRAM-SHA-256=[name=alice,password=secret]"


def parse_scram_user(text: str, new_salt: Callable[[], bytes]) -> tuple[str, ScramMechanism, ScramCredential]:
    """Return the user, the mechanism and the credential; hashing a password takes milliseconds.

    Raises ConfigError if the text is invalid. `new_salt` makes the salt if the text has none.
    """
    name, equals, body = text.strip().partition("=")
    if not (equals and body.startswith("[") and body.endswith("]")):
        raise ConfigError(f"{_OPTION}: expected MECHANISM=[name=...,password=...], for example {_EXAMPLE}")
    mechanism = ScramMechanism.of_name(name)
    if mechanism is None:
        known = ", ".join(each.mechanism_name for each in ScramMechanism)
        raise ConfigError(f"{_OPTION}: the mechanism must be one of {known}")
    fields = _fields(body[1:-1])
    user = fields.get("name")
    if not user:
        raise ConfigError(f"{_OPTION}: add name=..., the name of the user")
    iterations = _iterations(fields.get("iterations"))
    salt = _decoded("salt", fields["salt"]) if "salt" in fields else None
    if "password" in fields:
        salt = new_salt() if salt is None else salt
        salted = salted_password(mechanism, fields["password"], salt, iterations)
    elif "saltedpassword" not in fields:
        raise ConfigError(f"{_OPTION}: add password=..., or saltedpassword=... and salt=...")
    elif salt is None:
        raise ConfigError(f"{_OPTION}: add salt=..., with which saltedpassword was made")
    else:
        salted = _decoded("saltedpassword", fields["saltedpassword"])
    if not salted:
        raise ConfigError(f"{_OPTION}: saltedpassword must not be empty")
    return user, mechanism, credential_of(mechanism, salted, salt, iterations)


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for number, part in enumerate(text.split(","), 1):
        key, equals, value = part.partition("=")
        if not equals:
            raise ConfigError(f"{_OPTION}: part {number} between the brackets has no =; a value cannot have a comma")
        if key not in _FIELDS:
            raise ConfigError(
                f"{_OPTION}: part {number} between the brackets must begin with one of {', '.join(_FIELDS)}"
            )
        if len(value) >= 2 and value.startswith('"') and value.endswith('"'):
            value = value[1:-1]
        fields[key] = value
    return fields


def _iterations(text: str | None) -> int:
    if text is None:
        return MIN_ITERATIONS
    if not (text.isascii() and text.isdigit() and MIN_ITERATIONS <= int(text[:9]) <= MAX_ITERATIONS):
        raise ConfigError(f"{_OPTION}: iterations must be a number from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    return int(text)


def _decoded(key: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{_OPTION}: {key} must be base64") from None
