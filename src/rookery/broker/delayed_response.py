"""Stage 2 of Produce and Fetch: a response that waits for partitions to change, or for its deadline."""

import asyncio
from collections.abc import Callable, Iterable, Set
from typing import TypeVar

from rookery.base.types import TopicPartition
from rookery.replication.pending import Pending, Waiter

Response = TypeVar("Response")


def delay_response(
    pending: Pending,
    partitions: Iterable[TopicPartition],
    *,
    timeout_ms: int,
    is_ready: Callable[[Set[TopicPartition]], bool],
    finish: Callable[[], Response],
) -> "asyncio.Future[Response]":
    """Return a future of `finish()`, which is called when `is_ready(changed partitions)` returns True or at the
    deadline, `timeout_ms` from now. Cancelling the future removes the waiter.
    """
    future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def attempt(changed: Set[TopicPartition]) -> bool:
        try:
            if not future.done() and is_ready(changed):
                future.set_result(finish())
        except Exception as error:
            future.set_exception(error)
        return future.done()

    def complete() -> None:
        # The future may have been cancelled in this turn: its callback, which removes the waiter, runs in the next one.
        if not future.done():
            try:
                future.set_result(finish())
            except Exception as error:
                future.set_exception(error)

    waiter = Waiter(partitions, attempt=attempt, expire=complete)
    pending.park(waiter, timeout_seconds=max(timeout_ms, 0) / 1000)
    # A connection that is lost cancels the futures of its unfinished requests.
    future.add_done_callback(lambda _: waiter.cancel())
    return future
