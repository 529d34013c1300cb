"""The checkers: invariants of every simulated world, by name.

Users record what they see in a `History`. A checker is a function of the history, or a check at the time of an
observation, and adds to `Violations`. Failures and the tests with planted bugs use these names:

    exactly-once-in-order   acknowledged records are in the log once, in order, at the acknowledged offsets; others are
                            there at most once
    at-least-once           acknowledged records are in the log, also those of producers without idempotence
    stable-reads            a later read of an offset never returns another record
    confirmed-topics        a topic that CreateTopics confirmed exists, with its partitions, until DeleteTopics is sent;
                            one whose deletion was confirmed does not exist
    renewed-topics          a topic that was deleted and created again has all acknowledged records and no older ones
    committed-offsets       a group's committed offset is never lost and never moves back
    read-before-commit      every record below a group's committed offset was delivered to one of its members
    one-owner               no two members of one generation own the same partition
    group-converges         the live members agree on one full assignment within bounded time
    progress                after the faults have ended, every request is answered within bounded time
    no-bug                  no unexpected exception, and no start that fails without a cause
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable
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
    """What the checkers found. `on_add` is called with the name of each checker that finds something."""

    def __init__(self, on_add: Callable[[str], None] = lambda checker: None) -> None:
        self.found: list[Violation] = []
        self._on_add = on_add

    def add(self, checker: str, message: str) -> None:
        if len(self.found) < _VIOLATIONS_KEPT:
            self.found.append(Violation(checker, message))
        self._on_add(checker)


class Fate(Enum):
    """The outcome of a record, as far as its producer knows it."""

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
    # Acknowledged without an fsync before a power loss: durability.md guarantees nothing for it.
    may_be_lost: bool = False


class ReadRecord(NamedTuple):
    partition: TopicPartition
    offset: Offset
    value: bytes


@dataclass
class History:
    """The observations of all users. `unsynced_topics` are those whose acknowledgements do not wait for an fsync."""

    violations: Violations
    unsynced_topics: frozenset[TopicName] = frozenset()
    loses_power: bool = False
    sent: list[Sent] = field(default_factory=list)
    reads: dict[tuple[TopicPartition, Offset], bytes] = field(default_factory=dict)
    read_count: int = 0
    # The topics that were created during the run, with their number of partitions.
    confirmed: dict[TopicName, int] = field(default_factory=dict)
    # The topics that were deleted during the run.
    deleted: set[TopicName] = field(default_factory=set)

    def on_power_loss(self) -> None:
        """Mark the records that a power loss may remove.

        Records without an acknowledgement count too: it may still be on its way to the producer.
        """
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

    def only(self, topics: Container[TopicName]) -> "History":
        """Return the part of the history that is about the records of some topics."""
        return History(self.violations, sent=[sent for sent in self.sent if sent.partition.topic in topics])

    @property
    def acknowledged_count(self) -> int:
        return sum(sent.fate is Fate.ACKNOWLEDGED for sent in self.sent)


@dataclass
class GroupHistory:
    """The assignments and commits of one group, as its members saw them.

    Commits without a response are unsettled: each of them may take effect, even late. A late commit may move an offset
    back, which is not a violation; a member that reads this offset continues from there.
    """

    violations: Violations
    _owners: dict[tuple[int, TopicPartition], str] = field(default_factory=dict)
    _acknowledged: dict[TopicPartition, Offset] = field(default_factory=dict)
    _unsettled: dict[TopicPartition, set[Offset]] = field(default_factory=dict)
    # The records that members read; empty for bare members.
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
        self.on_rejected(offsets)
        for partition, offset in offsets.items():
            self._acknowledged[partition] = max(offset, self._acknowledged.get(partition, NO_OFFSET))

    def on_rejected(self, offsets: dict[TopicPartition, Offset]) -> None:
        for partition, offset in offsets.items():
            self._unsettled[partition].discard(offset)

    def floor(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return the lowest offsets that an OffsetFetch sent from now on may return."""
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
    """Check the log at the end of the run. `log` has all readable records, sorted by offset in each partition."""
    violations = history.violations
    for (partition, value), count in Counter((record.partition, record.value) for record in log).items():
        if count > 1:
            offsets = [record.offset for record in log if (record.partition, record.value) == (partition, value)]
            violations.add("exactly-once-in-order", f"{_show(value)} is {count} times in {partition}: {offsets}")
    offsets_by_value = {(record.partition, record.value): record.offset for record in log}
    _check_unknown_records(history, log)
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


def check_at_least_once(history: History, log: list[ReadRecord]) -> None:
    """Check the records of producers that may send twice: those that were acknowledged are in the log."""
    found = {(record.partition, record.value) for record in log}
    for sent in history.sent:
        is_lost = sent.fate is Fate.ACKNOWLEDGED and not sent.may_be_lost
        if is_lost and (sent.partition, sent.value) not in found:
            history.violations.add(
                "at-least-once",
                f"{_show(sent.value)} was acknowledged at {sent.partition}@{sent.offset}, but is not there",
            )
    _check_unknown_records(history, log)


def _check_unknown_records(history: History, log: list[ReadRecord]) -> None:
    ours = {(sent.partition, sent.value) for sent in history.sent}
    for record in log:
        if (record.partition, record.value) not in ours:
            history.violations.add(
                "exactly-once-in-order",
                f"no producer sent {_show(record.value)}, read at {record.partition}@{record.offset}",
            )


def check_stable_log(history: History, log: list[ReadRecord]) -> None:
    """Check that all records that readers saw during the run are still in the log at the end."""
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
                f"but no member was given {_show(record.value)} at {record.offset}",
            )


def check_confirmed_topics(history: History, topics: dict[TopicName, int]) -> None:
    for name, count in history.confirmed.items():
        if topics.get(name) != count:
            history.violations.add(
                "confirmed-topics", f"{name} was created with {count} partitions, but has {topics.get(name, 0)}"
            )
    for name in sorted(history.deleted & topics.keys()):
        history.violations.add("confirmed-topics", f"{name} was deleted, but exists")


def check_renewed_topic(
    violations: Violations, topic: str, acknowledged: Iterable[bytes], read: Iterable[bytes]
) -> None:
    """Check a topic after all of its records were acknowledged; its predecessors had the same name."""
    if (expected := Counter(acknowledged)) != (found := Counter(read)):
        lost, others = sorted(expected - found), sorted(found - expected)
        violations.add("renewed-topics", f"{topic} lacks {lost}, and has {others} of an older version, or twice")


def _show(value: bytes) -> str:
    return value.partition(b" ")[0].decode("utf-8", "replace")
