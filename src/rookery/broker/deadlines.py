"""Request time-outs of admin requests: the client stops waiting, the decision goes on."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


async def within(timeout_ms: int, work: Coroutine[Any, Any, ResultT]) -> ResultT | None:
    """Return the result of `work`, or None after `timeout_ms`; `work` then continues without a caller.

    A time-out that is not positive means no limit.
    """
    if timeout_ms <= 0:
        return await work
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.wait_for(asyncio.shield(task), timeout_ms / 1000)
    except TimeoutError:
        # Retrieve its exception: asyncio would log one that no caller has seen.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return None
