"""Followers copy their leader's log over the Fetch handler: new, returning, wiped and diverged replicas."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.slices import Slices
from rookery.base.types import Offset, TopicPartition
from rookery.broker.handlers import k01_fetch
from rookery.replication import fetcher, follower_log
from rookery.replication.following import Following
from rookery.replication.manager import ReplicaManager
from rookery.replication.replica import Fetched, Replica
from tests.net.support import until
from tests.replication.nodes import TOPIC, TP, Node, running


def segment_files(node: Node) -> dict[str, bytes]:
    directory = node.replica().log.directory
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix == ".log"}


def test_followers_copy_the_leaders_bytes(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, 1, 2, 3) as nodes:
            nodes.create_topic((1, 2, 3))
            leader = nodes.running[1]
            for index in range(50):
                leader.append(b"%d" % index, b"x" * 100)
            assert leader.replica().state.high_watermark == 0
            await nodes.in_sync(1, 2, 3)
            assert leader.replica().state.high_watermark == 100
            assert segment_files(nodes.running[2]) == segment_files(nodes.running[3]) == segment_files(leader)

    asyncio.run(main())


def test_a_new_high_watermark_reaches_followers_before_their_wait_ends(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, 1, 2, config={"replica.fetch.wait.max.ms": "5000"}) as nodes:
            nodes.create_topic((1, 2))
            await asyncio.sleep(0.05)
            nodes.running[1].append(b"a")
            await asyncio.wait_for(nodes.in_sync(1, 2), 2)
            count = nodes.fetch_count
            await asyncio.sleep(0.1)
            assert nodes.fetch_count - count <= 1, "an idle follower waits"

    asyncio.run(main())


def test_a_follower_that_was_away_leaves_the_isr_and_returns(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, 1, 2) as nodes:
            nodes.create_topic((1, 2))
            leader = nodes.running[1]
            leader.append(b"a")
            await nodes.in_sync(1, 2)
            await nodes.running[2].kill()
            leader.append(b"b")
            await asyncio.sleep(0.02)
            assert leader.replica().state.high_watermark == 1
            nodes.clock.advance(31_000)
            replicator = leader.replicas._replicator
            assert replicator is not None
            await replicator.shrink()
            await nodes.until(lambda: nodes.partition().isr == (1,))
            await nodes.until(lambda: leader.replica().state.high_watermark == 2)
            await nodes.start_node(2)
            await nodes.until(lambda: nodes.partition().isr == (1, 2))
            await nodes.in_sync(1, 2)
            assert nodes.altered == [(1,), (1, 2)]

    asyncio.run(main())


def test_a_wiped_follower_copies_everything_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, 1, 2) as nodes:
            nodes.create_topic((1, 2))
            for index in range(10):
                nodes.running[1].append(b"%d" % index)
            await nodes.in_sync(1, 2)
            await nodes.running[2].kill()
            nodes.fence(2)
            (tmp_path / "2").rename(tmp_path / "old")
            await nodes.start_node(2)
            await nodes.in_sync(1, 2)
            await nodes.until(lambda: nodes.partition().isr == (1, 2))
            assert segment_files(nodes.running[1]) == segment_files(nodes.running[2])

    asyncio.run(main())


@pytest.mark.parametrize("is_in_sync_elsewhere", [True, False])
def test_a_log_that_lost_its_topic_id_may_be_of_a_deleted_topic(tmp_path: Path, is_in_sync_elsewhere: bool) -> None:
    """It is set aside if another replica is in sync. If there is none, it may be the only copy, and is kept."""

    async def main() -> None:
        async with running(tmp_path, 1, 2) as nodes:
            nodes.create_topic((1, 2))
            nodes.running[1].append(b"old")
            await nodes.in_sync(1, 2)
            await nodes.running[2].kill()
            # A power loss: the records were written, the file was not.
            (tmp_path / "2" / str(TP) / "partition.metadata").unlink()
            if is_in_sync_elsewhere:
                nodes.delete_topic()
                nodes.create_topic((1, 2), topic_id=UUID(int=77))
                nodes.running[1].append(b"new")
            else:
                nodes.change(isr=(2,), leader=-1)
            node = await nodes.start_node(2)
            if is_in_sync_elsewhere:
                await nodes.until(lambda: segment_files(node) == segment_files(nodes.running[1]))
            else:
                assert node.replica().log.end_offset == 1
            assert bool(list((tmp_path / "2").glob("*-stray"))) is is_in_sync_elsewhere

    asyncio.run(main())


def test_a_deposed_leader_truncates_what_was_not_committed(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, 1, 2, 3) as nodes:
            nodes.create_topic((1, 2, 3))
            nodes.running[1].append(b"committed")
            await nodes.in_sync(1, 2, 3)
            nodes.cut_off.add(1)
            for value in (b"lost-1", b"lost-2"):
                nodes.running[1].append(value)
            nodes.elect(2, isr=(2, 3), to=(2, 3))
            nodes.running[2].append(b"new")
            await nodes.in_sync(2, 3)
            nodes.cut_off.clear()
            nodes.publish(1)
            await nodes.in_sync(1, 2, 3)
            assert segment_files(nodes.running[1]) == segment_files(nodes.running[2])
            await nodes.until(lambda: set(nodes.partition().isr) == {1, 2, 3})

    asyncio.run(main())


def test_one_partition_is_truncated_per_turn_of_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each truncation syncs, and a leader that comes back may have to cut thousands of partitions."""
    turns: list[int] = []

    async def main() -> None:
        turn = 0

        def count_turns() -> None:
            nonlocal turn
            turn += 1
            asyncio.get_running_loop().call_soon(count_turns)

        truncate = follower_log.truncate_to_leader

        def note(replica: Replica, leader_epoch: int, leader_end: Offset) -> None:
            turns.append(turn)
            truncate(replica, leader_epoch, leader_end)

        monkeypatch.setattr(follower_log, "truncate_to_leader", note)
        count_turns()
        async with running(tmp_path, 1, 2) as nodes:
            nodes.create_topic((1, 2), partitions=4)
            partitions = [TopicPartition(TOPIC, index) for index in range(4)]
            for partition in partitions:
                nodes.running[1].append(b"committed", partition=partition)
                await nodes.in_sync(1, 2, partition=partition)
            nodes.cut_off.add(1)
            for partition in partitions:
                nodes.running[1].append(b"lost", partition=partition)
                nodes.change(partition.partition, to=(2,), leader=2, leader_epoch=1, isr=(2,))
                nodes.running[2].append(b"new", partition=partition)
            nodes.cut_off.clear()
            nodes.publish(1)
            for partition in partitions:
                await nodes.in_sync(1, 2, partition=partition)

    asyncio.run(main())
    assert len(turns) == len(set(turns)) == 4


