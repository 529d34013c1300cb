"""A node as a process: event loop, signals, limits of the operating system."""

import gc
import os
import resource
import sys
from collections.abc import Callable
from random import SystemRandom

import structlog

from rookery.base.clock import SystemClock
from rookery.base.files import OsFiles
from rookery.base.server_process import run_process, serve_until_stopped
from rookery.node.node import Node
from rookery.node.settings import Settings
from rookery.telemetry.logs import configure_logs

logger = structlog.get_logger(__name__)


def run(settings: Settings, *, announce: Callable[[str], None], log_level: str = "info") -> None:
    """Run a node until SIGTERM or SIGINT. `announce` gets its address when it serves."""
    configure_logs(os.environ.get("ROOKERY_LOG_LEVEL", log_level))
    descriptor_limit = _raise_file_limit()
    # The cleaner's thread shares the interpreter with the event loop; shorter turns make requests wait less for it.
    sys.setswitchinterval(0.0005)
    run_process(_serve(settings, announce, descriptor_limit))


async def _serve(settings: Settings, announce: Callable[[str], None], descriptor_limit: int | None) -> None:
    if settings.without_effect:
        logger.warning("these settings have no effect here", keys=",".join(settings.without_effect))
    node = Node(
        settings,
        files=OsFiles(),
        clock=SystemClock(),
        random=SystemRandom(),
        descriptor_limit=descriptor_limit,
    )

    def ready() -> None:
        _set_apart_what_stays()
        announce(node.address)

    # A start makes many objects and little garbage.
    gc.disable()
    await serve_until_stopped(node, ready=ready)


def _set_apart_what_stays() -> None:
    """What the start has made lives as long as the node. A full collection of garbage would look through all of it,
    with 10,000 partitions for 70 ms in which no request is answered: it shall leave that out.
    """
    gc.freeze()
    gc.enable()


def _raise_file_limit() -> int | None:
    """Segments and connections hold descriptors; the soft limit is often 1,024, the hard one is not. Tells that one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return None if hard == resource.RLIM_INFINITY else hard
