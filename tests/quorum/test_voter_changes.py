"""Voters that come and go while the quorum works (KIP-853)."""

import asyncio
from uuid import UUID

import pytest

from rookery.base.errors import ApiError, ErrorCode, NotControllerError
from rookery.base.types import NodeId
from rookery.metadata.features import KRAFT_VERSIONS
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.quorum.roles import Leader
from rookery.quorum.voters import Endpoint, ReplicaKey, Voter
from tests.quorum.members import CLUSTER_ID, PORT, Cluster, Member, host_of
from tests.quorum.test_cluster import snapshot_all


def voter_ids(member: Member) -> set[NodeId]:
    return {key.node_id for key in member.running.voters.keys}


async def change(member: Member, api_key: ApiKey, **fields: object) -> ErrorCode:
    request = Message(cluster_id=CLUSTER_ID, **fields)
    task = member._world.loop.spawn(member.process, member.running.receive(api_key, request))
    return ErrorCode((await task).error_code)


async def add(
    leader: Member,
    node_id: NodeId,
    *,
    directory_id: int | None = None,
    port: int = PORT,
    listener: str = "CONTROLLER",
) -> ErrorCode:
    endpoint = Message(name=listener, host=host_of(node_id), port=port)
    return await change(
        leader,
        ApiKey.ADD_RAFT_VOTER,
        timeout_ms=5000,
        voter_id=node_id,
        voter_directory_id=UUID(int=directory_id or node_id),
        listeners=[endpoint],
    )


async def remove(leader: Member, node_id: NodeId, *, directory_id: int | None = None) -> ErrorCode:
    directory = UUID(int=directory_id or node_id)
    return await change(leader, ApiKey.REMOVE_RAFT_VOTER, voter_id=node_id, voter_directory_id=directory)


def test_formatted_voters_are_in_the_log_and_in_snapshots() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.converge()
        assert all(voter_ids(member) == {1, 2, 3} for member in cluster.up), "a node without voters learns them"
        await snapshot_all(cluster)
        for member in cluster.members.values():
            member.kill()
        await asyncio.sleep(1)
        cluster.boot()
        await cluster.converge()
        assert all(voter_ids(member) == {1, 2, 3} for member in cluster.up)

    Cluster(1, spare=1, observers=1, is_dynamic=True).run(scenario)


def test_a_standalone_controller_grows_to_three_voters_and_loses_its_first() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.converge()
        for node_id in (2, 3):
            await asyncio.sleep(2)
            assert await add(await cluster.elect(), node_id) is ErrorCode.NONE
            await cluster.append()
        await cluster.converge()
        assert all(voter_ids(member) == {1, 2, 3} for member in cluster.up)
        cluster.members[1].kill()
        await cluster.append(3)
        leader = await cluster.elect()
        assert await remove(leader, 1) is ErrorCode.NONE
        await cluster.append()
        assert voter_ids(leader) == {2, 3}
        cluster.boot()
        await cluster.converge()
        assert cluster.members[1].running.leader_id in (2, 3), "it follows as an observer"

    Cluster(2, 1, spare=2, is_dynamic=True).run(scenario)


def test_a_leader_that_is_removed_leads_until_the_commit_and_then_follows() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.converge()
        leader = await cluster.elect()
        assert await remove(leader, leader.node_id) is ErrorCode.NONE
        await cluster.until(lambda: cluster.leader() not in (None, leader), within_s=5)
        await cluster.converge()
        await asyncio.sleep(10)
        assert not leader.is_leading
        assert leader.node_id not in voter_ids(leader)

    for size in (2, 3):
        Cluster(3, size, is_dynamic=True).run(scenario)


