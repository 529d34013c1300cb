"""Publishes committed batches to this node, in the order of the log, on leaders and followers alike.

One task at a time runs while there is something to publish. It passes one batch after the other to the listener, and
waits for each. The values that this node has just appended as the leader are kept in memory until then, and small
batches that were committed meanwhile are passed on together; others are read from the log. A listener whose next record
the log no longer has gets the newest snapshot first.

`append` of the leader waits here: it returns when its batch is committed and published. The listener learns that this
node leads only after everything that was committed before has been published, because the controller decides on that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import structlog

from rookery.base.bounds import METADATA_RECORDS_PER_SLICE
from rookery.base.errors import NotControllerError, RookeryError
from rookery.base.types import LeaderEpoch, Offset
from rookery.quorum.replica_log import ReplicaLog
from rookery.quorum.snapshots import Snapshot
from rookery.records.batch import BatchHeader
from rookery.records.record import RecordSpan, iterate_spans, open_batch

logger = structlog.get_logger(__name__)

# Gets the offset of the first record and the records' values, in the order of the log, of one batch or several.
CommitListener: TypeAlias = Callable[[Offset, Sequence[bytes]], Awaitable[None]]
SnapshotListener: TypeAlias = Callable[[Snapshot], Awaitable[None]]
EpochListener: TypeAlias = Callable[[LeaderEpoch], None]


class Listener(NamedTuple):
    on_commit: CommitListener
    on_snapshot: SnapshotListener | None = None
    on_lead: EpochListener | None = None
    on_stop_leading: EpochListener | None = None


class _Appended(NamedTuple):
    """A batch that this node has appended as the leader, and the caller that waits for it; a control batch has no
    values.
    """

    end_offset: Offset
    values: Sequence[bytes] | None
    waiter: "asyncio.Future[None]"


class _Lead(NamedTuple):
    epoch: LeaderEpoch
    from_offset: Offset


class Publication:
    """`published` is the offset after the last published batch. Without a listener, batches count as published."""

    def __init__(self, log: ReplicaLog) -> None:
        self.published: Offset = 0
        self._log = log
        self._high_watermark: Offset = 0
        self._listener: Listener | None = None
        self._appended: dict[Offset, _Appended] = {}
        self._lead: _Lead | None = None
        self._led_epoch: LeaderEpoch | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def follow(self, listener: Listener, from_offset: Offset) -> None:
        """Publish to `listener` from now on; it has everything before `from_offset`."""
        assert self._listener is None, "there is one listener"
        self._listener, self.published = listener, from_offset
        self._wake()

    def commit(self, high_watermark: Offset) -> None:
        self._high_watermark = high_watermark
        self._wake()

    def add(self, base_offset: Offset, values: Sequence[bytes], waiter: "asyncio.Future[None]") -> None:
        """Let the caller of an append wait for its publication."""
        self._appended[base_offset] = _Appended(base_offset + len(values), values, waiter)

    def add_control(self, offset: Offset, record_count: int, waiter: "asyncio.Future[None]") -> None:
        """Let a caller wait for the commit of a control batch."""
        self._appended[offset] = _Appended(offset + record_count, None, waiter)

    def lead(self, epoch: LeaderEpoch) -> None:
        """Report that this node leads, when everything that is committed now has been published."""
        self._lead = _Lead(epoch, self._high_watermark)
        self._wake()

    def stop_leading(self, error: BaseException | None = None) -> None:
        """Fail the appends that are not committed: another leader may commit them, or remove them."""
        self._lead = None
        for base_offset, appended in list(self._appended.items()):
            if error is not None or appended.end_offset > self._high_watermark:
                del self._appended[base_offset]
                if not appended.waiter.done():
                    text = "this node has stopped to lead before the change was committed"
                    appended.waiter.set_exception(error or NotControllerError(text))
        led, self._led_epoch = self._led_epoch, None
        if led is not None and self._listener is not None and self._listener.on_stop_leading is not None:
            self._listener.on_stop_leading(led)

    async def close(self) -> None:
        """Stop publishing, after the batch that is being published now."""
        self._is_closed = True
        if self._task is not None:
            await asyncio.wait((self._task,))

    def _wake(self) -> None:
        if self._listener is None:
            self._settle_unheard()
        elif self._task is None and not self._is_closed and (self._has_more() or self._lead is not None):
            self._task = asyncio.get_running_loop().create_task(self._run())

    def _settle_unheard(self) -> None:
        self.published = self._high_watermark
        for base_offset, appended in list(self._appended.items()):
            if appended.end_offset <= self._high_watermark:
                del self._appended[base_offset]
                _resolve(appended.waiter)

    def _has_more(self) -> bool:
        return self.published < self._high_watermark

    async def _run(self) -> None:
        assert self._listener is not None
        try:
            while not self._is_closed and self._has_more():
                await self._publish(self._listener)
                self._report_lead(self._listener)
            self._report_lead(self._listener)
        except RookeryError as error:
            # The disk failed, or the log is damaged: there is nothing to continue with.
            logger.error("publishing the metadata log has stopped", error=str(error), offset=self.published)
            self.stop_leading(error)
            self._is_closed = True
        finally:
            self._task = None

    def _report_lead(self, listener: Listener) -> None:
        if self._lead is not None and self.published >= self._lead.from_offset:
            self._led_epoch, self._lead = self._lead.epoch, None
            if listener.on_lead is not None:
                listener.on_lead(self._led_epoch)

    async def _publish(self, listener: Listener) -> None:
        appended = self._take_appended()
        if appended:
            error = None
            values = [value for batch in appended for value in batch.values or ()]
            if values:
                error = await self._pass_on(listener, self.published, values)
            self.published = appended[-1].end_offset
            for batch in appended:
                _resolve(batch.waiter, error)
        elif self.published < self._log.start_offset:
            snapshot = await self._log.read_snapshot(self._log.newest)
            assert listener.on_snapshot is not None, "this node cannot load a snapshot of the leader"
            await listener.on_snapshot(snapshot)
            self.published = snapshot.position.offset
        else:
            await self._publish_stored(listener)

    def _take_appended(self) -> list[_Appended]:
        """Remove and return the next batches that this node has appended, to be published as one change.

        Every publication copies the maps of the image. With one for each batch, a thousand requests that each create a
        topic would spend half of their time there. Only committed batches count: the others may still be removed.
        """
        taken: list[_Appended] = []
        offset, record_count = self.published, 0
        while (batch := self._appended.get(offset)) is not None:
            record_count += len(batch.values or ())
            is_separate = batch.end_offset > self._high_watermark or record_count > METADATA_RECORDS_PER_SLICE
            if taken and (is_separate or batch.values is None or taken[0].values is None):
                break
            taken.append(self._appended.pop(offset))
            offset = batch.end_offset
        return taken

    async def _publish_stored(self, listener: Listener) -> None:
        for header, batch in self._log.batches(self.published, self._high_watermark):
            if not header.is_control:
                await self._pass_on(listener, header.base_offset, await self._values(header, batch))
            self.published = header.last_offset + 1
            is_elsewhere = self.published in self._appended or self.published < self._log.start_offset
            if is_elsewhere or self._is_closed:
                return

    async def _values(self, header: BatchHeader, batch: bytes) -> Sequence[bytes]:
        if header.record_count <= METADATA_RECORDS_PER_SLICE:
            return values_of(batch)
        # On the event loop, a batch of ten thousand records would take about 30 ms.
        return await self._log.in_worker(lambda: values_of(batch))

    async def _pass_on(self, listener: Listener, offset: Offset, values: Sequence[bytes]) -> Exception | None:
        try:
            await listener.on_commit(offset, values)
        except Exception as error:
            # The records stay committed. An image that misses a batch is a bug, which must not stop all later changes.
            logger.exception("publishing a metadata batch failed", offset=offset)
            return error
        return None


def values_of(batch: bytes) -> list[bytes]:
    """Return the values of the records in a batch."""
    return list(iterate_values(batch))


def iterate_values(batch: bytes) -> Iterator[bytes]:
    """Yield the values of the records in a batch."""
    header, payload = open_batch(batch)
    return (_value(payload, span) for span in iterate_spans(payload, header))


def _value(payload: bytes, span: RecordSpan) -> bytes:
    return payload[span.value_start : span.value_start + max(0, span.value_size)]


def _resolve(waiter: "asyncio.Future[None]", error: Exception | None = None) -> None:
    if waiter.done():
        return
    if error is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(error)
