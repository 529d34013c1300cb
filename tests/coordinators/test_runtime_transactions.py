"""Records in transactions, and effects that wait for the commit, on the runtime of `test_runtime`."""

import asyncio
from pathlib import Path

import pytest

from rookery.base.errors import CorruptionError, ErrorCode
from rookery.base.types import Buffer
from rookery.coordinators.result import CoordinatorResult, Producer
from rookery.coordinators.runtime import Coordinator
from rookery.records.batch import read_header
from rookery.records.control import Marker
from tests.broker.harness import Broker
from tests.coordinators.test_runtime import TOPIC, KeyValueShard, coordinator_of, hold_back, play, put

PRODUCER = Producer(producer_id=7, producer_epoch=2)


def state_of(coordinator: Coordinator[KeyValueShard]) -> dict[bytes, bytes]:
    state = coordinator.read("k", lambda shard: dict(shard.state)).result()
    assert isinstance(state, dict)
    return state


def marker(*, committed: bool, epoch: int = 2, coordinator_epoch: int = 5) -> Marker:
    return Marker(PRODUCER.producer_id, epoch, committed, coordinator_epoch)


def test_records_of_a_transaction_take_effect_when_it_is_committed(tmp_path: Path) -> None:
    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        coordinator.write("k", put(b"a", b"plain"))
        assert coordinator.write("k", put(b"a", b"1", producer=PRODUCER)).result() == "done"
        coordinator.write("k", put(b"b", b"2", producer=PRODUCER))
        assert state_of(coordinator) == {b"a": b"plain"}
        assert coordinator.end_transaction(0, marker(committed=True)).result() is ErrorCode.NONE
        assert state_of(coordinator) == {b"a": b"1", b"b": b"2"}
        segment = broker.replica(TOPIC).log.segments[0]
        headers = [header for _, header in segment.headers()]
        assert [header.is_transactional for header in headers] == [False, True, True, True]
        assert [header.is_control for header in headers] == [False, False, False, True]
        assert {(header.producer_id, header.producer_epoch) for header in headers[1:]} == {(7, 2)}

    play(tmp_path, scene, partitions=1)


def test_a_log_is_loaded_with_its_transactions(tmp_path: Path) -> None:
    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        coordinator.write("k", put(b"a", b"1", producer=PRODUCER))
        coordinator.end_transaction(0, marker(committed=True))
        coordinator.write("k", put(b"a", b"2", producer=PRODUCER))
        coordinator.end_transaction(0, marker(committed=False))
        coordinator.write("k", put(b"a", b"3", producer=PRODUCER))
        after = coordinator_of(broker)
        after.apply(broker.services.image)
        assert after.end_transaction(0, marker(committed=True)).result() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await after.wait_until_loaded()
        assert state_of(after) == {b"a": b"1"}
        assert after.end_transaction(0, marker(committed=True)).result() is ErrorCode.NONE
        assert state_of(after) == {b"a": b"3"}
        await after.close()

    play(tmp_path, scene, partitions=1)


def test_a_marker_that_the_log_rejects_changes_nothing(tmp_path: Path) -> None:
    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        coordinator.write("k", put(b"a", b"1", producer=PRODUCER))
        old_epoch = coordinator.end_transaction(0, marker(committed=True, epoch=1))
        assert old_epoch.result() is ErrorCode.INVALID_PRODUCER_EPOCH
        assert state_of(coordinator) == {}
        coordinator.end_transaction(0, marker(committed=False))
        fenced = coordinator.end_transaction(0, marker(committed=True, coordinator_epoch=4))
        assert fenced.result() is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert coordinator.end_transaction(3, marker(committed=True)).result() is ErrorCode.NOT_COORDINATOR
        stale = coordinator.write("k", put(b"a", b"2", producer=Producer(7, 1)))
        assert stale.result() is ErrorCode.INVALID_PRODUCER_EPOCH
        assert broker.replica(TOPIC).log.end_offset == 2

    play(tmp_path, scene, partitions=1)


