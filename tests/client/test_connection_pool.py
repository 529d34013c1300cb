"""Callers that share the opening of a connection."""

import asyncio
from typing import Any

import pytest

from rookery.base.errors import ApiError
from rookery.base.types import NodeId
from rookery.client.cluster import plain_settings
from rookery.client.connection_pool import ConnectionPool
from rookery.net.address import Address


def test_a_failure_is_not_reported_as_unhandled_because_one_caller_gave_up() -> None:
    """Since Python 3.14, asyncio.shield does that."""

    async def scenario() -> list[dict[str, Any]]:
        reports: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
        accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
        server = await asyncio.start_server(lambda _, writer: accepted.put_nowait(writer), "127.0.0.1", 0)
        address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        pool = ConnectionPool(plain_settings(str(address), client_id="", timeout_s=60), observer=None, randomness=None)
        impatient, patient = (
            asyncio.create_task(pool.connect(address, "requests", NodeId(-1))) for _ in ("impatient", "patient")
        )
        peer = await accepted.get()
        impatient.cancel()
        await asyncio.wait([impatient])
        peer.close()
        with pytest.raises(ApiError, match="hung up"):
            await patient
        assert impatient.cancelled()
        await pool.close()
        server.close()
        return reports

    assert asyncio.run(scenario()) == []