def test_what_is_refused() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.converge()
        await asyncio.sleep(2)
        leader = await cluster.elect()
        follower = next(member for member in cluster.up if member is not leader)
        assert await add(follower, 4) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await add(leader, 3) is ErrorCode.DUPLICATE_VOTER
        assert await add(leader, 9) is ErrorCode.REQUEST_TIMED_OUT, "it has never fetched"
        assert await add(leader, 4, directory_id=44) is ErrorCode.REQUEST_TIMED_OUT, "another disk has"
        assert await remove(leader, 4) is ErrorCode.VOTER_NOT_FOUND
        assert await remove(leader, 3, directory_id=33) is ErrorCode.VOTER_NOT_FOUND
        assert await add(leader, 4) is ErrorCode.NONE
        first, second = await asyncio.gather(remove(leader, 4), remove(leader, follower.node_id))
        assert first is ErrorCode.NONE
        assert second is ErrorCode.REQUEST_TIMED_OUT, "one change at a time"
        await cluster.converge()

    Cluster(4, spare=1, is_dynamic=True).run(scenario)


def test_a_new_voter_must_support_the_level_of_the_voters() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.converge()
        await asyncio.sleep(2)
        leader, new = await cluster.elect(), cluster.members[4]
        assert await add(leader, 4, listener="INTERNAL") is ErrorCode.INVALID_REQUEST, "no endpoint for the voters"
        assert await add(leader, 4, port=9999) is ErrorCode.REQUEST_TIMED_OUT, "no node is there"
        new.kraft_versions = (0, 0)
        assert await add(leader, 4) is ErrorCode.INVALID_REQUEST
        assert voter_ids(leader) == {1, 2, 3}
        new.kraft_versions = (1, 2)
        assert await add(leader, 4) is ErrorCode.NONE
        (voter,) = [voter for voter in leader.running.voters if voter.key.node_id == 4]
        assert voter.kraft_versions == (1, 2)
        # It reports what it supports itself.
        await cluster.until(lambda: all(voter.kraft_versions == KRAFT_VERSIONS for voter in leader.running.voters))
        await cluster.converge()

    Cluster(9, spare=1, is_dynamic=True).run(scenario)


def test_static_voters_cannot_be_changed() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.converge()
        assert await add(await cluster.elect(), 4) is ErrorCode.UNSUPPORTED_VERSION

    Cluster(5, spare=1).run(scenario)


def test_an_uncommitted_change_is_rolled_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.converge()
        await asyncio.sleep(2)
        old = await cluster.elect()
        for node_id in {1, 2, 3} - {old.node_id}:
            cluster.world.network.cut(old.name, host_of(node_id))
        assert await add(old, 4) in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT)
        assert voter_ids(old) == {1, 2, 3, 4}, "in force when it is appended"
        await cluster.until(lambda: cluster.leader() not in (None, old))
        await cluster.append(2)
        cluster.world.network.heal()
        await cluster.converge()
        assert all(voter_ids(member) == {1, 2, 3} for member in cluster.up)

    Cluster(6, spare=1, is_dynamic=True).run(scenario)


def test_a_controller_with_a_new_disk_joins_by_itself() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.converge()
        lost = next(member for member in cluster.up if member is not cluster.leader())
        lost.lose_disk()
        await cluster.append(2)
        lost.directory_id, lost.joins = UUID(int=99), True
        lost.boot()
        await cluster.converge()
        await cluster.until(lambda: lost.running._core.is_voter, within_s=20)
        await cluster.converge()
        (voter,) = [voter for voter in lost.running.voters if voter.key.node_id == lost.node_id]
        assert voter.key.directory_id == UUID(int=99)

    Cluster(7, is_dynamic=True).run(scenario)


