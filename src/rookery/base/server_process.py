"""A process that serves until SIGTERM or SIGINT: its event loop, and the order of start, readiness and stop."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, Protocol

import structlog

from rookery.base.errors import RookeryError
from rookery.base.loop_thread import new_event_loop

logger = structlog.get_logger(__name__)


class Service(Protocol):
    async def start(self) -> None:
        """Return once the service is ready; release everything again if this fails or is cancelled."""
        ...

    async def stop(self) -> None: ...


def run_process(work: Coroutine[Any, Any, None]) -> None:
    """Run the coroutine to its end on a new event loop."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(work)


async def serve_until_stopped(
    service: Service, *, ready: Callable[[], None], failed: Callable[[], Awaitable[RookeryError]] | None = None
) -> None:
    """Start the service, call `ready`, wait for a signal, stop it; a signal may arrive before the start has ended.

    `failed` returns when the service cannot go on. Then it is stopped, and this raises what `failed` has returned.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    starting = asyncio.ensure_future(service.start())
    stop_requested = asyncio.ensure_future(stopping.wait())
    failing = None if failed is None else asyncio.ensure_future(failed())
    ends: list[asyncio.Future[Any]] = [stop_requested] if failing is None else [stop_requested, failing]
    try:
        await asyncio.wait((starting, *ends), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            logger.info("stopping before the start has ended")
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        else:
            await starting
            await _serve(service, ready, ends)
        if failing is not None and failing.done():
            raise failing.result()
    finally:
        for end in ends:
            end.cancel()


async def _serve(service: Service, ready: Callable[[], None], ends: Collection[asyncio.Future[Any]]) -> None:
    try:
        ready()
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        logger.info("stopping")
    finally:
        await service.stop()
