"""Mutations: bugs that the simulator must find, each with the right checker, within a few seeds.

A checker that never fails proves nothing. Each test breaks one function of the node, or of the client, and runs worlds
until the named checker reports a violation; the same worlds without the bug are clean (`test_simulation`, `make sim`).

Bugs that need an election to show are planted in the unit tests (`tests.replication.elections`), because a world has
one node so far.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_OFFSET, Buffer, Offset
from rookery.broker.produce import transactional
from rookery.client.consume.fetcher import Fetcher
from rookery.client.produce.accumulator import Accumulator
from rookery.client.produce.batches import Batch
from rookery.coordinators.group.classic import rebalance
from rookery.coordinators.group.classic.draft import ClassicDraft
from rookery.coordinators.group.consumer.group import ConsumerGroup
from rookery.coordinators.group.offsets import commit
from rookery.coordinators.group.offsets.store import OffsetStore
from rookery.coordinators.group.timers import SessionTimer
from rookery.coordinators.result import CoordinatorResult, Timer
from rookery.coordinators.runtime import Coordinator
from rookery.coordinators.timers import Timers
from rookery.coordinators.txn import end_txn
from rookery.coordinators.txn.results import EndRequest
from rookery.coordinators.txn.shard import TransactionShard
from rookery.coordinators.txn.states import State
from rookery.coordinators.txn.transaction import Transaction
from rookery.quorum.replica_log import ReplicaLog
from rookery.records.batch import BatchHeader
from rookery.replication.replica import Replica
from rookery.storage import producers, recovery
from rookery.storage.compaction.dedupe import AbortedTransactions
from rookery.storage.flush import FlushJob
from rookery.storage.producers import Duplicate, LateDuplicate, ProducerStates
from rookery.storage.segment import Segment
from rookery.storage.transactions import ABORTED_ENTRY_SIZE, AbortedIndex, OpenTransactions
from tests.faults.files import CrashFile
from tests.simulation import bank_run
from tests.simulation.bank import ClientKind
from tests.simulation.faults import Fault, kill, kill_before_responses, lose_power, lose_power_in_a_write
from tests.simulation.scenarios import SCENARIOS, simulate

_SEEDS_MAX = 25
_FAULTS_S = 20.0
_PAUSES_S = (2.0, 6.0)

Plant = Callable[[pytest.MonkeyPatch], None]


class Bug(NamedTuple):
    """A bug to plant.

    `faults` and `client_kinds` limit the world to those that show the bug, if all of the scenario would take too long.
    `seed` is tried first: its world showed the bug when it was added here.
    """

    name: str
    plant: Plant
    scenario: str
    checker: str
    faults: tuple[Fault, ...] = ()
    seed: int = 1
    client_kinds: tuple[ClientKind, ...] = ()


def skip_fsync(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge under flush.messages=1 without waiting for the disk."""
    original = FlushJob.run

    def run(self: FlushJob) -> None:
        if not self._directory.name.startswith("orders"):
            original(self)

    patch.setattr(FlushJob, "run", run)


def show_unsynced_records(patch: pytest.MonkeyPatch) -> None:
    """Move the high watermark when records are written, although they wait for an fsync."""
    original = Replica._appended

    def appended(self: Replica) -> None:
        original(self)
        if self.state.local_end_moved(self.log.end_offset):
            self._changed(self)

    patch.setattr(Replica, "_appended", appended)


def skip_duplicate_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerStates, "check", lambda self, header: None)


def forget_producers_at_start(patch: pytest.MonkeyPatch) -> None:
    """Restore the producers' sequence numbers neither from snapshots nor from batches."""
    original = recovery.load

    def load(*args: Any, **kwargs: Any) -> recovery.LoadedLog:
        loaded = original(*args, **kwargs)
        loaded.producers = ProducerStates()
        return loaded

    patch.setattr(recovery, "load", load)
    patch.setattr(recovery, "load_producers", lambda files, directory, view: ProducerStates())


def return_wrong_offset_for_duplicates(patch: pytest.MonkeyPatch) -> None:
    original = ProducerStates.check

    def check(self: ProducerStates, header: BatchHeader) -> Duplicate | LateDuplicate | ErrorCode | None:
        known = original(self, header)
        return known._replace(base_offset=known.base_offset + 1) if isinstance(known, Duplicate) else known

    patch.setattr(ProducerStates, "check", check)


