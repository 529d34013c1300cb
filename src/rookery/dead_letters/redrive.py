"""Sends dead letters again, with the client.

Each batch of records and the progress after it are written in one transaction: after Ctrl-C or a crash either both are
committed or neither is, and the next run continues where this one stopped. A second run at the same time takes over the
transactional id, which aborts the first run's open transaction and fences it. The second run reads the progress only
after that, so it cannot miss a commit of the first.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from rookery.base.clock import Clock, SystemClock
from rookery.base.errors import ErrorCode, RookeryError
from rookery.base.types import TopicName, TopicPartition
from rookery.client import Admin, Consumer, ConsumerGroupMetadata, OffsetAndMetadata, Producer
from rookery.client.admin import ConfigResource, ResourceType
from rookery.dead_letters.letters import DeadLetter
from rookery.dead_letters.plan import Planner, RedriveRequest, Send, Skip, Target
from rookery.dead_letters.progress import Progress, TooManyHolesError
from rookery.dead_letters.reader import Span, measure, read_letters, read_progresses, redrive_group

_RETENTION: Final = "retention.ms"
_CLEANUP: Final = "cleanup.policy"
_TIME: Final = "message.timestamp.type"
_UNLIMITED: Final = -1


class RedriveError(RookeryError):
    """The redrive cannot fulfil its request; the text says what to change."""


class Report:
    """The result of a redrive or its preview: records sent per topic, and dead letters skipped per reason."""

    def __init__(self) -> None:
        self.sent: Counter[TopicName] = Counter()
        self.skipped: Counter[Skip] = Counter()

    @property
    def is_complete(self) -> bool:
        """Whether all selected dead letters could be sent."""
        return not any(skip.is_failure for skip in self.skipped)


def redrive_config(topic: TopicName) -> dict[str, object]:
    """Return the settings that a producer needs for a redrive of `topic`, in addition to those of the connection."""
    return {"transactional.id": redrive_group(topic)}


class Redrive:
    """One pass over a dead-letter topic. `on_letters` is called with the size of each batch once it is processed."""

    def __init__(
        self,
        request: RedriveRequest,
        *,
        admin: Admin,
        consumer: "Consumer[bytes, bytes]",
        clock: Clock | None = None,
        on_letters: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._request = request
        self._admin = admin
        self._consumer = consumer
        self._clock = clock or SystemClock()
        self._on_letters = on_letters
        self._planner = Planner(request)
        self._progresses: dict[TopicPartition, Progress] = {}
        self._targets: dict[TopicName, Target] = {}
        self._missing: set[TopicName] = set()
        # Partitions whose progress changed since the last commit.
        self._changed: set[TopicPartition] = set()
        self._report = Report()

    async def preview(self) -> Report:
        """Return what `run` would do now, without sending anything."""
        async for _, _ in self._batches():
            pass
        return self._report

    async def run(self, producer: "Producer[bytes, bytes]") -> Report:
        """Send the selected dead letters. `producer` must be created with `redrive_config`."""
        await producer.init_transactions()
        group = ConsumerGroupMetadata(redrive_group(self._request.topic))
        async for sends, offsets in self._batches():
            async with producer.transaction():
                for letter, send in sends:
                    await producer.send(
                        send.topic,
                        letter.record.value,
                        key=letter.record.key,
                        partition=send.partition,
                        headers=send.headers,
                        timestamp_ms=send.timestamp_ms,
                    )
                await producer.send_offsets_to_transaction(offsets, group)
        return self._report

    async def _batches(
        self,
    ) -> AsyncIterator[tuple[list[tuple[DeadLetter, Send]], dict[TopicPartition, OffsetAndMetadata]]]:
        """Yield the records to send in one transaction, and the offsets to commit with them."""
        topic = self._request.topic
        self._progresses = await read_progresses(self._admin, topic)
        span = await measure(self._consumer, topic)
        await self._mark_sent(span)
        open_span = Span({tp: max(first, self._position(tp)) for tp, first in span.first.items()}, span.end)
        for tp, first in open_span.first.items():
            self._progresses.setdefault(tp, Progress(first)).add(0, first)
        next_offsets = dict(open_span.first)
        async for letters in read_letters(self._consumer, open_span):
            await self._look_up_targets(letters)
            sends = [sending for letter in letters if (sending := self._decide(letter, next_offsets)) is not None]
            if self._changed:
                yield sends, self._offsets()
            self._on_letters(len(letters))

    async def _mark_sent(self, span: Span) -> None:
        """Read the dead letters that earlier runs sent, so that no other dead letter of the same record is sent."""
        done = {tp: min(self._progresses[tp].end, end) for tp, end in span.end.items() if tp in self._progresses}
        first = {tp: offset for tp, offset in span.first.items() if offset < done.get(tp, 0)}
        async for letters in read_letters(self._consumer, Span(first, done)):
            for letter in letters:
                if letter.record.offset in self._progresses[_partition_of(letter)]:
                    self._planner.mark_sent(letter)

    def _position(self, tp: TopicPartition) -> int:
        return self._progresses[tp].position if tp in self._progresses else 0

    def _decide(self, letter: DeadLetter, next_offsets: dict[TopicPartition, int]) -> tuple[DeadLetter, Send] | None:
        """Update the progress and the report for `letter`. Return the record to send for it, if any.

        `next_offsets` holds for each partition the offset after the previous letter; this call moves it forward.
        """
        tp, offset = _partition_of(letter), letter.record.offset
        progress, previous_end = self._progresses[tp], next_offsets[tp]
        if previous_end - 1 in progress:
            # The offsets in between hold no dead letters (transaction markers, compacted records). Without this they
            # would stay open after a done letter, and a hole per transaction would soon exceed the commit's metadata.
            progress.add(previous_end, offset)
        next_offsets[tp] = offset + 1
        if offset in progress:
            self._report.skipped[Skip.DONE_BEFORE] += 1
            return None
        step = self._planner.decide(letter, self._targets, self._clock.now_ms())
        if isinstance(step, Skip):
            self._report.skipped[step] += 1
            if not step.is_settled:
                return None
        else:
            self._report.sent[step.topic] += 1
        progress.add(offset, offset + 1)
        self._changed.add(tp)
        return None if isinstance(step, Skip) else (letter, step)

    def _offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        changed, self._changed = {tp: self._progresses[tp] for tp in sorted(self._changed)}, set()
        try:
            return {tp: OffsetAndMetadata(progress.position, progress.metadata()) for tp, progress in changed.items()}
        except TooManyHolesError as error:
            raise RedriveError(
                "the selection leaves too many gaps between the dead letters to store which were sent again "
                f"({error}); the progress so far is stored: continue with a wider selection"
            ) from None

    async def _look_up_targets(self, letters: Sequence[DeadLetter]) -> None:
        targets = {target for letter in letters if (target := self._request.target(letter)) is not None}
        unknown = targets - self._targets.keys() - self._missing
        if unknown:
            for topic in await self._admin.describe_topics(sorted(unknown)):
                if topic.error == ErrorCode.NONE:
                    self._targets[topic.name] = Target(len(topic.partitions), await self._retention_ms(topic.name))
                else:
                    self._missing.add(topic.name)

    async def _retention_ms(self, topic: TopicName) -> int | None:
        """Return the topic's retention, counted from a record's timestamp.

        Returns None if the topic does not delete by timestamp, or if records are sent with the current time.
        """
        if self._request.now:
            return None
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (found,) = await self._admin.describe_configs([resource], names=[_RETENTION, _CLEANUP, _TIME])
        configs = found.check().values()
        retention_ms = int(configs.get(_RETENTION) or _UNLIMITED)
        deletes = "delete" in (configs.get(_CLEANUP) or "") and configs.get(_TIME) != "LogAppendTime"
        return retention_ms if deletes and retention_ms != _UNLIMITED else None


def _partition_of(letter: DeadLetter) -> TopicPartition:
    return TopicPartition(letter.record.topic, letter.record.partition)
