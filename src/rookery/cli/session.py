"""Runs a command's coroutine against a cluster: connect, work, disconnect.

What it needs is imported when a command runs: `--help` and completion must not wait for it.
"""

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rookery.client.admin import Admin
    from rookery.client.cluster import Cluster

Result = TypeVar("Result")

CLIENT_ID = "rookery-cli"


def with_cluster(bootstrap_server: str, timeout_s: float, work: "Callable[[Cluster], Awaitable[Result]]") -> Result:
    import asyncio

    from rookery.client.cluster import Cluster

    async def run() -> Result:
        async with Cluster.at(bootstrap_server, client_id=CLIENT_ID, timeout_s=timeout_s) as cluster:
            return await work(cluster)

    return asyncio.run(run())


def with_admin(bootstrap_server: str, timeout_s: float, work: "Callable[[Admin], Awaitable[Result]]") -> Result:
    from rookery.client.admin import Admin

    return with_cluster(bootstrap_server, timeout_s, lambda cluster: work(Admin(cluster)))
