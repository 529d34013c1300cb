"""A registry in a few lines, for what a real one does not let tests see or cause: which requests it gets, and failures.

It knows what the serializers ask for, keeps schemas as they are given, and checks nothing. Ask it as one would the real
one; then look at `requests`, or put answers into `planned`, which it gives before any of its own.
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


class Asked(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    body: Any
    user: str | None


class Answer(NamedTuple):
    status: int
    body: Any
    location: str | None = None


def error(status: int, code: int, message: str) -> Answer:
    return Answer(status, {"error_code": code, "message": message})


class FakeRegistry:
    def __init__(self) -> None:
        self.requests: list[Asked] = []
        self.planned: list[Answer] = []
        self.url = ""
        self._subjects: dict[str, list[int]] = {}
        self._schemas: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def answer(self, asked: Asked) -> Answer:
        with self._lock:
            self.requests.append(asked)
            if self.planned:
                return self.planned.pop(0)
            match [asked.method, *map(unquote, asked.path.strip("/").split("/"))]:
                case ["POST", "subjects", subject, "versions"]:
                    return Answer(200, {"id": self._register(subject, asked.body)})
                case ["POST", "subjects", subject]:
                    return self._look_up(subject, asked.body)
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

    def _look_up(self, subject: str, schema: dict[str, Any]) -> Answer:
        if subject not in self._subjects:
            return error(404, 40401, f"Subject '{subject}' not found.")
        if schema not in self._schemas or (schema_id := self._schemas.index(schema) + 1) not in self._subjects[subject]:
            return error(404, 40403, "Schema not found")
        return self._version(subject, str(self._subjects[subject].index(schema_id) + 1))

    def _version(self, subject: str, version: str) -> Answer:
        if subject not in self._subjects:
            return error(404, 40401, f"Subject '{subject}' not found.")
        ids = self._subjects[subject]
        number = len(ids) if version == "latest" else int(version)
        schema_id = ids[number - 1]
        return Answer(200, {**self._schemas[schema_id - 1], "subject": subject, "version": number, "id": schema_id})

    def _by_id(self, schema_id: int) -> Answer:
        if not 0 < schema_id <= len(self._schemas):
            return error(404, 40403, f"Schema {schema_id} not found")
        return Answer(200, self._schemas[schema_id - 1])


def _handler(registry: FakeRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body in one packet: the second of two would wait for the client's acknowledgement of the first.
        wbufsize = -1

        def handle_any(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            url = urlsplit(self.path)
            body = msgspec.json.decode(self.rfile.read(size)) if size else None
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            status, made, location = registry.answer(Asked(self.command, url.path, query, body, self._user()))
            data = made if isinstance(made, bytes) else msgspec.json.encode(made)
            self.send_response(status)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(data)))
            if location is not None:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815

        def _user(self) -> str | None:
            scheme, _, given = self.headers.get("Authorization", "").partition(" ")
            return base64.b64decode(given).decode() if scheme == "Basic" else None

        def log_message(self, format: str, *args: object) -> None:
            """Tests are quiet."""

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away, or that do not trust it, are what some tests are about."""


@contextmanager
def fake_registry(tls: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
    registry = FakeRegistry()
    server = _Server(("127.0.0.1", 0), _handler(registry))
    registry.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
    if tls is not None:
        # Handshakes happen in the handlers' threads, so that one that fails does not stop the server.
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
