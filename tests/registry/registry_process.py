"""A registry in a separate process, for tests that kill it: `python -m tests.registry.registry_process KEY=VALUE...`.

Prints its address when it serves.
"""

import asyncio
import sys

from rookery.base.properties import parse_assignment
from rookery.registry.node import RegistryNode
from rookery.registry.settings import RegistrySettings
from rookery.telemetry.logs import configure_logs


async def serve(assignments: list[str]) -> None:
    config = {name: value.value for name, value in map(parse_assignment, assignments)}
    node = RegistryNode(RegistrySettings.parse(config))
    await node.start()
    print(node.url, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    configure_logs()
    asyncio.run(serve(sys.argv[1:]))