def keep_torn_end(patch: pytest.MonkeyPatch) -> None:
    """Let recovery find the first bad batch, but leave it in the file."""
    patch.setattr(Segment, "cut", lambda self, position: None)


def skip_fsync_of_metadata(patch: pytest.MonkeyPatch) -> None:
    async def flush(self: ReplicaLog) -> None:
        """Count everything as synced, without a sync."""
        self._log.recovery_point = self._log.end_offset

    patch.setattr(ReplicaLog, "flush", flush)


def write_late(patch: pytest.MonkeyPatch) -> None:
    """Keep each batch in memory until the next one is written, and acknowledge it before that."""
    original = CrashFile.append
    held: dict[CrashFile, bytes] = {}

    def append(self: CrashFile, data: Buffer) -> None:
        if self.path.suffix == ".log" and "orders" in str(self.path):
            data, held[self] = held.get(self, b""), bytes(data)
        original(self, data)

    patch.setattr(CrashFile, "append", append)


def keep_generation(patch: pytest.MonkeyPatch) -> None:
    """Do not increment the generation in a rebalance: the assignments of two rebalances look like those of one."""
    original = rebalance._begin_generation

    def begin(draft: ClassicDraft) -> None:
        draft.group.generation = max(1, draft.group.generation - 1)
        original(draft)

    patch.setattr(rebalance, "_begin_generation", begin)


def assign_what_others_own(patch: pytest.MonkeyPatch) -> None:
    """Assign a partition to a member of the new protocol before its owner, at an older epoch, has released it."""
    patch.setattr(ConsumerGroup, "is_free", lambda self, partition: True)


def accept_former_generations(patch: pytest.MonkeyPatch) -> None:
    """Accept the commit of an expired member after its successor has continued."""
    patch.setattr(commit, "check_commit", lambda *args, **kwargs: ErrorCode.NONE)


def respond_before_commit(patch: pytest.MonkeyPatch) -> None:
    """Respond to a commit when it is written, although it still waits for an fsync."""
    original = Coordinator._respond_when_committed

    def answer(self: Any, hosted: Any, answers: Any) -> None:
        hosted.end_offset = 0
        original(self, hosted, answers)

    patch.setattr(Coordinator, "_respond_when_committed", answer)


def forget_to_append_commits(patch: pytest.MonkeyPatch) -> None:
    """Keep the coordinator's state only in memory."""
    patch.setattr(Coordinator, "_append", lambda self, hosted, encoded, producer, now_ms: None)


def forget_sessions(patch: pytest.MonkeyPatch) -> None:
    """Do not expire the sessions of dead members."""
    original = Timers.set

    def set_timer(self: Timers, timer: Timer) -> None:
        if not isinstance(timer.key, SessionTimer):
            original(self, timer)

    patch.setattr(Timers, "set", set_timer)


# The client


def skip_a_record(patch: pytest.MonkeyPatch) -> None:
    """Skip the first record of each poll, although the position moves past it."""
    original = Fetcher.take

    def take(self: Fetcher, count_max: int) -> list[Any]:
        return original(self, count_max)[1:]

    patch.setattr(Fetcher, "take", take)


def renumber_every_attempt(patch: pytest.MonkeyPatch) -> None:
    """Give a batch whose response was lost other sequence numbers, so that no broker recognizes the duplicate."""
    original = Accumulator.retry

    def retry(self: Accumulator[Any], batch: Batch[Any], *, at_s: float, may_be_written: bool) -> None:
        original(self, batch, at_s=at_s, may_be_written=may_be_written)
        if batch.is_numbered:
            self.queue(batch.partition).must_restart = True

    patch.setattr(Accumulator, "retry", retry)


# Transactions


def forget_prepared_transactions(patch: pytest.MonkeyPatch) -> None:
    """Let a loaded coordinator not write the markers of prepared transactions."""
    original = TransactionShard.on_loaded

    def on_loaded(self: TransactionShard, now_ms: int) -> CoordinatorResult[None]:
        return replace(original(self, now_ms), effects=())

    patch.setattr(TransactionShard, "on_loaded", on_loaded)


