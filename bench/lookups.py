"""Look-ups of schemas by id over keep-alive connections, like serializers make them.

The client is a plain socket, so that the registry is the bottleneck and not its client.
"""

import asyncio
import time
from typing import cast

import uvloop

from bench.load import Measurements, await_go, run_action

_HEADERS = b"Host: registry\r\nAccept: application/vnd.schemaregistry.v1+json\r\n\r\n"
_LENGTH = b"content-length: "


class _Lookups(asyncio.Protocol):
    """Sends one request after the other, for all ids in turn."""

    def __init__(self, ids: int, count: int) -> None:
        self._requests = [b"GET /schemas/ids/%d HTTP/1.1\r\n%b" % (number + 1, _HEADERS) for number in range(ids)]
        self._count = count
        self._sent = 0
        self._received = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not instances of asyncio's classes.
        self._transport = cast(asyncio.WriteTransport, transport)

    def go(self) -> None:
        if self._sent == self._count:
            self.done.set_result(None)
            return
        self._transport.write(self._requests[self._sent % len(self._requests)])
        self._sent += 1

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        head = head.lower()
        if not head.startswith(b"http/1.1 200"):
            self.done.set_exception(RuntimeError(head.decode()))
            return
        size = int(head.partition(_LENGTH)[2].partition(b"\r\n")[0])
        if len(body) >= size:
            self._received = body[size:]
            self.go()


def look_up(*, port: int, connections: int, ids: int, requests: int) -> Measurements:
    async def run() -> Measurements:
        loop = asyncio.get_running_loop()
        each = requests // connections
        lookups = [
            (await loop.create_connection(lambda: _Lookups(ids, each), "127.0.0.1", port))[1]
            for _ in range(connections)
        ]
        await_go()
        started_s = time.perf_counter()
        for lookup in lookups:
            lookup.go()
        await asyncio.gather(*(lookup.done for lookup in lookups))
        return {"elapsed_s": time.perf_counter() - started_s, "requests": each * connections}

    return uvloop.run(run())


if __name__ == "__main__":
    run_action({"look_up": look_up})
