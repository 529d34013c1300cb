"""Callers that share one attempt to open a connection."""

import asyncio
from typing import Any

import pytest

from rookery.base.errors import ApiError
from rookery.base.types import NodeId
from rookery.client.cluster import plain_settings
from rookery.client.connection_pool import ConnectionPool
from rookery.net.address import Address


def test_a_failure_is_not_reported_as_unhandled_because_one_caller_was_cancelled() -> None:
    """Since Python 3.14, asyncio.shield reports it."""

    async def scenario() -> list[dict[str, Any]]:
        reports: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
        accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
        server = await asyncio.start_server(lambda _, writer: accepted.put_nowait(writer), "127.0.0.1", 0)
        address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        pool = ConnectionPool(plain_settings(str(address), client_id="", timeout_s=60), observer=None, randomness=None)
        cancelled, waiting = (
            asyncio.create_task(pool.connect(address, "requests", NodeId(-1))) for _ in ("cancelled", "waiting")
        )
        peer = await accepted.get()
        cancelled.cancel()
        await asyncio.wait([cancelled])
        peer.close()
        with pytest.raises(ApiError, match="hung up"):
            await waiting
        assert cancelled.cancelled()
        await pool.close()
        server.close()
        return reports

    assert asyncio.run(scenario()) == []
