"""The credentials of SCRAM users (RFC 5802): what a broker stores instead of a password. Pure.

A credential proves a password without revealing it, but `server_key` lets a server impersonate this one: neither key
may appear in a log.
"""

import hashlib
import hmac
from dataclasses import field
from enum import IntEnum
from typing import Final

from rookery.base.values import value_class

_NAMES: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_DIGESTS: Final = {1: "sha256", 2: "sha512"}


class ScramMechanism(IntEnum):
    """The values are those of Kafka's protocol and of the metadata log."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        """The name in `sasl.mechanism`, for example SCRAM-SHA-256."""
        return _NAMES[self.value]

    @property
    def digest(self) -> str:
        """The name of the hash function as `hashlib` has it."""
        return _DIGESTS[self.value]

    @classmethod
    def of_name(cls, name: str) -> "ScramMechanism | None":
        """Return the mechanism with a name as SCRAM-SHA-256; None if there is none."""
        return next((each for each in cls if each.mechanism_name == name), None)


# The bounds that Kafka sets for new credentials. RFC 7677 requires the lower one.
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384


@value_class
class ScramCredential:
    """The stored form of a password: `stored_key` verifies the client's proof, `server_key` makes the server's."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Hash a password. It takes milliseconds per thousand iterations: never call it on an event loop."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


def credential_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential for a password that `salted_password` has hashed."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    return ScramCredential(
        salt=salt,
        stored_key=hashlib.new(mechanism.digest, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", mechanism.digest),
        iterations=iterations,
    )


def derive_credential(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential for a password. As slow as `salted_password`."""
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)