def read_beyond_last_stable_offset(patch: pytest.MonkeyPatch) -> None:
    """Return records of open transactions to `read_committed` readers."""
    patch.setattr(OpenTransactions, "last_stable_offset", lambda self, high_watermark: high_watermark)


def lose_aborted_transaction_at_start(patch: pytest.MonkeyPatch) -> None:
    """Do not read the last entry of each index of aborted transactions."""
    original = AbortedIndex.decode

    def decode(base_offset: Offset, data: Buffer) -> AbortedIndex:
        return original(base_offset, data[:-ABORTED_ENTRY_SIZE])

    patch.setattr(AbortedIndex, "decode", decode)


def keep_aborted_records_for_latest(patch: pytest.MonkeyPatch) -> None:
    """Let compaction remove a committed record because of a later one that is aborted after the compacted part."""
    patch.setattr(AbortedTransactions, "note_beyond", lambda self, producer_id, first_offset: None)


def respond_before_prepared(patch: pytest.MonkeyPatch) -> None:
    """Respond to EndTxn when its record is written, although that still waits for an fsync."""
    original = Coordinator._respond_when_committed

    def answer(self: Any, hosted: Any, answers: Any) -> None:
        end_offset = hosted.end_offset
        if isinstance(hosted.shard, TransactionShard):
            hosted.end_offset = 0
        original(self, hosted, answers)
        hosted.end_offset = end_offset

    patch.setattr(Coordinator, "_respond_when_committed", answer)


def accept_fenced_producers(patch: pytest.MonkeyPatch) -> None:
    """Accept batches of fenced epochs, as part of the open transaction."""
    original = producers._check_sequence

    def check_sequence(state: producers.ProducerState, header: BatchHeader) -> LateDuplicate | ErrorCode | None:
        return None if header.producer_epoch < state.epoch else original(state, header)

    def is_in_transaction(self: ProducerStates, header: BatchHeader) -> bool:
        state = self.get(header.producer_id)
        return state is not None and state.is_in_transaction

    patch.setattr(producers, "_check_sequence", check_sequence)
    patch.setattr(ProducerStates, "_is_in_transaction", is_in_transaction)


def acknowledge_late_duplicates(patch: pytest.MonkeyPatch) -> None:
    """Like Kafka, acknowledge a batch with a number of an ended transaction as a duplicate in the open one."""
    patch.setattr(producers.ProducerState, "has_in_transaction", lambda self, batch: True)


def append_late_duplicates(patch: pytest.MonkeyPatch) -> None:
    """Append a late copy of an ended transaction's batch to the next transaction."""
    original = ProducerStates.check

    def check(self: ProducerStates, header: BatchHeader) -> Duplicate | LateDuplicate | ErrorCode | None:
        known = original(self, header)
        return None if isinstance(known, LateDuplicate) else known

    patch.setattr(ProducerStates, "check", check)


def skip_verification(patch: pytest.MonkeyPatch) -> None:
    """Let a batch begin a transaction on its partition although its coordinator has none."""
    patch.setattr(transactional, "verify", lambda context, transactional_id, asked: dict(asked))


def end_whatever_is_open(patch: pytest.MonkeyPatch) -> None:
    """Let a late EndTxn end the transaction that has begun since."""
    original = end_txn.end

    def end(transaction: Transaction | None, request: EndRequest, **kwargs: Any) -> Any:
        if transaction is not None and transaction.state is State.ONGOING:
            request = replace(request, producer_epoch=transaction.producer_epoch)
        return original(transaction, request, **kwargs)

    patch.setattr(end_txn, "end", end)


def commit_offsets_on_abort(patch: pytest.MonkeyPatch) -> None:
    original = OffsetStore.end_transaction

    def end_transaction(self: OffsetStore, producer_id: int, *, committed: bool) -> Any:
        return original(self, producer_id, committed=True)

    patch.setattr(OffsetStore, "end_transaction", end_transaction)


def forget_open_transactions_at_start(patch: pytest.MonkeyPatch) -> None:
    """Restore the producers at start, but not their open transactions."""

    def without_transactions(states: ProducerStates) -> ProducerStates:
        for state in states:
            state.current_transaction_offset = NO_OFFSET
        return ProducerStates(states)

    original_load, original_load_producers = recovery.load, recovery.load_producers

    def load(*args: Any, **kwargs: Any) -> recovery.LoadedLog:
        loaded = original_load(*args, **kwargs)
        if loaded.producers is not None:
            loaded.producers = without_transactions(loaded.producers)
        return loaded

    patch.setattr(recovery, "load", load)
    patch.setattr(recovery, "load_producers", lambda *args: without_transactions(original_load_producers(*args)))


