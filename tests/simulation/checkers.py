"""What must hold in every simulated world, by name.

Users write what they saw into a `History`; each checker is a function from the history, or a check at the moment of
an observation, that adds to `Violations`. The names are what failures and the tests with planted bugs speak of:

    exactly-once-in-order   acknowledged records are in the log once, where the acknowledgement said, in their order;
                            others at most once
    stable-reads            what was read at an offset is never read differently later
    confirmed-topics        a topic that CreateTopics confirmed is there, with its partitions
    committed-offsets       a group's committed offset is never lost and never moves back
    read-before-commit      what a group has committed, one of its members was given
    one-owner               no two members of one generation own the same partition
    group-converges         members that live agree on one full assignment within bounded time
    progress                when faults have ended, whoever waits is answered within bounded time
    no-bug                  no exception that nobody expects, no start that fails without cause
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from rookery.base.types import NO_OFFSET, Offset, TopicName, TopicPartition

_VIOLATIONS_KEPT = 20


class Violation(NamedTuple):
    checker: str
    message: str

    def __str__(self) -> str:
        return f"{self.checker}: {self.message}"


class Violations:
    def __init__(self) -> None:
        self.found: list[Violation] = []

    def add(self, checker: str, message: str) -> None:
        if len(self.found) < _VIOLATIONS_KEPT:
            self.found.append(Violation(checker, message))


class Fate(Enum):
    """What a producer knows about a record."""

    UNKNOWN = auto()
    ACKNOWLEDGED = auto()


@dataclass(slots=True)
class Sent:
    producer: str
    number: int
    partition: TopicPartition
    value: bytes
    fate: Fate = Fate.UNKNOWN
    offset: Offset = NO_OFFSET
    # Acknowledged without an fsync, and then the machine lost power: durability.md promises nothing.
    may_be_lost: bool = False


class ReadRecord(NamedTuple):
    partition: TopicPartition
    offset: Offset
    value: bytes


@dataclass
class History:
    """`unsynced_topics` are those whose acknowledgements do not wait for the disk."""

    violations: Violations
    unsynced_topics: frozenset[TopicName] = frozenset()
    loses_power: bool = False
    sent: list[Sent] = field(default_factory=list)
    reads: dict[tuple[TopicPartition, Offset], bytes] = field(default_factory=dict)
    read_count: int = 0
    # Topics that were made during the run, and how many partitions they have.
    confirmed: dict[TopicName, int] = field(default_factory=dict)

    def on_power_loss(self) -> None:
        """Acknowledgements may be on their way to the producer, so records that wait for one count too."""
        for sent in self.sent:
            if sent.partition.topic in self.unsynced_topics:
                sent.may_be_lost = True

    def on_read(self, reader: str, record: ReadRecord) -> None:
        self.read_count += 1
        if self.loses_power and record.partition.topic in self.unsynced_topics:
            return
        known = self.reads.setdefault((record.partition, record.offset), record.value)
        if known != record.value:
            self.violations.add(
                "stable-reads",
                f"{reader} read {_show(record.value)} at {record.partition}@{record.offset}, "
                f"where {_show(known)} had been read",
            )

    @property
    def acknowledged_count(self) -> int:
        return sum(sent.fate is Fate.ACKNOWLEDGED for sent in self.sent)


@dataclass
class GroupHistory:
    """What the members of one group were told. Commits without an answer are unsettled: each may come true, even late.

    A late commit moves an offset back without anybody being at fault; whoever then reads it goes on from there.
    """

    violations: Violations
    _owners: dict[tuple[int, TopicPartition], str] = field(default_factory=dict)
    _acknowledged: dict[TopicPartition, Offset] = field(default_factory=dict)
    _unsettled: dict[TopicPartition, set[Offset]] = field(default_factory=dict)
    # What members read, if they do.
    reads: set[tuple[TopicPartition, Offset]] = field(default_factory=set)
    commit_count: int = 0
    generation: int = -1

    def on_read(self, record: ReadRecord) -> None:
        self.reads.add((record.partition, record.offset))

    def on_assigned(self, member: str, generation: int, partitions: frozenset[TopicPartition]) -> None:
        self.generation = max(self.generation, generation)
        for partition in sorted(partitions):
            owner = self._owners.setdefault((generation, partition), member)
            if owner != member:
                self.violations.add(
                    "one-owner", f"{owner} and {member} both own {partition} in generation {generation}"
                )

    def on_committing(self, offsets: dict[TopicPartition, Offset]) -> None:
        for partition, offset in offsets.items():
            self._unsettled.setdefault(partition, set()).add(offset)

    def on_committed(self, offsets: dict[TopicPartition, Offset]) -> None:
        self.commit_count += 1
        self.on_refused(offsets)
        for partition, offset in offsets.items():
            self._acknowledged[partition] = max(offset, self._acknowledged.get(partition, NO_OFFSET))

    def on_refused(self, offsets: dict[TopicPartition, Offset]) -> None:
        for partition, offset in offsets.items():
            self._unsettled[partition].discard(offset)

    def floor(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """What must be found by whoever asks from now on."""
        return {partition: self._acknowledged.get(partition, NO_OFFSET) for partition in partitions}

    def on_fetched(self, found: dict[TopicPartition, Offset], floor: dict[TopicPartition, Offset]) -> None:
        for partition, offset in found.items():
            if offset >= floor[partition]:
                continue
            if offset in self._unsettled.get(partition, ()):
                self._acknowledged[partition] = offset
            else:
                self.violations.add(
                    "committed-offsets", f"{partition} was committed up to {floor[partition]}, but {offset} was found"
                )


def check_exactly_once_in_order(history: History, log: list[ReadRecord]) -> None:
    """`log` is everything that can be read at the end, in the order of the offsets of each partition."""
    violations = history.violations
    for (partition, value), count in Counter((record.partition, record.value) for record in log).items():
        if count > 1:
            offsets = [record.offset for record in log if (record.partition, record.value) == (partition, value)]
            violations.add("exactly-once-in-order", f"{_show(value)} is {count} times in {partition}: {offsets}")
    offsets_by_value = {(record.partition, record.value): record.offset for record in log}
    _check_strangers(history, log)
    last: dict[tuple[str, TopicPartition], tuple[int, Offset]] = {}
    for sent in history.sent:
        if sent.fate is not Fate.ACKNOWLEDGED:
            continue
        found = offsets_by_value.get((sent.partition, sent.value))
        if found is None or (sent.offset not in (NO_OFFSET, found) and not sent.may_be_lost):
            if not sent.may_be_lost:
                violations.add(
                    "exactly-once-in-order",
                    f"{_show(sent.value)} was acknowledged at {sent.partition}@{sent.offset}, "
                    + ("but is not there" if found is None else f"but is at {found}"),
                )
            continue
        number, offset = last.get((sent.producer, sent.partition), (-1, NO_OFFSET))
        if found < offset:
            violations.add(
                "exactly-once-in-order",
                f"{sent.producer} sent {sent.number} after {number} to {sent.partition}, "
                f"but they are at {found} and {offset}",
            )
        last[sent.producer, sent.partition] = sent.number, found


def _check_strangers(history: History, log: list[ReadRecord]) -> None:
    ours = {(sent.partition, sent.value) for sent in history.sent}
    for record in log:
        if (record.partition, record.value) not in ours:
            history.violations.add(
                "exactly-once-in-order",
                f"nobody sent {_show(record.value)}, read at {record.partition}@{record.offset}",
            )


def check_stable_log(history: History, log: list[ReadRecord]) -> None:
    """What readers saw during the run is still there at the end."""
    at_the_end = {(record.partition, record.offset): record.value for record in log}
    for (partition, offset), value in history.reads.items():
        if at_the_end.get((partition, offset)) != value:
            history.violations.add(
                "stable-reads", f"{_show(value)} was read at {partition}@{offset}, but is not there at the end"
            )


def check_read_before_commit(
    history: GroupHistory, log: list[ReadRecord], committed: dict[TopicPartition, Offset]
) -> None:
    for record in log:
        if (
            record.offset < committed.get(record.partition, 0)
            and (record.partition, record.offset) not in history.reads
        ):
            history.violations.add(
                "read-before-commit",
                f"{committed[record.partition]} is committed for {record.partition}, "
                f"but nobody was given {_show(record.value)} at {record.offset}",
            )


def check_confirmed_topics(history: History, topics: dict[TopicName, int]) -> None:
    for name, count in history.confirmed.items():
        if topics.get(name) != count:
            history.violations.add(
                "confirmed-topics", f"{name} was made with {count} partitions, but has {topics.get(name, 0)}"
            )


def _show(value: bytes) -> str:
    return value.partition(b" ")[0].decode("utf-8", "replace")
