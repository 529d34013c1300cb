"""A leader's handling of transactional batches, coordinator batches and markers."""

from collections.abc import Callable

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID
from rookery.records.batch import read_header
from rookery.records.control import Marker
from rookery.replication.offset_search import LATEST
from rookery.replication.partition import Partition
from rookery.replication.replica import ACKS_ALL, Appended, Replica
from rookery.storage.config import LogConfig
from rookery.storage.log import Log
from rookery.storage.producers import Verification
from tests.faults.files import CrashFiles
from tests.storage.samples import DIRECTORY, PARTITION, START_MS, append, batch, open_log, reopen

UNVERIFIED = Verification(5, 0, None)


class Leader:
    """A replica on node 1, with a record of its wake-ups and flush requests."""

    def __init__(self, *, isr: tuple[int, ...] = (1,), config: LogConfig | None = None, log: Log | None = None) -> None:
        self.changes: list[Replica] = []
        self.flushes: list[Replica] = []
        state = Partition(PARTITION, NO_TOPIC_ID, node_id=1)
        log = log or open_log(CrashFiles(), config=config or LogConfig(retention_ms=-1))
        state.restore(high_watermark=0, start_offset=log.start_offset, end_offset=log.end_offset)
        self.replica = Replica(state, log, changed=self.changes.append, flush=self._flush)
        state.set_leader(1, leader_epoch=5, partition_epoch=9, replicas=isr, isr=isr)

    def _flush(self, replica: Replica) -> None:
        replica.is_flushing = True
        self.flushes.append(replica)

    def append(
        self,
        sequence: int,
        *,
        epoch: int = 0,
        transactional: bool = True,
        verification: Verification | None = UNVERIFIED,
    ) -> Appended:
        data = batch(producer_id=5, epoch=epoch, sequence=sequence, transactional=transactional)
        return self.replica.append(data, acks=ACKS_ALL, now_ms=START_MS, verification=verification)

    def end(self, *, committed: bool = False, epoch: int = 0, coordinator_epoch: int = 0, version: int = 0) -> Appended:
        order = Marker(5, epoch, committed, coordinator_epoch, version)
        return self.replica.append_marker(order, now_ms=START_MS)

    @property
    def stable(self) -> int:
        return self.replica.last_stable_offset


def test_a_transaction_holds_readers_back_until_its_marker() -> None:
    leader = Leader()
    assert leader.append(0) == Appended(ErrorCode.NONE, 0, 1, log_start_offset=0)
    assert leader.append(1, verification=None).base_offset == 1
    assert leader.stable == 0
    assert leader.replica.read(0, 1000, read_committed=True).size_bytes == 0
    assert leader.replica.read(0, 1000).size_bytes
    assert leader.replica.find_offset(LATEST, read_committed=True).offset == 0
    assert leader.replica.find_offset(LATEST).offset == 2
    leader.changes.clear()
    assert leader.end() == Appended(ErrorCode.NONE, 2, 3, log_start_offset=0)
    assert leader.changes
    found = leader.replica.read(0, 1000, read_committed=True)
    assert (found.high_watermark, found.last_stable_offset) == (3, 3)
    assert found.aborted_transactions == [(5, 0)]
    assert leader.replica.read(3, 1000, read_committed=True).aborted_transactions == ()
    assert leader.replica.read(0, 1000).aborted_transactions is None


def test_a_marker_counts_when_it_is_committed() -> None:
    leader = Leader(isr=(1, 2))
    leader.append(0)
    leader.replica.read(1, 1000, node_id=2, current_leader_epoch=5)
    leader.end()
    assert leader.replica.state.high_watermark == 1
    assert leader.stable == 0
    leader.replica.read(2, 1000, node_id=2, current_leader_epoch=5)
    assert leader.stable == 2


def test_a_marker_waits_for_its_flush() -> None:
    leader = Leader(config=LogConfig(retention_ms=-1, flush_messages=2))
    leader.append(0)
    leader.end()
    assert leader.flushes == [leader.replica]
    assert leader.stable == 0
    leader.replica.log.flush()
    leader.replica.is_flushing = False
    leader.replica.flushed(2)
    assert leader.stable == 2


