"""Serves an app on a socket, for clients that need one."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp


@contextmanager
def serve(app: ASGIApp, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve the app in a thread, on a free port; over https if `context` is set. Yields the address."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning")
    config.load()
    config.ssl = context
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            threading.Event().wait(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"{'https' if context else 'http'}://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
