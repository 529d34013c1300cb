"""Throttled moves: they are slower, they end, and they take no replica out of the ISR.

The leader's rate is measured with the nodes' clock, the follower's with the loop's time; tests move both.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from rookery.base.types import TopicPartition
from rookery.quotas.replication import ReplicationThrottle
from rookery.testing.shifted_time import ShiftedLoop, TimeShift, jump
from tests.replication.nodes import TOPIC, TP, Node, Nodes, running

BATCHES = 20
BATCH_BYTES = 1000
RATE = 2000
# One batch per fetch.
CONFIG = {"replica.fetch.max.bytes": "1", "replica.fetch.response.max.bytes": "1"}
OTHER = TopicPartition(TOPIC, 1)


def play(scene: Callable[[TimeShift], Coroutine[Any, Any, None]]) -> None:
    shift = TimeShift()
    with asyncio.Runner(loop_factory=lambda: ShiftedLoop(shift)) as runner:
        runner.run(scene(shift))


def fill(nodes: Nodes, partition: TopicPartition = TP) -> None:
    for _ in range(BATCHES):
        nodes.running[1].append(b"x" * BATCH_BYTES, partition=partition)


def restrict(throttle: ReplicationThrottle, node_id: int, *replicas: str) -> None:
    throttle.set_replicas(TOPIC, replicas, node_id)
    throttle.set_rate(RATE)


def copied(node: Node, partition: TopicPartition = TP) -> int:
    return node.replica(partition).log.end_offset


async def idle(nodes: Nodes) -> None:
    """Let the followers fetch for a while, also if the machine is slow."""
    count = nodes.fetch_count
    await nodes.until(lambda: nodes.fetch_count >= count + 5)


def test_a_leader_slows_down_a_move_which_ends(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, 1, 2, config=CONFIG) as nodes:
            nodes.create_topic((1,))
            fill(nodes)
            restrict(nodes.running[1].replicas.throttles.leader, 1, "0:1")
            nodes.change(replicas=(1, 2))
            await nodes.until(lambda: copied(nodes.running[2]) > 0)
            seconds = 0
            while nodes.partition().isr != (1, 2):
                await idle(nodes)
                # The clock stands still meanwhile: no more than the rate allows, and one batch too many.
                assert copied(nodes.running[2]) * BATCH_BYTES <= RATE * (seconds + 1) + 2 * BATCH_BYTES
                assert seconds < 100
                nodes.clock.advance(1000)
                seconds += 1
            assert seconds >= BATCHES * BATCH_BYTES / RATE - 3
            await nodes.in_sync(1, 2)

    asyncio.run(main())


def test_a_replica_in_sync_is_never_throttled(tmp_path: Path) -> None:
    async def scene(shift: TimeShift) -> None:
        assert shift.seconds == 0
        async with running(tmp_path, 1, 2, config=CONFIG) as nodes:
            nodes.create_topic((1, 2))
            for node_id in (1, 2):
                for throttle in nodes.running[node_id].replicas.throttles:
                    restrict(throttle, node_id, "*")
                    throttle.record(10**9, nodes.clock.monotonic())
                    throttle.record(10**9, asyncio.get_running_loop().time())
            for _ in range(3):
                fill(nodes)
                await nodes.in_sync(1, 2)
            assert nodes.partition().isr == (1, 2)
            assert nodes.altered == []

    play(scene)


def test_a_follower_holds_back_throttled_partitions_only(tmp_path: Path) -> None:
    async def scene(shift: TimeShift) -> None:
        async with running(tmp_path, 1, 2, config=CONFIG) as nodes:
            nodes.create_topic((1,), partitions=2)
            fill(nodes)
            fill(nodes, OTHER)
            throttle = nodes.running[2].replicas.throttles.follower
            restrict(throttle, 2, "0:2")
            throttle.record(5 * RATE, asyncio.get_running_loop().time())
            nodes.change(0, replicas=(1, 2))
            nodes.change(1, replicas=(1, 2))
            await nodes.until(lambda: nodes.partition(1).isr == (1, 2))
            assert copied(nodes.running[2]) == 0
            jumps = 0
            while nodes.partition(0).isr != (1, 2):
                await jump(shift, 1)
                await asyncio.sleep(0.05)
                jumps += 1
                assert jumps < 200
            await nodes.in_sync(1, 2)
            assert jumps >= 4 + BATCHES * BATCH_BYTES / RATE - 5

    play(scene)


def test_a_throttle_that_is_removed_has_no_effect_any_more(tmp_path: Path) -> None:
    async def scene(_: TimeShift) -> None:
        async with running(tmp_path, 1, 2, config=CONFIG) as nodes:
            nodes.create_topic((1,))
            fill(nodes)
            throttles = [nodes.running[1].replicas.throttles.leader, nodes.running[2].replicas.throttles.follower]
            for node_id, throttle in enumerate(throttles, start=1):
                restrict(throttle, node_id, "*")
                throttle.record(10**9, nodes.clock.monotonic())
                throttle.record(10**9, asyncio.get_running_loop().time())
            nodes.change(replicas=(1, 2))
            await asyncio.sleep(0.2)
            assert copied(nodes.running[2]) == 0
            for node_id, throttle in enumerate(throttles, start=1):
                throttle.set_replicas(TOPIC, (), node_id)
            await nodes.in_sync(1, 2)

    play(scene)
