"""The model of three replicas under faults, and the bugs that it finds when they are planted."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.base.types import TopicPartition
from rookery.protocol.fetch import FetchedPartition
from rookery.protocol.fetch_session import SessionRow
from rookery.replication.fetcher import ReplicaFetcher
from rookery.replication.following import Following, Position
from rookery.replication.isr import Follower, IsrConditions
from rookery.replication.partition import Partition
from rookery.storage.log import Log
from tests.replication.model import ModelError, run

_SEEDS = 300


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_acknowledged_records_survive_and_replicas_agree(seed: int) -> None:
    run(seed)


def _find() -> str:
    for seed in range(_SEEDS):
        try:
            run(seed)
        except ModelError as violation:
            return str(violation)
    pytest.fail(f"no seed below {_SEEDS} finds the bug")


def test_a_shrink_that_counts_before_the_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Partition.propose_shrink

    def shrink(self: Partition, now_s: float) -> bool:
        proposed = original(self, now_s)
        if proposed:
            assert self.proposal is not None
            self.maximal_isr = frozenset(self.proposal.members)
            self.advance(now_s)
        return proposed

    monkeypatch.setattr(Partition, "propose_shrink", shrink)
    assert _find()


def test_an_expansion_below_the_epochs_start_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Partition._maybe_expand

    def expand(self: Partition, node: int, follower: Follower) -> None:
        start, self.epoch_start_offset = self.epoch_start_offset, 0
        original(self, node, follower)
        self.epoch_start_offset = start

    monkeypatch.setattr(Partition, "_maybe_expand", expand)
    assert "acknowledged" in _find()


def test_a_replaced_process_that_counts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def may_join(self: IsrConditions, node: int, broker_epoch: int | None) -> bool:
        return broker_epoch is not None and not self.brokers[node].fenced

    monkeypatch.setattr(IsrConditions, "may_join", may_join)
    monkeypatch.setattr(IsrConditions, "is_stale", lambda self, node, broker_epoch: False)
    monkeypatch.setattr(Partition, "_broker_epoch", lambda self, node: -1)
    assert "acknowledged" in _find()


def test_a_high_watermark_of_a_diverging_response_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The truncation follows later, as in a program with several threads."""
    original = ReplicaFetcher._process_partition
    seen: list[SessionRow] = []

    async def process(self: Any, partition: TopicPartition, asked: SessionRow, result: FetchedPartition) -> None:
        replica = self._find_matching(partition, asked)
        if replica is not None and result.diverging_epoch is not None:
            replica.state.copied(replica.log.end_offset, result.high_watermark)
            if asked not in seen:
                seen.append(asked)
                return
        await original(self, partition, asked, result)

    monkeypatch.setattr(ReplicaFetcher, "_process_partition", process)
    assert _find()


def test_a_response_of_an_old_epoch_that_counts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def matches(self: Following, partition: TopicPartition, asked: SessionRow, position: Position) -> bool:
        return partition in self._partitions and position.end_offset == asked.row.fetch_offset

    monkeypatch.setattr(Following, "matches", matches)
    assert _find()


def test_a_leader_without_an_epoch_entry_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "assign_epoch", lambda self, epoch: None)
    assert _find()
