"""Runs a registry as a separate process, outside of the brokers that store its schemas."""

import os
from collections.abc import Callable

from rookery.base.server_process import run_process, serve_until_stopped
from rookery.registry.node import RegistryNode
from rookery.registry.settings import RegistrySettings
from rookery.telemetry.logs import configure_logs


def run(settings: RegistrySettings, *, announce: Callable[[str], None]) -> None:
    """Run the registry until SIGTERM or SIGINT. `announce` is called with its url when it serves."""
    configure_logs(os.environ.get("ROOKERY_LOG_LEVEL", "info"))
    run_process(_serve(settings, announce))


async def _serve(settings: RegistrySettings, announce: Callable[[str], None]) -> None:
    node = RegistryNode(settings)
    await serve_until_stopped(node, ready=lambda: announce(node.url))
