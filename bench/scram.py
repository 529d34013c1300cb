"""The client's side of a login with SCRAM-SHA-512 that costs the client little.

A library would hash the password thousands of times for each login, in the processor time that the broker needs. This
client keeps the keys from its first login: they stay the same as long as the salt does.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Generator

MECHANISM = "SCRAM-SHA-512"
_HASH = "sha512"
# "n,,": no channel binding, no other authorization id.
_BINDING = base64.b64encode(b"n,,")


class ScramError(Exception):
    """The server's messages are not those of SCRAM."""


class Scram:
    """Logins of one user."""

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password
        self._keys: dict[tuple[bytes, int], tuple[bytes, bytes]] = {}

    def login(self) -> Generator[bytes, bytes, None]:
        """Yield the client's messages. The server's are sent into the generator, which ends after the last one."""
        nonce = secrets.token_hex(12).encode()
        first = b"n=" + self._user.encode() + b",r=" + nonce
        challenge = yield b"n,," + first
        fields = dict(field.split(b"=", 1) for field in challenge.split(b","))
        if not fields[b"r"].startswith(nonce):
            raise ScramError(f"another nonce: {challenge!r}")
        client_key, server_key = self._find_keys(base64.b64decode(fields[b"s"]), int(fields[b"i"]))
        final = b"c=" + _BINDING + b",r=" + fields[b"r"]
        text = b",".join((first, challenge, final))
        signature = hmac.digest(hashlib.sha512(client_key).digest(), text, _HASH)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        outcome = yield final + b",p=" + base64.b64encode(proof)
        if outcome != b"v=" + base64.b64encode(hmac.digest(server_key, text, _HASH)):
            raise ScramError(f"the server does not know the password: {outcome!r}")

    def _find_keys(self, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
        if (salt, iterations) not in self._keys:
            salted = hashlib.pbkdf2_hmac(_HASH, self._password.encode(), salt, iterations)
            self._keys[salt, iterations] = (
                hmac.digest(salted, b"Client Key", _HASH),
                hmac.digest(salted, b"Server Key", _HASH),
            )
        return self._keys[salt, iterations]
