"""Runs a command's coroutine against a cluster: connect, work, disconnect.

What it needs is imported when a command runs: `--help` and completion must not wait for it.
"""

from typing import TYPE_CHECKING, TypeVar

from rookery.base.errors import ApiError
from rookery.cli.client_configs import admin_config

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from rookery.client.admin import Admin
    from rookery.client.consume.consumer import Consumer
    from rookery.client.produce.producer import Producer
    from rookery.client.settings import CommonSettings

Client = TypeVar("Client")
Result = TypeVar("Result")


def with_admin(bootstrap_server: str, timeout_s: float, work: "Callable[[Admin], Awaitable[Result]]") -> Result:
    from rookery.client.admin import Admin

    return _with_client(lambda: Admin(admin_config(bootstrap_server, timeout_s)), work)


def with_producer(
    config: "Mapping[str, object]", work: "Callable[[Producer[bytes, bytes]], Awaitable[Result]]"
) -> Result:
    from rookery.client.produce.producer import Producer
    from rookery.client.settings import ProducerSettings

    return _with_client(lambda: Producer(config), work, reach=ProducerSettings.parse(config).common)


def with_consumer(
    config: "Mapping[str, object]", work: "Callable[[Consumer[bytes, bytes]], Awaitable[Result]]"
) -> Result:
    from rookery.client.consume.consumer import Consumer
    from rookery.client.settings import ConsumerSettings

    return _with_client(lambda: Consumer(config), work, reach=ConsumerSettings.parse(config).common)


def _with_client(
    make: "Callable[[], AbstractAsyncContextManager[Client]]",
    work: "Callable[[Client], Awaitable[Result]]",
    *,
    reach: "CommonSettings | None" = None,
) -> Result:
    """`reach` are the settings of a client that does not connect by itself when it is entered."""
    import asyncio

    async def run() -> Result:
        if reach is not None:
            await _reach(reach)
        async with make() as client:
            return await work(client)

    try:
        return asyncio.run(run())
    except ApiError as error:
        from rookery.cli.suggestions import add_suggestion

        raise add_suggestion(error) from None


async def _reach(settings: "CommonSettings") -> None:
    """A client waits for a cluster to come; who types a command wants to hear at once that nobody is there."""
    from rookery.client.cluster import Cluster

    async with Cluster(settings):
        pass
