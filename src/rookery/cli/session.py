"""Runs the coroutine of a command against a cluster: connects, works, disconnects.

Imports happen when a command runs: `--help` and completion must not wait for them.
"""

from typing import TYPE_CHECKING, TypeVar

from rookery.base.errors import ApiError
from rookery.cli.client_configs import admin_config, controllers_config

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


def with_cluster(
    controllers: str | None, bootstrap_server: str, timeout_s: float, work: "Callable[[Admin], Awaitable[Result]]"
) -> Result:
    """Run `work` with an Admin that talks to `controllers` if they are given, and to brokers otherwise."""
    from rookery.client.admin import Admin

    if controllers is None:
        return with_admin(bootstrap_server, timeout_s, work)
    return _with_client(lambda: Admin(controllers_config(controllers, timeout_s)), work)


def with_producer(
    config: "Mapping[str, object]", work: "Callable[[Producer[bytes, bytes]], Awaitable[Result]]"
) -> Result:
    from rookery.client.produce.producer import Producer
    from rookery.client.settings import ProducerSettings

    return _with_client(lambda: Producer(config), work, settings=ProducerSettings.parse(config).common)


def with_consumer(
    config: "Mapping[str, object]", work: "Callable[[Consumer[bytes, bytes]], Awaitable[Result]]"
) -> Result:
    from rookery.client.consume.consumer import Consumer
    from rookery.client.settings import ConsumerSettings

    return _with_client(lambda: Consumer(config), work, settings=ConsumerSettings.parse(config).common)


def _with_client(
    make: "Callable[[], AbstractAsyncContextManager[Client]]",
    work: "Callable[[Client], Awaitable[Result]]",
    *,
    settings: "CommonSettings | None" = None,
) -> Result:
    """Run `work` with a client. `settings` are given for clients that do not connect when they are entered."""
    import asyncio

    async def run() -> Result:
        if settings is not None:
            await _check_reachable(settings)
        async with make() as client:
            return await work(client)

    try:
        return asyncio.run(run())
    except ApiError as error:
        from rookery.cli.suggestions import add_suggestion

        raise add_suggestion(error) from None


async def _check_reachable(settings: "CommonSettings") -> None:
    """Connect once: a client would wait for the cluster, but a command must report an unreachable one immediately."""
    from rookery.client.cluster import Cluster

    async with Cluster(settings):
        pass
