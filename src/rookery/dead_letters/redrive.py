"""Sends dead letters again: a shell on the client.

Each portion of records and the progress behind it are one transaction: after Ctrl-C or a crash either both are there or
neither is, and the next run goes on where this one stopped. A second run at the same time takes the transactional id
over, which aborts what the first has open and fences it; only then it reads how far the first came.
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
from rookery.dead_letters.plan import Planner, Send, Skip, Target, Wish
from rookery.dead_letters.progress import Progress, TooManyHolesError
from rookery.dead_letters.reader import Span, measure, read_letters, read_progresses, redrive_group

_RETENTION: Final = "retention.ms"
_CLEANUP: Final = "cleanup.policy"
_TIME: Final = "message.timestamp.type"
_FOR_EVER: Final = -1


class RedriveError(RookeryError):
    """The redrive cannot do what it was asked to; the text says what to change."""


class Report:
    """What was done, or would be: how many records went to each topic, and how many stayed for which reason."""

    def __init__(self) -> None:
        self.sent: Counter[TopicName] = Counter()
        self.skipped: Counter[Skip] = Counter()

    @property
    def is_complete(self) -> bool:
        """Nothing that was asked for had to be left out."""
        return not any(skip.is_failure for skip in self.skipped)


def redrive_config(topic: TopicName) -> dict[str, object]:
    """What a producer needs to redrive the dead letters of a topic, besides the usual."""
    return {"transactional.id": redrive_group(topic)}


class Redrive:
    """One walk through a dead-letter topic. `on_letters` is told how many more were dealt with."""

    def __init__(
        self,
        wish: Wish,
        *,
        admin: Admin,
        consumer: "Consumer[bytes, bytes]",
        clock: Clock | None = None,
        on_letters: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._wish = wish
        self._admin = admin
        self._consumer = consumer
        self._clock = clock or SystemClock()
        self._on_letters = on_letters
        self._planner = Planner(wish)
        self._progresses: dict[TopicPartition, Progress] = {}
        self._targets: dict[TopicName, Target] = {}
        self._missing: set[TopicName] = set()
        # Partitions whose progress has to be committed.
        self._moved: set[TopicPartition] = set()
        self._report = Report()

    async def preview(self) -> Report:
        """What `run` would do now."""
        async for _, _ in self._portions():
            pass
        return self._report

    async def run(self, producer: "Producer[bytes, bytes]") -> Report:
        """The producer was made with `redrive_config`."""
        await producer.init_transactions()
        group = ConsumerGroupMetadata(redrive_group(self._wish.topic))
        async for sends, offsets in self._portions():
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

    async def _portions(
        self,
    ) -> AsyncIterator[tuple[list[tuple[DeadLetter, Send]], dict[TopicPartition, OffsetAndMetadata]]]:
        """What to send together, and the progress to commit with it."""
        topic = self._wish.topic
        self._progresses = await read_progresses(self._admin, topic)
        span = await measure(self._consumer, topic)
        await self._recall(span)
        open_span = Span({tp: max(first, self._position(tp)) for tp, first in span.first.items()}, span.end)
        for tp, first in open_span.first.items():
            self._progresses.setdefault(tp, Progress(first)).add(0, first)
        behind = dict(open_span.first)
        async for letters in read_letters(self._consumer, open_span):
            await self._look_up_targets(letters)
            sends = [sending for letter in letters if (sending := self._decide(letter, behind)) is not None]
            if self._moved:
                yield sends, self._offsets()
            self._on_letters(len(letters))

    async def _recall(self, span: Span) -> None:
        """Know the records that were sent again, so that none of their other dead letters is."""
        done = {tp: min(self._progresses[tp].end, end) for tp, end in span.end.items() if tp in self._progresses}
        first = {tp: offset for tp, offset in span.first.items() if offset < done.get(tp, 0)}
        async for letters in read_letters(self._consumer, Span(first, done)):
            for letter in letters:
                if letter.record.offset in self._progresses[_partition_of(letter)]:
                    self._planner.recall(letter)

    def _position(self, tp: TopicPartition) -> int:
        return self._progresses[tp].position if tp in self._progresses else 0

    def _decide(self, letter: DeadLetter, behind: dict[TopicPartition, int]) -> tuple[DeadLetter, Send] | None:
        """What to send for it, after its progress was noted. `behind` has the offset behind the last one."""
        tp, offset = _partition_of(letter), letter.record.offset
        progress, last_end = self._progresses[tp], behind[tp]
        if last_end - 1 in progress:
            # No dead letters lie between; they share the fate of the one before, so that no holes arise from them.
            progress.add(last_end, offset)
        behind[tp] = offset + 1
        if offset in progress:
            self._report.skipped[Skip.DONE_BEFORE] += 1
            return None
        step = self._planner.decide(letter, self._targets, self._clock.now_ms())
        if isinstance(step, Skip):
            self._report.skipped[step] += 1
            if not step.is_over:
                return None
        else:
            self._report.sent[step.topic] += 1
        progress.add(offset, offset + 1)
        self._moved.add(tp)
        return None if isinstance(step, Skip) else (letter, step)

    def _offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        moved, self._moved = {tp: self._progresses[tp] for tp in sorted(self._moved)}, set()
        try:
            return {tp: OffsetAndMetadata(progress.position, progress.metadata()) for tp, progress in moved.items()}
        except TooManyHolesError as error:
            raise RedriveError(
                "the selection leaves out too many dead letters in between to remember which were sent again "
                f"({error}); what was sent so far is remembered: go on with a wider selection"
            ) from None

    async def _look_up_targets(self, letters: Sequence[DeadLetter]) -> None:
        targets = {target for letter in letters if (target := self._wish.target(letter)) is not None}
        unknown = targets - self._targets.keys() - self._missing
        if unknown:
            for topic in await self._admin.describe_topics(sorted(unknown)):
                if topic.error == ErrorCode.NONE:
                    self._targets[topic.name] = Target(len(topic.partitions), await self._kept_ms(topic.name))
                else:
                    self._missing.add(topic.name)

    async def _kept_ms(self, topic: TopicName) -> int | None:
        """For how long the topic keeps a record, counted from the record's time; None if that does not matter."""
        if self._wish.now:
            return None
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (found,) = await self._admin.describe_configs([resource], names=[_RETENTION, _CLEANUP, _TIME])
        configs = found.check().values()
        kept_ms = int(configs.get(_RETENTION) or _FOR_EVER)
        deletes = "delete" in (configs.get(_CLEANUP) or "") and configs.get(_TIME) != "LogAppendTime"
        return kept_ms if deletes and kept_ms != _FOR_EVER else None


def _partition_of(letter: DeadLetter) -> TopicPartition:
    return TopicPartition(letter.record.topic, letter.record.partition)
