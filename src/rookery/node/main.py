"""A node as a process: event loop, signals, limits of the operating system."""

import asyncio
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable
from random import SystemRandom

import structlog

from rookery.base.clock import SystemClock
from rookery.base.files import OsFiles
from rookery.node.node import Node
from rookery.node.settings import Settings
from rookery.telemetry.logs import configure_logs

logger = structlog.get_logger(__name__)


def run(settings: Settings, *, announce: Callable[[str], None]) -> None:
    """Run a node until SIGTERM or SIGINT. `announce` gets its address when it serves."""
    configure_logs(os.environ.get("ROOKERY_LOG_LEVEL", "info"))
    descriptor_limit = _raise_file_limit()
    # The cleaner's thread shares the interpreter with the event loop; shorter turns make requests wait less for it.
    sys.setswitchinterval(0.0005)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(settings, announce, descriptor_limit))


async def _serve(settings: Settings, announce: Callable[[str], None], descriptor_limit: int | None) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if settings.without_effect:
        logger.warning("these settings have no effect here", keys=",".join(settings.without_effect))
    node = Node(
        settings,
        files=OsFiles(),
        clock=SystemClock(),
        random=SystemRandom(),
        descriptor_limit=descriptor_limit,
    )
    # A start makes many objects and little garbage.
    gc.disable()
    starting = asyncio.ensure_future(node.start())
    asked_to_stop = asyncio.ensure_future(stopping.wait())
    await asyncio.wait((starting, asked_to_stop), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        logger.info("stopping before the start has ended")
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return
    await starting
    _set_apart_what_stays()
    try:
        announce(node.address)
        await asked_to_stop
        logger.info("stopping")
    finally:
        await node.stop()


def _set_apart_what_stays() -> None:
    """What the start has made lives as long as the node. A full collection of garbage would look through all of it,
    with 10,000 partitions for 70 ms in which no request is answered: it shall leave that out.
    """
    gc.freeze()
    gc.enable()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed (the extra `fast`), asyncio's own loop otherwise."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _raise_file_limit() -> int | None:
    """Segments and connections hold descriptors; the soft limit is often 1,024, the hard one is not. Tells that one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return None if hard == resource.RLIM_INFINITY else hard
