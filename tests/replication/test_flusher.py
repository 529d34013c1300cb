"""Fsyncs that overlap with a truncation."""

import asyncio

import pytest

from rookery.base.types import NO_TOPIC_ID, Offset
from rookery.replication.flusher import Flusher
from rookery.replication.partition import Partition
from rookery.replication.replica import Replica
from rookery.storage.config import LogConfig
from tests.faults.files import CrashFiles
from tests.storage.samples import PARTITION, START_MS, batch, open_log


def test_an_fsync_does_not_count_records_that_were_truncated_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[tuple[Offset, Offset]] = []
    original = Replica.flushed

    def flushed(self: Replica, end_offset: Offset) -> None:
        reported.append((end_offset, self.log.end_offset))
        original(self, end_offset)

    async def main() -> None:
        flusher = Flusher()
        state = Partition(PARTITION, NO_TOPIC_ID, node_id=1)
        log = open_log(CrashFiles(), config=LogConfig(flush_messages=1, retention_ms=-1))
        replica = Replica(state, log, changed=lambda _: None, flush=flusher.request)
        state.set_leader(1, leader_epoch=0, partition_epoch=0, replicas=(1, 2), isr=(1, 2))
        for _ in range(3):
            replica.append(batch(), acks=1, now_ms=START_MS)
        # The first fsync runs in a thread; before it ends, the node is deposed, truncates, and is elected again.
        await asyncio.sleep(0)
        state.set_leader(2, leader_epoch=1, partition_epoch=1, replicas=(1, 2), isr=(1, 2))
        log.truncate_to(1)
        state.truncated(log.start_offset, log.end_offset)
        state.set_leader(1, leader_epoch=2, partition_epoch=2, replicas=(1, 2), isr=(1, 2))
        await flusher.wait()
        assert reported
        assert all(synced <= end for synced, end in reported)
        assert state.local_end_offset == log.end_offset == 1

    monkeypatch.setattr(Replica, "flushed", flushed)
    asyncio.run(main())
