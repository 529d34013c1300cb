"""Log directories that get no new partitions (`cordoned.log.dirs`, KIP-1066)."""

import asyncio
from pathlib import Path

import pytest

from rookery.base.errors import ApiError, ConfigError, ErrorCode
from rookery.client.admin import Admin
from rookery.client.cluster import Cluster
from tests.node.test_node import create, make_node


def test_new_partitions_go_to_the_other_directories(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"

    async def scenario() -> None:
        node = make_node(tmp_path, f"log.dirs={a},{b}", f"cordoned.log.dirs={a}")
        await node.start()
        try:
            async with Cluster.at(node.address, timeout_s=60) as cluster:
                await create(cluster, "t", partitions=3)
                described = await Admin.over(cluster).describe_log_dirs([1])
        finally:
            await node.stop()
        assert {Path(each.path): each.is_cordoned for each in described} == {a: True, b: False}
        assert len(list(b.glob("t-*"))) == 3
        assert len(node._metadata.image.brokers[1].cordoned_directories or ()) == 1

    asyncio.run(scenario())


def test_a_broker_that_is_cordoned_as_a_whole_gets_no_replicas(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = make_node(tmp_path, "cordoned.log.dirs=*")
        await node.start()
        try:
            async with Cluster.at(node.address, timeout_s=60) as cluster:
                with pytest.raises(ApiError) as raised:
                    await create(cluster, "t")
        finally:
            await node.stop()
        assert raised.value.code is ErrorCode.INVALID_REPLICATION_FACTOR

    asyncio.run(scenario())


def test_cordoned_directories_are_log_directories(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cordoned.log.dirs must be \* or name some of log.dirs, got /elsewhere"):
        make_node(tmp_path, "cordoned.log.dirs=/elsewhere")
