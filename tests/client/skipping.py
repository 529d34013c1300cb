"""Time that passes at once, for a client on the running loop.

Limits in tests can be long, as a busy machine needs them, and nobody waits for their end. A broker's own time is moved
by `advance_time`.
"""

import asyncio

from rookery.testing.shifted_time import due_timers_fired


def skip_time(seconds: float) -> None:
    """The loop's timers of that time are due now."""
    loop = asyncio.get_running_loop()
    time_before = loop.time
    loop.time = lambda: time_before() + seconds  # type: ignore[method-assign]


async def let_pass(seconds: float) -> None:
    """Skip time, and return when every timer that became due has fired."""
    skip_time(seconds)
    await due_timers_fired()
