"""A process that serves until SIGTERM or SIGINT: its event loop, and the order of start, readiness and stop."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import structlog

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


async def serve_until_stopped(service: Service, *, ready: Callable[[], None]) -> None:
    """Start the service, call `ready`, wait for a signal, stop it; a signal may arrive before the start has ended."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    starting = asyncio.ensure_future(service.start())
    stop_requested = asyncio.ensure_future(stopping.wait())
    await asyncio.wait((starting, stop_requested), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        logger.info("stopping before the start has ended")
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return
    await starting
    try:
        ready()
        await stop_requested
        logger.info("stopping")
    finally:
        await service.stop()
