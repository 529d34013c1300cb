"""Each dynamic broker setting takes effect when it is changed at run time."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rookery.base.codes import ConfigOperation, ResourceType
from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.client import Producer
from rookery.client.admin import Admin, ConfigChange, ConfigResource
from rookery.client.cluster import Cluster
from rookery.storage.compaction import task
from rookery.storage.compaction.dedupe import OffsetMap
from rookery.storage.threads import map_in_threads
from tests.node.test_node import config, create, make_node, produce, running

ALL_BROKERS = ConfigResource(ResourceType.BROKER, "")
THIS_BROKER = ConfigResource(ResourceType.BROKER, "1")


async def alter(cluster: Cluster, key: str, value: str | None, resource: ConfigResource = ALL_BROKERS) -> None:
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    (outcome,) = await Admin.over(cluster).alter_configs({resource: [ConfigChange(key, operation, value)]})
    outcome.check()


async def is_admitted(cluster: Cluster) -> bool:
    """Return whether the node responds on a new connection."""
    address = cluster.settings.bootstrap_servers[0]
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        # ApiVersions v0, correlation id 7.
        writer.write(bytes.fromhex("0000000a 0012 0000 00000007 ffff"))
        return len(await reader.read(1)) == 1
    except ConnectionError:
        return False
    finally:
        writer.close()


@pytest.mark.parametrize("resource", [ALL_BROKERS, THIS_BROKER])
@pytest.mark.parametrize(
    ("key", "none", "some"),
    [
        ("max.connections", "0", "100"),
        ("listener.name.plaintext.max.connections", "0", "100"),
        ("max.connections.per.ip", "0", "100"),
        ("max.connections.per.ip.overrides", "127.0.0.1:0", "127.0.0.1:100,10.0.0.1:0"),
    ],
)
def test_limits_of_connections(tmp_path: Path, key: str, none: str, some: str, resource: ConfigResource) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            assert await is_admitted(cluster)
            for value, expected in ((none, False), (some, True), (none, False), (None, True)):
                # Sent over an existing connection, which stays open.
                await alter(cluster, key, value, resource)
                assert await is_admitted(cluster) is expected

    asyncio.run(scenario())


def test_limits_of_connections_hold_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            await alter(cluster, "max.connections", "1")
        async with running(tmp_path) as cluster:
            await Admin.over(cluster).list_topics()
            assert not await is_admitted(cluster)

    asyncio.run(scenario())


def test_invalid_limits_for_addresses_are_rejected(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            change = ConfigChange("max.connections.per.ip.overrides", ConfigOperation.SET, "127.0.0.1")
            (outcome,) = await Admin.over(cluster).alter_configs({ALL_BROKERS: [change]})
            assert outcome.error is ErrorCode.INVALID_REQUEST
            assert await is_admitted(cluster)

    asyncio.run(scenario())


def test_keys_of_one_listener_without_effect_are_rejected(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            for key in ("log.retention.ms", "max.connections.per.ip", "sasl.enabled.mechanisms"):
                change = ConfigChange(f"listener.name.plaintext.{key}", ConfigOperation.SET, "1")
                (outcome,) = await Admin.over(cluster).alter_configs({THIS_BROKER: [change]})
                assert outcome.error is ErrorCode.INVALID_REQUEST

    asyncio.run(scenario())


def test_producers_expire_earlier(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, "log.retention.check.interval.ms=20") as cluster:
            await create(cluster, "orders")
            await produce(cluster, "orders", "a")
            partition = TopicPartition("orders", 0)

            async def producers() -> int:
                found = await Admin.over(cluster).describe_producers([partition])
                return len(found[partition].producers)

            assert await producers() == 1
            await alter(cluster, "producer.id.expiration.ms", "1")
            while await producers():
                await asyncio.sleep(0.02)

    asyncio.run(scenario())


def test_the_cleaner_gets_another_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def spy(size_bytes: int, **more: Any) -> OffsetMap:
        sizes.append(size_bytes)
        return OffsetMap(size_bytes, **more)

    monkeypatch.setattr(task, "OffsetMap", spy)

    async def clean(cluster: Cluster) -> int:
        """Make a log dirty and return the size of the buffer that it is cleaned with."""
        before = len(sizes)
        async with Producer[bytes, bytes](config(cluster)) as producer:
            while len(sizes) == before:
                await (await producer.send("latest", bytes(100), key=b"k", partition=0))
                await asyncio.sleep(0.01)
        return sizes[before]

    async def scenario() -> None:
        async with running(tmp_path, "log.cleaner.backoff.ms=20") as cluster:
            await create(
                cluster,
                "latest",
                cleanup_policy="compact",
                internal_segment_bytes="300",
                min_cleanable_dirty_ratio="0.01",
            )
            assert await clean(cluster) == 134_217_728
            await alter(cluster, "log.cleaner.dedupe.buffer.size", "2000000")
            # A cleaning that was already running still uses the old size.
            while await clean(cluster) != 2_000_000:
                pass

    asyncio.run(scenario())


def test_logs_are_closed_and_recovered_by_another_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []
    original: Callable[..., Any] = map_in_threads

    def spy(*arguments: Any, threads: int) -> Any:
        used.append(threads)
        return original(*arguments, threads=threads)

    monkeypatch.setattr("rookery.storage.manager.map_in_threads", spy)

    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            await create(cluster, "orders")
            await alter(cluster, "num.recovery.threads.per.data.dir", "5")
            used.clear()
        assert used == [5], "at the stop"
        node = make_node(tmp_path)
        await node.start()
        await node.stop(clean=False)
        used.clear()
        node = make_node(tmp_path)
        await node.start()
        assert used == [5], "at the start after an unclean stop"
        await node.stop()

    asyncio.run(scenario())