def test_records_of_a_transaction_that_ended_after_its_verification_are_rejected(tmp_path: Path) -> None:
    """They would begin a transaction that never ends (KIP-890)."""

    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        early, late = (PRODUCER._replace(guard=coordinator.guard("k", 7)) for _ in range(2))
        assert coordinator.write("k", put(b"a", b"1", producer=early)).result() == "done"
        # The transaction is open: a request that was verified before may still add records.
        assert coordinator.write("k", put(b"a", b"2", producer=late)).result() == "done"
        later = PRODUCER._replace(guard=coordinator.guard("k", 7))
        coordinator.end_transaction(0, marker(committed=True))
        for producer in (early, later):
            rejected = coordinator.write("k", put(b"a", b"3", producer=producer))
            assert rejected.result() is ErrorCode.INVALID_TXN_STATE
        fresh = PRODUCER._replace(guard=coordinator.guard("k", 7))
        assert coordinator.write("k", put(b"a", b"4", producer=fresh)).result() == "done"
        assert state_of(coordinator) == {b"a": b"2"}

    play(tmp_path, scene, partitions=1)


def test_effects_wait_for_the_commit_however_long_it_takes(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    async def scene(broker: Broker, _: Coordinator[KeyValueShard]) -> None:
        coordinator = coordinator_of(broker, on_committed=lambda effect, epoch: seen.append((effect, epoch)))
        coordinator._commit_timeout_ms = 10
        coordinator.apply(broker.services.image)
        coordinator.write("k", put(b"a", b"1", effects=["early"]))
        assert seen == [("early", 0)]
        replica = broker.replica(TOPIC)
        committed = hold_back(replica)
        written = coordinator.write("k", put(b"a", b"2", effects=["late"]))
        assert await written is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(0.03)
        assert seen == [("early", 0)]
        committed(2)
        broker.services.pending.wake(replica.state.topic_partition)
        await asyncio.sleep(0.01)
        assert seen == [("early", 0), ("late", 0)]
        await coordinator.close()

    play(tmp_path, scene, partitions=1)


def test_effects_are_dropped_with_their_shard(tmp_path: Path) -> None:
    seen: list[str] = []

    async def scene(broker: Broker, _: Coordinator[KeyValueShard]) -> None:
        coordinator = coordinator_of(broker, on_committed=lambda effect, _: seen.append(effect))
        coordinator.apply(broker.services.image)
        replica = broker.replica(TOPIC)
        committed = hold_back(replica)
        coordinator.write(
            "k", lambda shard, _: CoordinatorResult(response=None, records=[(b"a", b"1")], effects=["never"])
        )
        await coordinator.close()
        committed(1)
        broker.services.pending.wake(replica.state.topic_partition)
        await asyncio.sleep(0.01)
        assert seen == []

    play(tmp_path, scene, partitions=1)


def test_an_end_is_resolved_when_its_marker_is_committed(tmp_path: Path) -> None:
    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        coordinator.write("k", put(b"a", b"1", producer=PRODUCER))
        replica = broker.replica(TOPIC)
        committed = hold_back(replica)
        ended = coordinator.end_transaction(0, marker(committed=True))
        assert not ended.done()
        committed(2)
        broker.services.pending.wake(replica.state.topic_partition)
        assert await ended is ErrorCode.NONE
        batch = replica.log.segments[0].file.read_at(0, replica.log.size_bytes)
        assert read_header(batch).is_transactional

    play(tmp_path, scene, partitions=1)


@pytest.mark.parametrize("error", [CorruptionError("a broken marker"), RuntimeError("a bug")])
def test_a_log_whose_markers_cannot_be_read_is_not_coordinated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Its clients would otherwise get COORDINATOR_LOAD_IN_PROGRESS for ever."""

    def fail(_: Buffer) -> None:
        raise error

    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        coordinator.write("k", put(b"a", b"1", producer=PRODUCER))
        coordinator.end_transaction(0, marker(committed=True))
        monkeypatch.setattr("rookery.coordinators.log_replay.read_end_marker", fail)
        after = coordinator_of(broker)
        after.apply(broker.services.image)
        await after.wait_until_loaded()
        assert after.write("k", put(b"a", b"1")).result() is ErrorCode.NOT_COORDINATOR

    play(tmp_path, scene, partitions=1)
