"""Time that passes at once.

Limits in tests can be long, as a busy machine needs them, and nobody waits for their end.
"""

import asyncio


def skip_time(seconds: float) -> None:
    """For the running loop: its timers of that time are due now."""
    loop = asyncio.get_running_loop()
    time_before = loop.time
    loop.time = lambda: time_before() + seconds  # type: ignore[method-assign]
