"""A voter whose disk was replaced under its old key: it does not vote until it has the log again (KAFKA-14077)."""

from random import Random

import pytest

from rookery.quorum.events import VoterWentBack
from tests.quorum.members import Cluster
from tests.quorum.replicas import Disk, World


def test_a_voter_with_a_new_disk_does_not_elect_a_leader_without_acknowledged_records() -> None:
    """A leader and one follower have acknowledged records; the follower loses its disk, and the leader is down."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.converge()
        leader = await cluster.elect()
        lost, late = (member for member in cluster.members.values() if member is not leader)
        late.kill()
        await cluster.append(5)
        leader.kill()
        lost.lose_disk()
        lost.boot()
        late.boot()
        with pytest.raises(TimeoutError):
            await cluster.elect(within_s=20)
        cluster.world.violations.found.clear()
        leader.boot()
        await cluster.converge()
        await cluster.until(lambda: not lost.running._core.state.must_catch_up)
        (await cluster.elect()).kill()
        await cluster.append()
        cluster.boot()
        await cluster.converge()

    Cluster(1).run(scenario)


def test_the_leader_reports_a_voter_that_went_back() -> None:
    world = World(3, jitter=Random(1).random).boot()
    world.run(10_000)
    (leader,) = world.leaders
    leader.propose("x")
    world.run(1000)
    lost = next(replica for replica in world.alive if replica is not leader)
    lost.kill()
    lost.disk = Disk()
    world.checks.forget(lost.node_id)
    lost.boot()
    world.run(10_000)
    assert leader.went_back == [VoterWentBack(lost.key, 0, 2)]
    assert lost.entries == leader.entries
    assert not lost.disk.state.must_catch_up
