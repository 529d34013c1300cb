"""A minimal registry for tests that have to see its requests or to cause failures.

It implements the requests of the serializers, stores schemas unchanged, and checks nothing. `requests` holds the
requests it received. Responses that a test appends to `planned` are sent first.
"""

import base64
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from rookery.serdes.transport import CONTENT_TYPE


class ReceivedRequest(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    body: Any
    user: str | None


class Response(NamedTuple):
    status: int
    body: Any
    location: str | None = None


def error(status: int, code: int, message: str) -> Response:
    return Response(status, {"error_code": code, "message": message})


class FakeRegistry:
    def __init__(self) -> None:
        self.requests: list[ReceivedRequest] = []
        self.planned: list[Response] = []
        self.url = ""
        self._subjects: dict[str, list[int]] = {}
        self._schemas: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def respond(self, request: ReceivedRequest) -> Response:
        with self._lock:
            self.requests.append(request)
            if self.planned:
                return self.planned.pop(0)
            match [request.method, *map(unquote, request.path.strip("/").split("/"))]:
                case ["POST", "subjects", subject, "versions"]:
                    return Response(200, {"id": self._register(subject, request.body)})
                case ["POST", "subjects", subject]:
                    return self._look_up(subject, request.body)
                case ["GET", "subjects", subject, "versions", version]:
                    return self._version(subject, version)
                case ["GET", "schemas", "ids", schema_id]:
                    return self._by_id(int(schema_id))
                case _:
                    return error(404, 404, "HTTP 404 Not Found")

    def _register(self, subject: str, schema: dict[str, Any]) -> int:
        if schema not in self._schemas:
            self._schemas.append(schema)
        schema_id = self._schemas.index(schema) + 1
        versions = self._subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def _look_up(self, subject: str, schema: dict[str, Any]) -> Response:
        if subject not in self._subjects:
            return error(404, 40401, f"Subject '{subject}' not found.")
        if schema not in self._schemas or (schema_id := self._schemas.index(schema) + 1) not in self._subjects[subject]:
            return error(404, 40403, "Schema not found")
        return self._version(subject, str(self._subjects[subject].index(schema_id) + 1))

    def _version(self, subject: str, version: str) -> Response:
        if subject not in self._subjects:
            return error(404, 40401, f"Subject '{subject}' not found.")
        ids = self._subjects[subject]
        number = len(ids) if version == "latest" else int(version)
        schema_id = ids[number - 1]
        return Response(200, {**self._schemas[schema_id - 1], "subject": subject, "version": number, "id": schema_id})

    def _by_id(self, schema_id: int) -> Response:
        if not 0 < schema_id <= len(self._schemas):
            return error(404, 40403, f"Schema {schema_id} not found")
        return Response(200, self._schemas[schema_id - 1])


def _handler(registry: FakeRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Buffers head and body into one packet. With two, the second would wait for the acknowledgement of the first.
        wbufsize = -1

        def handle_any(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            url = urlsplit(self.path)
            body = msgspec.json.decode(self.rfile.read(size)) if size else None
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            request = ReceivedRequest(self.command, url.path, query, body, self._user())
            status, content, location = registry.respond(request)
            data = content if isinstance(content, bytes) else msgspec.json.encode(content)
            self.send_response(status)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(data)))
            if location is not None:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815

        def _user(self) -> str | None:
            scheme, _, credentials = self.headers.get("Authorization", "").partition(" ")
            return base64.b64decode(credentials).decode() if scheme == "Basic" else None

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors: in some tests clients disconnect or reject the certificate."""


@contextmanager
def fake_registry(tls: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
    registry = FakeRegistry()
    server = _Server(("127.0.0.1", 0), _handler(registry))
    registry.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
    if tls is not None:
        # Handshakes happen in the handlers' threads, so that a failed handshake does not stop the server.
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