def test_a_removed_voter_does_not_join_by_itself_until_it_is_added_again() -> None:
    """The removal survives snapshots and restarts (KAFKA-19850)."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.converge()
        await asyncio.sleep(2)
        leader, node_id = await cluster.elect(), 3
        if leader.node_id == node_id:
            node_id = 2
        assert await remove(leader, node_id) is ErrorCode.NONE
        for _ in range(2):
            await asyncio.sleep(10)
            assert all(node_id not in voter_ids(member) for member in cluster.up)
            await snapshot_all(cluster)
            for member in cluster.members.values():
                member.kill()
            cluster.boot()
            await cluster.converge()
        await asyncio.sleep(5)
        assert await add(await cluster.elect(), node_id) is ErrorCode.NONE
        await cluster.converge()
        assert all(not member.running.voters.removed for member in cluster.up)

    cluster = Cluster(13, is_dynamic=True)
    for member in cluster.members.values():
        member.joins = True
    cluster.run(scenario)


def test_a_voter_that_moved_tells_the_leader() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.converge()
        for node_id in (1, 2, 3):
            member = cluster.members[node_id]
            member.kill()
            member.port = 9193
            member.boot()
            await cluster.converge()
            await asyncio.sleep(5)
        leader = await cluster.elect()
        ports = {voter.endpoints["CONTROLLER"].port for voter in leader.running.voters}
        assert ports == {9193}

    Cluster(8, is_dynamic=True).run(scenario)


def reports(leader: Member) -> dict[NodeId, Voter]:
    """Return what static voters have reported to the leader."""
    role = leader.running._core.role
    assert isinstance(role, Leader)
    return role.reported


async def upgrade(leader: Member, *, validate_only: bool = False) -> None:
    driver = leader.running
    work = driver.upgrade_kraft_version(epoch=driver.leader_epoch, validate_only=validate_only)
    await leader._world.loop.spawn(leader.process, work)


def test_static_voters_become_dynamic() -> None:
    """The level and the voters with their directories are in the log, and survive restarts and snapshots."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.converge()
        leader = await cluster.elect()
        await cluster.until(lambda: len(reports(leader)) == 2)
        await upgrade(leader, validate_only=True)
        assert leader.running.kraft_version == 0
        await upgrade(leader)
        end_offset = leader.running.next_offset
        await upgrade(leader)
        assert leader.running.next_offset == end_offset, "there is nothing to do the second time"
        await cluster.converge()
        for restart in range(3):
            assert {member.running.kraft_version for member in cluster.up} == {1}
            assert {voter.key.directory_id.int for voter in leader.running.voters} == {1, 2, 3}
            if restart == 1:
                await snapshot_all(cluster)
            for member in cluster.members.values():
                member.kill()
            cluster.boot()
            await cluster.converge()
        await asyncio.sleep(2)
        leader = await cluster.elect()
        assert await add(leader, 4) is ErrorCode.NONE
        assert await remove(leader, next(node for node in (1, 2, 3) if node != leader.node_id)) is ErrorCode.NONE
        await cluster.converge()

    Cluster(10, spare=1, observers=1).run(scenario)


def test_an_upgrade_needs_reports_of_all_voters() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.converge()
        leader = await cluster.elect()
        silent = next(member for member in cluster.up if member is not leader)
        silent.kill()
        await cluster.append()
        reports(leader).pop(silent.node_id, None)
        with pytest.raises(ApiError, match=f"does not know the directories of the voters {silent.node_id}: all voters"):
            await upgrade(leader)
        silent.boot()
        await cluster.converge()
        # A voter that follows the same leader after its restart reports to it again.
        await cluster.until(lambda: silent.node_id in reports(leader))
        reports(leader)[silent.node_id] = Voter(
            ReplicaKey(silent.node_id, silent.directory_id), {"CONTROLLER": Endpoint("old", 1)}, (0, 0)
        )
        with pytest.raises(ApiError, match=f"voter {silent.node_id} supports levels 0 to 0"):
            await upgrade(leader)
        assert leader.running.kraft_version == 0

    Cluster(11).run(scenario)


def test_an_upgrade_that_is_not_committed_is_rolled_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.converge()
        old = await cluster.elect()
        await cluster.until(lambda: len(reports(old)) == 2)
        for other in cluster.members.values():
            if other is not old:
                cluster.world.network.cut(old.name, other.name)
        with pytest.raises(NotControllerError):
            await upgrade(old)
        assert old.running.kraft_version == 1, "in force when it is appended"
        await cluster.until(lambda: cluster.leader() not in (None, old))
        await cluster.append(2)
        cluster.world.network.heal()
        await cluster.converge()
        assert old.running.kraft_version == 0
        assert await add(await cluster.elect(), 4) is ErrorCode.UNSUPPORTED_VERSION

    Cluster(12).run(scenario)