BUGS = [
    Bug("skip fsync", skip_fsync, "power", "exactly-once-in-order", (lose_power,), seed=2),
    Bug("skip fsync of metadata", skip_fsync_of_metadata, "power", "confirmed-topics", (lose_power,), seed=8),
    Bug("show unsynced records", show_unsynced_records, "power", "stable-reads", (lose_power,), seed=3),
    Bug("keep torn end", keep_torn_end, "power", "exactly-once-in-order", (lose_power_in_a_write,), seed=2),
    Bug("write late", write_late, "processes", "exactly-once-in-order", seed=7),
    Bug("skip duplicate check", skip_duplicate_check, "processes", "exactly-once-in-order"),
    Bug("forget producers at start", forget_producers_at_start, "processes", "exactly-once-in-order", seed=7),
    Bug("wrong offset for duplicates", return_wrong_offset_for_duplicates, "processes", "exactly-once-in-order"),
    Bug("keep generation", keep_generation, "processes", "one-owner"),
    Bug("assign what others own", assign_what_others_own, "processes", "committed-offsets", seed=3),
    Bug("accept former generations", accept_former_generations, "processes", "committed-offsets"),
    Bug("respond before commit", respond_before_commit, "power", "committed-offsets", (lose_power,), seed=3),
    Bug("forget to append commits", forget_to_append_commits, "processes", "committed-offsets"),
    Bug("forget sessions", forget_sessions, "processes", "group-converges", seed=12),
    Bug("skip a record", skip_a_record, "processes", "read-before-commit"),
    Bug("renumber every attempt", renumber_every_attempt, "processes", "exactly-once-in-order"),
    Bug("forget prepared transactions", forget_prepared_transactions, "bank-power", "no-hanging-transactions"),
    Bug("read beyond last stable offset", read_beyond_last_stable_offset, "bank", "no-aborted-reads"),
    Bug("lose aborted transaction at start", lose_aborted_transaction_at_start, "bank", "no-aborted-reads"),
    Bug(
        "keep aborted records for latest",
        keep_aborted_records_for_latest,
        "bank",
        "committed-offsets",
        (kill,),
        seed=9,
        client_kinds=(ClientKind.CLASSIC,),
    ),
    Bug("respond before prepared", respond_before_prepared, "bank-power", "atomic-transfers", (lose_power,), seed=3),
    Bug("accept fenced producers", accept_fenced_producers, "bank", "no-aborted-reads", seed=13),
    Bug(
        "acknowledge late duplicates",
        acknowledge_late_duplicates,
        "bank",
        "atomic-transfers",
        (kill_before_responses,),
        seed=2,
        client_kinds=(ClientKind.REUSING,),
    ),
    Bug("append late duplicates", append_late_duplicates, "bank", "worker-order", seed=2),
    Bug("skip verification", skip_verification, "bank", "no-hanging-transactions", seed=2),
    Bug("end whatever is open", end_whatever_is_open, "bank", "atomic-transfers", seed=3),
    Bug("commit offsets on abort", commit_offsets_on_abort, "bank", "requests-once"),
    Bug("forget open transactions at start", forget_open_transactions_at_start, "bank", "no-aborted-reads"),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    if bug.client_kinds:
        monkeypatch.setattr(bank_run, "_CLIENT_KINDS", dict.fromkeys(bank_run._CLIENT_KINDS, bug.client_kinds))
    scenario = SCENARIOS[bug.scenario]
    scenario = replace(scenario, faults=bug.faults or scenario.faults, faults_s=_FAULTS_S, pauses_s=_PAUSES_S)
    seen: set[str] = set()
    for seed in sorted(range(1, _SEEDS_MAX + 1), key=lambda seed: seed != bug.seed):
        found = {violation.checker for violation in simulate(seed, scenario, until=bug.checker).violations}
        if bug.checker in found:
            return
        seen |= found
    pytest.fail(f"{bug.checker} found nothing in {_SEEDS_MAX} worlds; others: {sorted(seen) or 'none'}")
