"""Runs a command's coroutine against a cluster: connect, work, disconnect.

What it needs is imported when a command runs: `--help` and completion must not wait for it.
"""

from typing import TYPE_CHECKING, TypeVar

from rookery.cli.options import parse_pairs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from rookery.client.admin import Admin
    from rookery.client.cluster import Cluster
    from rookery.client.consume.consumer import Consumer
    from rookery.client.produce.producer import Producer

Result = TypeVar("Result")

CLIENT_ID = "rookery-cli"
_LINGER_MS = 5


def client_config(
    bootstrap_server: str, timeout_s: float, settings: "Iterable[str] | None" = None
) -> dict[str, object]:
    """What the options of all commands stand for, and `--set`, which wins: of a consumer or an administrator."""
    timeout_ms = round(timeout_s * 1000)
    return {
        "bootstrap.servers": bootstrap_server,
        "client.id": CLIENT_ID,
        "request.timeout.ms": timeout_ms,
        "default.api.timeout.ms": timeout_ms,
        **parse_pairs(settings or (), "--set"),
    }


def producer_config(
    bootstrap_server: str, timeout_s: float, settings: "Iterable[str] | None" = None
) -> dict[str, object]:
    """The same of a producer, whose time-outs have other names."""
    timeout_ms = round(timeout_s * 1000)
    return {
        "bootstrap.servers": bootstrap_server,
        "client.id": CLIENT_ID,
        "request.timeout.ms": timeout_ms,
        "max.block.ms": timeout_ms,
        "delivery.timeout.ms": timeout_ms + _LINGER_MS,
        "linger.ms": _LINGER_MS,
        **parse_pairs(settings or (), "--set"),
    }


def with_cluster(bootstrap_server: str, timeout_s: float, work: "Callable[[Cluster], Awaitable[Result]]") -> Result:
    import asyncio

    from rookery.client.cluster import Cluster

    async def run() -> Result:
        async with Cluster.at(bootstrap_server, client_id=CLIENT_ID, timeout_s=timeout_s) as cluster:
            return await work(cluster)

    return asyncio.run(run())


def with_admin(bootstrap_server: str, timeout_s: float, work: "Callable[[Admin], Awaitable[Result]]") -> Result:
    import asyncio

    from rookery.client.admin import Admin

    async def run() -> Result:
        async with Admin(client_config(bootstrap_server, timeout_s)) as admin:
            return await work(admin)

    return asyncio.run(run())


def with_producer(
    config: "Mapping[str, object]", work: "Callable[[Producer[bytes, bytes]], Awaitable[Result]]"
) -> Result:
    import asyncio

    from rookery.client.produce.producer import Producer

    async def run() -> Result:
        await _reach(config)
        async with Producer(config) as producer:
            return await work(producer)

    return asyncio.run(run())


def with_consumer(
    config: "Mapping[str, object]", work: "Callable[[Consumer[bytes, bytes]], Awaitable[Result]]"
) -> Result:
    import asyncio

    from rookery.client.consume.consumer import Consumer

    async def run() -> Result:
        await _reach(config)
        async with Consumer(config) as consumer:
            return await work(consumer)

    return asyncio.run(run())


async def _reach(config: "Mapping[str, object]") -> None:
    """A client waits for a cluster to come; who types a command wants to hear at once that nobody is there."""
    from rookery.client.cluster import Cluster

    async with Cluster.at(str(config["bootstrap.servers"]), client_id=CLIENT_ID):
        pass
