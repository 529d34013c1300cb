"""Skips time for a client on the running loop.

Tests can use long time-outs, as a busy machine needs them, without waiting for them. `advance_time` moves a broker's
time.
"""

import asyncio

from rookery.testing.shifted_time import wait_for_due_timers


def skip_time(seconds: float) -> None:
    """Move the running loop's clock forward, so that its timers within `seconds` are due now."""
    loop = asyncio.get_running_loop()
    time_before = loop.time
    loop.time = lambda: time_before() + seconds  # type: ignore[method-assign]


async def let_pass(seconds: float) -> None:
    """Skip time, and return when every timer that became due has fired."""
    skip_time(seconds)
    await wait_for_due_timers()
