"""Runs a node as a process: event loop, signals, limits of the operating system."""

import gc
import os
import resource
import sys
from collections.abc import Callable
from random import SystemRandom

import structlog

from rookery.base.boot_id import read_boot_id
from rookery.base.clock import SystemClock
from rookery.base.files import OsFiles
from rookery.base.server_process import run_process, serve_until_stopped
from rookery.node.garbage import LongLivedObjects
from rookery.node.node import Node
from rookery.node.settings import Settings
from rookery.telemetry.logs import configure_logs

logger = structlog.get_logger(__name__)


def run(settings: Settings, *, announce: Callable[[str], None], log_level: str = "info") -> None:
    """Run a node until SIGTERM or SIGINT. `announce` is called with its address when it serves."""
    configure_logs(os.environ.get("ROOKERY_LOG_LEVEL", log_level))
    descriptor_limit = _raise_file_limit()
    # The cleaner's thread shares the interpreter lock with the event loop: with a shorter switch interval, requests
    # wait less for it.
    sys.setswitchinterval(0.0005)
    run_process(_serve(settings, announce, descriptor_limit))


async def _serve(settings: Settings, announce: Callable[[str], None], descriptor_limit: int | None) -> None:
    if settings.without_effect:
        logger.warning("these settings have no effect", keys=",".join(settings.without_effect))
    if settings.unused_listener_keys:
        logger.warning(
            "these settings are ignored: no listener of this node has that name in lower case, or no such mechanism",
            keys=",".join(settings.unused_listener_keys),
            listeners=",".join(settings.listener_names),
        )
    node = Node(
        settings,
        files=OsFiles(),
        clock=SystemClock(),
        random=SystemRandom(),
        descriptor_limit=descriptor_limit,
        boot_id=read_boot_id(),
    )

    def ready() -> None:
        # The objects of the start live as long as the node.
        LongLivedObjects().begin()
        gc.enable()
        announce(node.address)

    # The start creates many objects and little garbage: collections would only slow it down.
    gc.disable()
    try:
        await serve_until_stopped(node, ready=ready, failed=node.failed)
    finally:
        # A start that fails must not leave the caller's process without collections.
        gc.enable()


def _raise_file_limit() -> int | None:
    """Raise the soft limit of open files to the hard limit and return it; None if there is no limit.

    Segments and connections need descriptors, and the soft limit is often only 1,024.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return None if hard == resource.RLIM_INFINITY else hard
