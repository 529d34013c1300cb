"""Quorums of several drivers in simulated time: elections, replication, restarts, snapshots, observers."""

import asyncio

import pytest

from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.quorum.members import EVERYTHING, Cluster, Member


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_leader_is_elected_and_its_appends_reach_every_member(size: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.elect()
        epoch = leader.running.leader_epoch
        for _ in range(10):
            await cluster.append(3)
        await cluster.converge()
        await asyncio.sleep(20)
        assert cluster.leader() is leader
        assert leader.running.leader_epoch == epoch, "a calm quorum keeps its leader"

    Cluster(size, size).run(scenario)


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_leader_is_replaced_soon(seed: int) -> None:
    """Its connections break: nothing waits for the fetch time-out of two seconds."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.append()
        await asyncio.sleep(1)
        leader = cluster.leader()
        assert leader is not None
        leader.kill()
        successor = await cluster.elect(within_s=1.0)
        assert successor is not leader
        await cluster.append()
        leader.boot()
        await cluster.converge()
        assert cluster.leader() is successor, "a returning member deposes no leader"

    Cluster(seed).run(scenario)


def test_a_leader_that_loses_power_is_replaced_after_the_fetch_time_out() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.append(5)
        leader = await cluster.elect()
        leader.lose_power()
        assert await cluster.elect(within_s=5) is not leader
        await cluster.append()
        leader.boot()
        await cluster.converge()

    Cluster(3).run(scenario)


def test_all_members_lose_power() -> None:
    async def scenario(cluster: Cluster) -> None:
        for _ in range(3):
            await cluster.append(2)
            for member in cluster.members.values():
                member.lose_power()
            cluster.boot()
        await cluster.converge()

    Cluster(4, 5).run(scenario)


def test_a_cut_off_leader_loses_its_append_and_truncates() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.append()
        old = await cluster.elect()
        for other in cluster.members.values():
            if other is not old:
                cluster.world.network.cut(old.name, other.name)
        lost = cluster.spawn_append(old, 7)
        await cluster.until(lambda: cluster.leader() not in (None, old))
        successor = cluster.leader()
        assert successor is not None
        await cluster.append(2)
        assert await lost is False, "the leader resigns, because no majority fetches"
        assert old.running.next_offset > old.running.high_watermark
        cluster.world.network.heal()
        await cluster.converge()
        assert old.running.next_offset == successor.running.next_offset

    Cluster(5).run(scenario)


def test_a_paused_leader_learns_that_it_was_replaced() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.append()
        old = await cluster.elect()
        old.pause()
        await cluster.until(lambda: any(member.is_leading for member in cluster.up if member is not old))
        old.resume()
        appended = cluster.spawn_append(old)
        await asyncio.sleep(5)
        assert appended.done(), "no append waits for ever"
        assert not old.is_leading
        await cluster.converge()

    Cluster(6).run(scenario)


def test_a_leader_that_resigns_is_followed_at_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.append()
        await asyncio.sleep(3)
        leader = await cluster.elect()
        await cluster.world.loop.spawn(leader.process, leader.running.resign())
        assert not leader.is_leading
        successor = await cluster.elect(within_s=0.3)
        assert successor is not leader
        await cluster.converge()

    for size in (3, 5):
        Cluster(7, size).run(scenario)


def test_a_member_that_was_down_for_long_gets_a_snapshot() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.append()
        late = next(member for member in cluster.members.values() if member is not cluster.leader())
        late.kill()
        for _ in range(10):
            await cluster.append(4)
        await snapshot_all(cluster)
        await cluster.append()
        late.boot()
        await cluster.converge()
        assert late.running.snapshot_end > 40
        late.lose_power()
        late.boot()
        await cluster.converge()

    Cluster(8).run(scenario)


def test_a_member_that_was_cut_off_gets_a_snapshot_while_it_runs() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.converge()
        leader = await cluster.elect()
        late = next(member for member in cluster.members.values() if member is not leader)
        for other in cluster.members.values():
            if other is not late:
                cluster.world.network.cut(late.name, other.name)
        for _ in range(5):
            await cluster.append(4)
        await snapshot_all(cluster)
        await cluster.append()
        cluster.world.network.heal()
        await cluster.converge()
        assert late.snapshots_loaded == 1
        assert cluster.leader() is leader

    Cluster(15).run(scenario)


async def snapshot_all(cluster: Cluster) -> None:
    for member in cluster.up:
        await cluster.world.loop.spawn(member.process, member.take_snapshot(**EVERYTHING))


def test_a_snapshot_of_many_pieces() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.members[3].kill()
        for _ in range(20):
            await cluster.append(50)
        await snapshot_all(cluster)
        cluster.boot()
        await cluster.converge()
        assert cluster.members[3].running.snapshot_end > 900

    cluster = Cluster(9)
    cluster.settings = cluster.settings._replace(fetch_snapshot_max_bytes=500)
    cluster.run(scenario)


def test_a_crash_at_every_write_of_an_installation() -> None:
    """A member loses power during the download of a snapshot, or while the snapshot replaces its log."""

    async def scenario(cluster: Cluster) -> None:
        late = cluster.members[3]
        await cluster.until(lambda: len(cluster.up) == 3)
        await cluster.append(3)
        for crash_at in range(1, 22):
            late.kill()
            await cluster.append(2)
            await snapshot_all(cluster)
            late.boot()
            late.disk.stop_after(crash_at)
            await asyncio.sleep(8)
            late.disk.crash_at = None
            if not late.is_up:
                late.boot()
            await cluster.converge()

    Cluster(10).run(scenario)


def test_observers_follow_without_votes() -> None:
    async def scenario(cluster: Cluster) -> None:
        observer = cluster.members[4]
        await cluster.append(3)
        await cluster.converge()
        assert observer.running.high_watermark > 0
        assert observer.running._log.synced_offset < observer.running.next_offset, "it does not sync"
        leader = await cluster.elect()
        leader.kill()
        await cluster.append()
        leader.boot()
        await cluster.converge()
        observer.lose_power()
        await cluster.append()
        observer.boot()
        await cluster.converge()
        assert observer.led == []

    Cluster(11, observers=1).run(scenario)


def test_caught_up_means_what_the_leader_had_committed() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.append(5)
        late = next(member for member in cluster.members.values() if member is not cluster.leader())
        late.kill()
        await cluster.append(5)
        leader = await cluster.elect()
        committed = leader.running.high_watermark
        late.boot()
        await cluster.until(lambda: late.driver is not None)
        await cluster.world.loop.spawn(late.process, late.running.caught_up())
        assert late.running.high_watermark >= committed

    Cluster(12).run(scenario)


def test_the_quorum_describes_itself() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.append(3)
        await cluster.converge()
        await asyncio.sleep(2)
        leader = await cluster.elect()
        described = await describe(leader)
        assert described.error_code == 0
        assert described.leader_id == leader.node_id
        assert described.high_watermark == leader.running.high_watermark
        assert {row.replica_id for row in described.current_voters} == {1, 2, 3}
        assert {row.log_end_offset for row in described.current_voters} == {leader.running.next_offset}
        assert {row.replica_id for row in described.observers} == {4}
        now_ms = leader.clock.now_ms()
        for row in (*described.current_voters, *described.observers):
            assert now_ms - 1000 < row.last_caught_up_timestamp <= row.last_fetch_timestamp <= now_ms
        follower = next(member for member in cluster.up if member is not leader)
        assert (await describe(follower)).error_code == 6, "only the leader knows"

    Cluster(13, observers=1).run(scenario)


async def describe(member: Member) -> Message:
    request = Message(topics=[Message(topic_name="__cluster_metadata", partitions=[Message(partition_index=0)])])
    partition: Message = (await member.running.receive(ApiKey.DESCRIBE_QUORUM, request)).topics[0].partitions[0]
    return partition


def test_a_request_of_another_cluster_is_refused() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.elect()
        partition = Message(partition_index=0, replica_epoch=99, replica_id=2, last_offset_epoch=98, last_offset=1000)
        topic = Message(topic_name="__cluster_metadata", partitions=[partition])
        for cluster_id, code in (("other", 104), (None, 0)):
            vote = Message(cluster_id=cluster_id, topics=[topic])
            assert (await leader.running.receive(ApiKey.VOTE, vote)).error_code == code
        assert leader.running.leader_epoch == 99

    Cluster(14).run(scenario)
