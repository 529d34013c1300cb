"""The parts of a poll that do not depend on the form of its result: group membership, fetching, waiting, wake-ups.

`consumer` (records) and `columns` (Arrow) build their polls from it. At most one poll runs at a time.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from rookery.base.errors import ApiError
from rookery.client.consume.base import ConsumerBase
from rookery.client.errors import ClientStateError, WakeupError


class PollMethods(ConsumerBase):
    _is_polling = False
    _is_woken = False
    _needs_topics = False
    _loop: asyncio.AbstractEventLoop | None = None

    def wakeup(self) -> None:
        """Make the running poll, or else the next one, raise WakeupError. May be called from any thread."""
        self._is_woken = True
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._arrived.set)

    @contextmanager
    def _exclusive_poll(self) -> Iterator[None]:
        """Mark a poll as running; raise ClientStateError if another one is, or if there is nothing to read."""
        self._check_open()
        self._raise_if_closing()
        if self._is_polling:
            raise ClientStateError("another task is polling this consumer")
        if not (self._subscription.is_subscribed or self._subscription.is_manual):
            raise ClientStateError("nothing to read: subscribe or assign first")
        self._is_polling = True
        self._metrics.poll_started()
        self._loop = asyncio.get_running_loop()
        try:
            yield
        finally:
            self._is_polling = False
            self._metrics.poll_ended()

    async def _prepare(self) -> None:
        """Do what a poll does before it returns records: advance the membership and the fetches, raise errors."""
        self._raise_if_woken()
        self._arrived.clear()
        self._raise_if_closing()
        if self._membership is not None and self._needs_topics:
            await self._find_topics()
            self._raise_if_closing()
        if self._membership is not None:
            self._membership.note_poll()
            await self._membership.poll()
        self._fetcher.advance()
        # Without this, a poll that finds buffered records does not yield to the event loop: fetches, heartbeats and
        # other tasks would stand still until the buffers are empty.
        await asyncio.sleep(0)
        failure = self._subscription.take_failure()
        if failure is None:
            failure, self._topic_failure = self._topic_failure, None
        failure = failure or self._cluster.take_authentication_error()
        if failure is not None:
            raise failure

    async def _find_topics(self) -> None:
        """Refresh metadata before the first join: a pattern matches nothing until the existing topics are known.

        A metadata request for a topic that does not exist may also create it (allow.auto.create.topics).
        """
        try:
            if self._subscription.pattern is not None:
                await self._cluster.refresh()
            elif self._subscription.is_subscribed:
                auto_create = self._settings.allow_auto_create_topics
                await self._cluster.refresh(self._subscription.subscribed_topics(), auto_create=auto_create)
            self._needs_topics = False
        except ApiError as error:
            if not error.code.retriable:
                raise

    async def _wait(self, deadline_s: float) -> bool:
        """Wait until data, an error or the membership needs attention; return False if the deadline passes first."""
        timeout_s = deadline_s - asyncio.get_running_loop().time()
        if timeout_s <= 0:
            return False
        events = [self._arrived] if self._membership is None else [self._arrived, self._membership.wake]
        if len(events) == 1:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._arrived.wait()
            except TimeoutError:
                return False
            return True
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            return bool(done)
        finally:
            for wait in waits:
                wait.cancel()

    def _raise_if_woken(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise WakeupError

    def _raise_if_closing(self) -> None:
        if self._is_closing:
            raise ClientStateError("this consumer is closing or closed")