def test_a_leader_that_wrote_nothing_does_not_stay_diverged(tmp_path: Path) -> None:
    """The deposed leader has an epoch without records that its next leader does not know."""

    async def main() -> None:
        async with running(tmp_path, 1, 2) as nodes:
            nodes.create_topic((1, 2))
            nodes.running[1].append(b"a")
            await nodes.in_sync(1, 2)
            nodes.elect(2, to=(2,))
            assert nodes.running[2].replica().log.epochs.latest == 1
            nodes.elect(1, to=(1, 2))
            nodes.running[1].append(b"b")
            await nodes.in_sync(1, 2)
            assert nodes.running[2].replica().log.epochs.entries() == nodes.running[1].replica().log.epochs.entries()

    asyncio.run(main())


def test_a_follower_below_the_leaders_start_begins_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, 1, 2) as nodes:
            nodes.create_topic((1, 2))
            leader = nodes.running[1]
            leader.append(b"a")
            await nodes.in_sync(1, 2)
            await nodes.running[2].kill()
            nodes.fence(2)
            leader.append(b"b", b"c", b"d")
            # Inside the second batch: the follower's log begins with a batch that is older than its start.
            assert leader.replica().delete_records(2).error_code is ErrorCode.NONE
            await nodes.start_node(2)
            await nodes.in_sync(1, 2)
            follower = nodes.running[2].replica()
            assert (follower.log.start_offset, follower.log.end_offset) == (2, 4)

    asyncio.run(main())


async def recreate_topic(path: Path) -> None:
    """Delete and create a topic while the follower still has the old one: its log must not get the new records."""
    async with running(path, 1, 2) as nodes:
        nodes.create_topic((1, 2))
        nodes.running[1].append(b"old")
        await nodes.in_sync(1, 2)
        nodes.delete_topic(to=(1,))
        nodes.create_topic((1, 2), topic_id=UUID(int=78), to=(1,))
        nodes.running[1].append(b"new-1")
        nodes.running[1].append(b"new-2")
        await asyncio.sleep(0.1)
        assert nodes.running[2].replica().log.end_offset == 1
        nodes.delete_topic(to=(2,))
        await nodes.running[2].replicas.finish()
        nodes.create_topic((1, 2), topic_id=UUID(int=78), to=(2,))
        await nodes.in_sync(1, 2)
        assert segment_files(nodes.running[1]) == segment_files(nodes.running[2])


def test_a_topic_that_was_created_again_is_not_mixed_with_the_old_one(tmp_path: Path) -> None:
    asyncio.run(recreate_topic(tmp_path))


