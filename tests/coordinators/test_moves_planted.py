"""Bugs of a moving coordinator, planted: the enumeration of `test_moves` must find each of them."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.types import Offset, TopicPartition
from rookery.coordinators import runtime
from rookery.coordinators.log_replay import load
from rookery.coordinators.txn.shard import TransactionShard
from rookery.records.control import Marker
from rookery.replication.replica import Replica
from rookery.storage.log import Log
from rookery.storage.producers import ProducerStates
from tests.coordinators.cluster import Cluster, Fate
from tests.coordinators.test_moves import CONFIG, COORDINATOR, INTERNAL, Plan, move_everywhere
from tests.simulation.transfer import GROUP, PARTITIONS, SOURCE, TOPICS, TRANSACTIONAL_ID, Transfer
from tests.simulation.world import World
from tests.support.transactions import Ended, Protocol, TransactionalProducer

COORDINATOR_MOVES = Plan(Protocol.V2, commit=True, fate=Fate.KEPT, moves_coordinator=True, is_late=False)


class _ShortLog:
    """A log that ends at the high watermark of its replica."""

    def __init__(self, replica: Replica) -> None:
        self._log: Log = replica.log
        self.start_offset = self._log.start_offset
        self.end_offset: Offset = replica.state.high_watermark

    def read(self, offset: Offset, max_bytes: int) -> Any:
        return self._log.read(offset, max_bytes, end_offset=self.end_offset)


class _ShortReplica:
    def __init__(self, replica: Replica) -> None:
        self.log = _ShortLog(replica)


def load_short_logs(patch: pytest.MonkeyPatch) -> None:
    """Plant a bug: a coordinator loads the records up to the high watermark only."""

    async def load_short(shard: Any, replica: Replica, *args: Any, **kwargs: Any) -> Offset:
        return await load(shard, cast(Replica, _ShortReplica(replica)), *args, **kwargs)

    patch.setattr(runtime, "load", load_short)


def test_loading_only_up_to_the_high_watermark_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader's high watermark may be lower than the last one's: it would forget acknowledged records."""
    load_short_logs(monkeypatch)
    with pytest.raises(AssertionError):
        move_everywhere(COORDINATOR_MOVES)


def test_markers_that_are_not_sent_again_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    on_loaded = TransactionShard.on_loaded
    monkeypatch.setattr(
        TransactionShard, "on_loaded", lambda shard, now_ms: replace(on_loaded(shard, now_ms), effects=())
    )
    with pytest.raises(AssertionError, match="Prepare"):
        move_everywhere(COORDINATOR_MOVES)


def test_a_refused_retry_of_a_marker_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA-19999: a partition has the marker of the former coordinator, with the bumped epoch."""
    check_marker = ProducerStates.check_marker

    def refuse_equal(states: ProducerStates, marker: Marker) -> ErrorCode | None:
        state = states.get(marker.producer_id)
        if state is not None and marker.transaction_version >= 2 and marker.producer_epoch == state.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return check_marker(states, marker)

    monkeypatch.setattr(ProducerStates, "check_marker", refuse_equal)
    with pytest.raises(AssertionError, match="at 1"):
        move_everywhere(COORDINATOR_MOVES)


class Delayed:
    """The marker of a deposed coordinator arrives when the producer's next transaction is open.

    In the classic protocol both transactions have the same epoch: only the coordinator's epoch tells them apart.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._world = World(seed=1)
        self.cluster = Cluster(self._world, patch)
        self.transfer = Transfer(self._world, self.cluster.bootstrap, protocol=Protocol.CLASSIC, commit=False)

    def play(self) -> None:
        self._world.run(self._main())
        assert not self._world.violations.found, self._world.violations.found

    async def _main(self) -> None:
        spawn, cluster = self._world.loop.spawn, self.cluster
        await cluster.start({**{topic.name: topic.partitions for topic in TOPICS}, **INTERNAL}, CONFIG)
        await spawn(self._world.new_process("client", "client"), self._produce())
        await asyncio.sleep(2)
        await spawn(self._world.new_process("auditor", "auditor"), self.transfer.look())

    async def _produce(self) -> None:
        network, connection = self._world.network, self.transfer.cluster("client")
        producer = TransactionalProducer(
            connection, TRANSACTIONAL_ID, protocol=Protocol.CLASSIC, clock=self._world.clock
        )
        await producer.init()
        # The first transaction opens the connections for markers.
        for value in (b"first", b"second"):
            await producer.produce({partition: [value] for partition in PARTITIONS})
            await producer.send_offsets(GROUP, {SOURCE: 1})
            if value == b"second":
                old, other = self._old_coordinator_and_leader()
                network.cut_one_way(old, other)
                self._world.loop.call_later(0.05, self._move)
            assert await producer.end(commit=True) is Ended.DONE
        await producer.produce({partition: [b"third"] for partition in PARTITIONS})
        network.heal()
        await asyncio.sleep(0.5)
        assert await producer.end(commit=False) is Ended.DONE
        await connection.close()

    def _old_coordinator_and_leader(self) -> tuple[str, str]:
        """Return the hosts of the coordinator and of another broker that leads a partition with data."""
        old = self.cluster.leader(COORDINATOR)
        new = self.cluster.next_leader(COORDINATOR)
        leaders = {self.cluster.leader(partition) for partition in PARTITIONS} - {old, new}
        return self.cluster.members[old].host, self.cluster.members[leaders.pop()].host

    def _move(self) -> None:
        self.cluster.move(COORDINATOR, Fate.KEPT, is_late=False)


COMMITTED = {partition: [b"first", b"second"] for partition in PARTITIONS}


def _visible(delayed: Delayed) -> dict[TopicPartition, list[bytes]]:
    return delayed.transfer.seen.values


def test_the_marker_of_a_deposed_coordinator_is_refused() -> None:
    with pytest.MonkeyPatch.context() as patch:
        delayed = Delayed(patch)
        delayed.play()
    assert _visible(delayed) == COMMITTED
    assert ErrorCode.TRANSACTION_COORDINATOR_FENCED in delayed.cluster.refused_markers


def test_an_accepted_marker_of_a_deposed_coordinator_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    check_marker = ProducerStates.check_marker

    def accept_old(states: ProducerStates, marker: Marker) -> ErrorCode | None:
        code = check_marker(states, marker)
        return None if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED else code

    monkeypatch.setattr(ProducerStates, "check_marker", accept_old)
    with pytest.MonkeyPatch.context() as patch:
        delayed = Delayed(patch)
        delayed.play()
    assert _visible(delayed) != COMMITTED
