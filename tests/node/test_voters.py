"""The voters of a running cluster move from the configuration into the metadata log, and can be changed then."""

import asyncio

import pytest

from rookery.base.codes import UpgradeType
from rookery.base.errors import ApiError, ErrorCode
from rookery.client.admin import Admin
from rookery.testing import EmbeddedCluster
from tests.support.waiting import eventually

TIMEOUT_S = 30


async def level(cluster: EmbeddedCluster, node: int) -> int | None:
    async with Admin({"bootstrap.servers": cluster.address(node)}) as admin:
        found = (await admin.describe_features()).features
    return next(feature.level for feature in found if feature.name == "kraft.version")


async def change(cluster: EmbeddedCluster, wanted: int, kind: UpgradeType) -> ErrorCode:
    async with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        try:
            await admin.update_features({"kraft.version": wanted}, kind)
        except ApiError as error:
            return error.code
    return ErrorCode.NONE


async def remove(cluster: EmbeddedCluster, node: int) -> list[int]:
    async with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        (voter,) = [voter for voter in (await admin.describe_quorum()).voters if voter.node_id == node]
        await admin.remove_raft_voter(node, voter.directory_id)
        return sorted(voter.node_id for voter in (await admin.describe_quorum()).voters)


@pytest.mark.timeout(300)
def test_static_voters_become_dynamic_and_one_is_removed() -> None:
    with EmbeddedCluster(brokers=3) as cluster:
        assert asyncio.run(level(cluster, 1)) == 0
        # All voters must have reported to the leader.
        eventually(
            lambda: asyncio.run(change(cluster, 1, UpgradeType.UPGRADE)) is ErrorCode.NONE,
            "the voters are in the log",
            timeout_s=TIMEOUT_S,
        )
        assert asyncio.run(change(cluster, 0, UpgradeType.UNSAFE_DOWNGRADE)) is ErrorCode.INVALID_UPDATE_VERSION
        leader = cluster.controller()
        follower = next(node for node in cluster.nodes if node != leader)
        cluster.restart(follower, clean=False)
        assert [asyncio.run(level(cluster, node)) for node in cluster.nodes] == [1, 1, 1]
        assert asyncio.run(remove(cluster, follower)) == [node for node in cluster.nodes if node != follower]
        cluster.produce("t", "served with two voters")