def test_a_late_batch_cannot_begin_a_transaction_that_no_marker_ends() -> None:
    leader = Leader()
    data = batch(producer_id=5, epoch=0, sequence=0, transactional=True)
    verification = leader.replica.needed_verification(data)
    leader.end()
    assert leader.append(0, verification=verification).error_code == ErrorCode.INVALID_TXN_STATE
    assert leader.append(0, verification=None).error_code == ErrorCode.INVALID_TXN_STATE
    again = leader.replica.needed_verification(data)
    assert leader.append(0, verification=again).error_code == ErrorCode.NONE
    assert leader.replica.needed_verification(data) is None
    # A repeated batch is a duplicate, verified or not. After the end of the transaction it is not.
    assert leader.append(0, verification=None) == Appended(ErrorCode.NONE, 1, 2, log_start_offset=0)
    leader.end()
    assert leader.replica.needed_verification(data) is None
    assert leader.append(0, verification=None).error_code == ErrorCode.TRANSACTION_ABORTABLE
    assert leader.append(0, verification=again).error_code == ErrorCode.TRANSACTION_ABORTABLE


@pytest.mark.parametrize(
    "records",
    [b"", bytes(61), batch(), batch(producer_id=5, epoch=0, sequence=0), batch(transactional=True)],
    ids=["nothing", "zeros", "plain", "idempotent", "without a producer"],
)
def test_what_needs_no_verification(records: bytes) -> None:
    assert Leader().replica.needed_verification(records) is None


def test_other_batches_of_the_producer() -> None:
    leader = Leader()
    leader.append(0)
    assert leader.append(1, transactional=False).error_code == ErrorCode.INVALID_TXN_STATE
    leader.end(committed=True)
    assert leader.append(1, transactional=False).error_code == ErrorCode.NONE


def test_markers_are_fenced() -> None:
    leader = Leader()
    leader.append(0, epoch=1)
    assert leader.end(epoch=0).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert leader.end(epoch=1, version=2).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert leader.end(epoch=2, version=2, coordinator_epoch=3).error_code == ErrorCode.NONE
    assert leader.end(epoch=2, version=2, coordinator_epoch=3).error_code == ErrorCode.NONE
    assert leader.end(epoch=2, version=2, coordinator_epoch=2).error_code == ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize(
    "append",
    [
        lambda leader: leader.end(),
        lambda leader: leader.replica.append_coordinated(batch(), now_ms=START_MS),
    ],
)
def test_only_a_leader_with_enough_replicas_appends(append: Callable[[Leader], Appended]) -> None:
    follower = Leader()
    follower.replica.state.set_leader(2, leader_epoch=6, partition_epoch=10, replicas=(1, 2), isr=(1, 2))
    assert append(follower).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    lonely = Leader(isr=(1,), config=LogConfig(retention_ms=-1, min_insync_replicas=2))
    lonely.replica.state.set_leader(1, leader_epoch=6, partition_epoch=10, replicas=(1, 2), isr=(1,))
    assert append(lonely).error_code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_coordinators_batch() -> None:
    leader = Leader()
    data = batch(producer_id=5, epoch=1, sequence=-1, transactional=True)
    assert leader.replica.append_coordinated(bytearray(data), now_ms=START_MS).end_offset == 1
    assert leader.replica.append_coordinated(bytearray(data), now_ms=START_MS).end_offset == 2
    assert leader.stable == 0
    leader.end(epoch=2, version=2)
    fenced = leader.replica.append_coordinated(data, now_ms=START_MS)
    assert fenced.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    too_large = leader.replica.append_coordinated(batch(value=bytes(2_000_000)), now_ms=START_MS)
    assert too_large.error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_marker_with_the_brokers_time() -> None:
    leader = Leader(config=LogConfig(retention_ms=-1, message_timestamp_type="LogAppendTime"))
    leader.end()
    (part,) = leader.replica.read(0, 1000).slices
    assert read_header(part.file.read_at(part.position, part.size)).is_log_append_time


def test_a_failed_disk() -> None:
    leader = Leader()
    leader.append(0)
    leader.replica.log.log_directory.fail(OSError("gone"))
    assert leader.end().error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert leader.replica.read(0, 1000, read_committed=True).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_unreadable_producer_state_affects_read_committed_readers_only() -> None:
    """All snapshots are torn: the state must be rebuilt from the log, but the log's first segment is damaged."""
    files = CrashFiles()
    log = open_log(files)
    append(log, batch())
    log.roll()
    append(log, batch())
    log.close()
    for offset in (1, 2):
        files.write_file(DIRECTORY / f"{offset:020}.snapshot", b"torn")
    files.write_file(DIRECTORY / f"{0:020}.log", bytes(log.segments[0].size_bytes))
    replica = Leader(log=reopen(log)).replica
    plain = replica.read(1, 1000)
    assert (plain.error_code, plain.last_stable_offset, plain.size_bytes > 0) == (ErrorCode.NONE, 2, True)
    assert replica.read(1, 1000, read_committed=True).error_code is ErrorCode.CORRUPT_MESSAGE
