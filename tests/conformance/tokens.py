"""An identity provider on the loopback interface: its token endpoint (RFC 6749, 4.4) issues signed JWTs to one client.

Brokers verify them with the keys that it publishes in a file (RFC 7517).
"""

import base64
import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from urllib.parse import parse_qs

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

AUDIENCE = "brokers"
CLIENT_ID, CLIENT_SECRET = "carol", "carol's secret: ä"
SCOPE = "produce consume"
_KEY_ID = "first"
_KEY_BITS = 2048
_EXPONENT = 65_537


class TokenEndpoint:
    """The endpoint. `lifetime_s` is the lifetime of the next tokens; `given` is the number of issued tokens."""

    def __init__(self, directory: Path, lifetime_s: int = 3600) -> None:
        self.lifetime_s = lifetime_s
        self.given = 0
        self.keys_path = directory / "jwks.json"
        self._key = rsa.generate_private_key(_EXPONENT, _KEY_BITS)
        self.keys_path.write_text(json.dumps({"keys": [_published(self._key.public_key())]}))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/token"

    def token(self, *, audience: str = AUDIENCE) -> str:
        """Return a new token in the form that Java's brokers require."""
        now_s = int(time.time())
        claims = {"sub": CLIENT_ID, "aud": audience, "scope": SCOPE, "iat": now_s, "exp": now_s + self.lifetime_s}
        header = {"alg": "RS256", "kid": _KEY_ID, "typ": "JWT"}
        signed = ".".join(_base64(json.dumps(part).encode()) for part in (header, claims))
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), SHA256())
        return f"{signed}.{_base64(signature)}"

    def answer(self, authorization: str, form: str) -> tuple[int, Mapping[str, object]]:
        """Return status and body for a request with this header and form."""
        basic = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if authorization != f"Basic {basic}":
            return 401, {"error": "invalid_client", "error_description": "unknown client"}
        if parse_qs(form) != {"grant_type": ["client_credentials"], "scope": [SCOPE]}:
            return 400, {"error": "invalid_request", "error_description": f"invalid form: {form}"}
        self.given += 1
        return 200, {"access_token": self.token(), "token_type": "Bearer", "expires_in": self.lifetime_s}

    def __enter__(self) -> "TokenEndpoint":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler_of(endpoint: TokenEndpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, answer = endpoint.answer(self.headers.get("Authorization", ""), form)
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: no test reads it."""

    return Handler


def _published(key: rsa.RSAPublicKey) -> dict[str, str]:
    numbers = key.public_numbers()
    modulus = numbers.n.to_bytes(_KEY_BITS // 8)
    exponent = numbers.e.to_bytes(3)
    return {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": _KEY_ID, "n": _base64(modulus), "e": _base64(exponent)}


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