def test_a_leader_that_finds_topics_by_name_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: the id of the deleted topic leads to the log of the new one."""

    def read_found(self: Any, replica: Any, partition: Any, max_bytes: int, at_least_one: bool) -> Fetched:
        return cast(Fetched, self._read_replica(replica, partition.wanted, max_bytes, at_least_one))

    monkeypatch.setattr(ReplicaManager, "topic_name", lambda self, topic_id: TOPIC)
    monkeypatch.setattr(k01_fetch.Fetch, "_read_found", read_found)
    with pytest.raises(AssertionError):
        asyncio.run(recreate_topic(tmp_path))


def test_a_new_partition_does_not_wait_for_the_long_poll(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, 1, 2, config={"replica.fetch.wait.max.ms": "20000"}) as nodes:
            nodes.create_topic((1, 2))
            nodes.running[1].append(b"a")
            await nodes.in_sync(1, 2)
            await asyncio.sleep(0.05)
            nodes.add_partition((1, 2))
            second = TopicPartition(TOPIC, 1)
            nodes.running[1].append(b"b", partition=second)
            await asyncio.wait_for(nodes.in_sync(1, 2, partition=second), 5)

    asyncio.run(main())


def test_the_rows_of_many_partitions_are_computed_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        sizes: list[int] = []
        settle = Following.settle

        def counted(self: Following, partitions: Sequence[TopicPartition], *arguments: Any) -> None:
            sizes.append(len(partitions))
            settle(self, partitions, *arguments)

        monkeypatch.setattr(fetcher, "ITEMS_PER_SLICE", 4)
        monkeypatch.setattr(Following, "settle", counted)
        async with running(tmp_path, 1, 2) as nodes:
            nodes.create_topic((1, 2), partitions=10)
            last = TopicPartition(TOPIC, 9)
            nodes.running[1].append(b"a", partition=last)
            await nodes.in_sync(1, 2, partition=last)
        assert sizes[:3] == [4, 4, 2]

    asyncio.run(main())


def test_a_partition_that_begins_between_two_slices_does_not_wait_for_the_long_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running(tmp_path, 1, 2, config={"replica.fetch.wait.max.ms": "20000"}) as nodes:
            pause, third = Slices.pause, TopicPartition(TOPIC, 2)

            async def add_partition(self: Slices) -> None:
                monkeypatch.undo()
                nodes.add_partition((1, 2))
                nodes.running[1].append(b"b", partition=third)
                await pause(self)

            monkeypatch.setattr(fetcher, "ITEMS_PER_SLICE", 1)
            monkeypatch.setattr(Slices, "pause", add_partition)
            nodes.create_topic((1, 2), partitions=2)
            await until(lambda: len(nodes.running[2].replicas) == 3)
            await asyncio.wait_for(nodes.in_sync(1, 2, partition=third), 10)

    asyncio.run(main())


def test_a_large_response_is_appended_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with running(tmp_path, 1, 2) as nodes:
            nodes.create_topic((1, 2))
            nodes.cut_off.add(2)
            for index in range(100):
                nodes.running[1].append(b"%d" % index)
            pauses: list[int] = []
            pause = Slices.pause

            async def counted(self: Slices) -> None:
                pauses.append(nodes.running[2].replica().log.end_offset)
                await pause(self)

            monkeypatch.setattr(follower_log, "FETCHED_BATCHES_PER_SLICE", 7)
            monkeypatch.setattr(Slices, "pause", counted)
            nodes.cut_off.clear()
            await nodes.in_sync(1, 2)
            assert pauses[:3] == [7, 14, 21]
            assert segment_files(nodes.running[1]) == segment_files(nodes.running[2])

    asyncio.run(main())


def test_records_that_need_an_fsync_are_acknowledged_after_it(tmp_path: Path) -> None:
    """The follower's next fetch, which acknowledges the records, waits for its fsync."""

    async def main() -> None:
        async with running(tmp_path, 1, 2, config={"log.flush.interval.messages": "1"}) as nodes:
            nodes.create_topic((1, 2))
            follower = nodes.running[2]
            held: list[Replica] = []

            def hold(replica: Replica) -> None:
                replica.is_flushing = True
                held.append(replica)

            follower.replica()._flush = hold
            nodes.running[1].append(b"a")
            await nodes.until(lambda: bool(held))
            await asyncio.sleep(0.1)
            assert follower.replica().log.end_offset == 1
            assert nodes.running[1].replica().state.high_watermark == 0
            replica = held[0]
            replica.log.flush()
            replica.is_flushing = False
            replica.flushed(1)
            await nodes.in_sync(1, 2)

    asyncio.run(main())
