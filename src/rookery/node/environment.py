"""What a node gets from outside: files, clock, randomness, network, threads.

Production, tests and the simulator give a node different ones; nothing below `node` makes its own.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from random import Random
from typing import TypeAlias
from uuid import UUID

from rookery.base.clock import Clock
from rookery.base.files import Files
from rookery.base.loop_thread import new_event_loop
from rookery.base.values import value_class
from rookery.broker.context import Services
from rookery.net.connection import Handler
from rookery.net.network import Network

# Wraps the dispatcher's handler: returns the handler that connections call.
Interceptor: TypeAlias = Callable[[Handler, Services], Handler]


@value_class(kw_only=True)
class Environment:
    """`descriptor_limit` is how many files and sockets the process may have open, None if there is no limit.

    `boot_id` changes when the machine is booted; None if it is unknown. `new_loop` creates event loops for threads
    other than the node's. `intercept` is for tests that inject faults.
    """

    files: Files
    clock: Clock
    random: Random
    executor: Executor | None = None
    network: Network | None = None
    intercept: Interceptor | None = None
    descriptor_limit: int | None = None
    boot_id: str | None = None
    new_loop: Callable[[], asyncio.AbstractEventLoop] = new_event_loop

    def new_uuid(self) -> UUID:
        return UUID(bytes=self.random.randbytes(16), version=4)
