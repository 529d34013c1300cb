"""Replies of one turn of the event loop leave together, after the requests of all connections were handled.

The first reply wakes its reader, if that sleeps; the others find it awake, and a wake-up costs as much as all the rest
of a small send. Code and data of the request path also stay in the caches while the requests are worked off. With
many connections it is done every so often, so that no reply waits long.
"""

import asyncio
from collections.abc import Callable

# A tiny request takes some 50 us: so a reply waits less than two milliseconds for those behind it.
_KEPT_MAX = 32


class Outbox:
    """What connections want to do when it is time to send; shared by all connections of an event loop."""

    def __init__(self) -> None:
        self._kept: list[Callable[[], None]] = []

    def add(self, loop: asyncio.AbstractEventLoop, send: Callable[[], None]) -> None:
        """Call `send` once, soon; it must not raise."""
        self._kept.append(send)
        if len(self._kept) == 1:
            loop.call_soon(self.flush)
        elif len(self._kept) >= _KEPT_MAX:
            self.flush()

    def flush(self) -> None:
        kept, self._kept = self._kept, []
        for send in kept:
            send()
