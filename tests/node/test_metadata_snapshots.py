"""Snapshots of a node's metadata: when they are taken, and what a start makes of them and of old directories."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rookery.base.clock import ManualClock
from rookery.base.files import OsFiles
from rookery.client.admin import Admin
from rookery.client.cluster import Cluster
from rookery.metadata.image import ClusterImage
from rookery.metadata.loader import MetadataLoader
from rookery.node.metadata_snapshots import MetadataSnapshots, metadata_log_config
from rookery.node.node import Node
from rookery.storage.names import METADATA_PARTITION
from tests.broker.harness import UnsyncedFiles
from tests.metadata.replay import replay
from tests.node.damage import contents_of, harms_of_log, harms_of_small_file, observe
from tests.node.test_damage import Sample, produce_apart, silent_losses
from tests.node.test_node import create, make_node
from tests.quorum.sole import close, open_sole_voter
from tests.support.logs import quiet_logs

Scenario = Callable[[Node, Cluster], Awaitable[None]]
METADATA = str(METADATA_PARTITION)


def run(path: Path, scenario: Scenario, *settings: str, files: OsFiles | None = None) -> None:
    async def main() -> None:
        node = make_node(path, *settings, files=files or UnsyncedFiles())
        await node.start()
        try:
            async with Cluster.at(node.address, timeout_s=60) as cluster:
                await scenario(node, cluster)
        finally:
            await node.stop()

    with quiet_logs():
        asyncio.run(main())


def snapshots_of(node: Node) -> MetadataSnapshots:
    assert node._quorum is not None
    assert node._logs is not None
    return node._metadata_snapshots(node._quorum, node._logs)


async def delete(cluster: Cluster, name: str) -> None:
    (outcome,) = await Admin.over(cluster).delete_topics([name])
    outcome.check()


def load(path: Path) -> ClusterImage:
    """The image that a start on these files would begin with."""
    driver = open_sole_voter(OsFiles(), path)
    loader, loaded = MetadataLoader(), driver.take_loaded()
    if loaded is not None:
        replay(loader, driver.batches(), snapshot=loaded.values, snapshot_end=loaded.position.offset)
    else:
        replay(loader, driver.batches())
    close(driver)
    return loader.image


def test_a_restart_equals_a_replay_of_the_whole_log(tmp_path: Path) -> None:
    async def scenario(node: Node, cluster: Cluster) -> None:
        await create(cluster, "kept", partitions=3, retention_ms="5")
        await create(cluster, "gone")
        await delete(cluster, "gone")
        await snapshots_of(node).take()
        await create(cluster, "later")

    path = tmp_path / "data"
    run(path, scenario)
    whole = Path(shutil.copytree(path, tmp_path / "whole"))
    (snapshot,) = (whole / METADATA).glob("*.checkpoint")
    snapshot.unlink()
    image = load(path)
    assert image == load(whole)
    assert {"kept", "later"} <= image.topics.keys()
    assert observe(path).topics == observe(whole).topics


def test_when_a_snapshot_is_due(tmp_path: Path) -> None:
    async def scenario(node: Node, cluster: Cluster) -> None:
        assert node._quorum is not None
        clock = ManualClock()

        def job(**limits: int) -> MetadataSnapshots:
            node._environment = replace(node._environment, clock=clock)
            snapshots = snapshots_of(node)
            for name, value in limits.items():
                setattr(snapshots, f"_{name}", value)
            return snapshots

        taken = [node._quorum.snapshot_end]

        async def takes(snapshots: MetadataSnapshots) -> bool:
            await snapshots.run()
            taken.append(node._quorum.snapshot_end if node._quorum is not None else 0)
            return taken[-1] > taken[-2]

        by_time, by_size = job(), job(bytes_max=1000, interval_ms=0)
        assert not await takes(by_time)
        assert not await takes(by_size)
        clock.advance(3_599_999)
        assert not await takes(by_time)
        clock.advance(1)
        assert await takes(by_time)
        clock.advance(3_600_000)
        assert not await takes(by_time), "there is no news"
        await create(cluster, "one")
        assert await takes(by_time)
        for number in range(12):
            assert not await takes(by_size), number
            await create(cluster, f"topic{number}")
            if node._quorum.bytes_since_snapshot() >= 1000:
                break
        assert await takes(by_size)

    run(tmp_path, scenario)


def test_the_job_runs_by_itself_and_the_settings_reach_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.node.metadata_snapshots._CHECK_MS", 20)

    async def scenario(node: Node, cluster: Cluster) -> None:
        config = metadata_log_config(node._settings.layers)
        assert (config.segment_bytes, config.segment_ms) == (9_000_000, 5000)
        for number in range(100):
            await create(cluster, f"topic{number}")
            names = {name.name for name in (tmp_path / METADATA).glob("*.log")}
            if "00000000000000000000.log" not in names:
                return
            await asyncio.sleep(0.02)
        raise AssertionError("the log was never cleaned")

    limits = ("metadata.log.max.record.bytes.between.snapshots=500", "metadata.max.retention.bytes=2000")
    run(tmp_path, scenario, *limits, "metadata.log.segment.bytes=9000000", "metadata.log.segment.ms=5000")
    seen = observe(tmp_path)
    assert seen.startup_error is None
    assert "topic0" in seen.topics


class RecordingFiles(UnsyncedFiles):
    """Notes in which order names are synced and given."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def sync_directory(self, path: Path) -> None:
        self.calls.append(f"sync {path.name}")

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        kind = next((end for end in ("-delete", ".checkpoint") if target.name.endswith(end)), None)
        if kind is not None:
            self.calls.append(f"rename {kind}")


def test_the_names_of_removed_logs_are_synced_before_the_snapshot(tmp_path: Path) -> None:
    """Without this, a crash could bring a directory back, and no later start would find the removal of its topic."""
    files = RecordingFiles()

    async def scenario(node: Node, cluster: Cluster) -> None:
        await create(cluster, "gone")
        await delete(cluster, "gone")
        await snapshots_of(node).take()

    run(tmp_path / "data", scenario, files=files)
    renamed, taken = files.calls.index("rename -delete"), files.calls.index("rename .checkpoint")
    assert "sync data" in files.calls[renamed:taken]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_directory_of_a_removed_topic_comes_back(tmp_path: Path, is_known: bool) -> None:
    """Known to be removed, it is renamed. Unknown, it may be all that is left of a topic: it stays, and is reported."""
    path, aside = tmp_path / "data", tmp_path / "aside"

    async def scenario(node: Node, cluster: Cluster) -> None:
        await create(cluster, "other")
        await create(cluster, "gone")
        await produce_apart(cluster, "gone", b"record")
        if is_known:
            await snapshots_of(node).take()
        shutil.copytree(path / "gone-0", aside)
        await delete(cluster, "gone")
        if not is_known:
            await snapshots_of(node).take()

    run(path, scenario)
    shutil.copytree(aside, path / "gone-0")
    seen = observe(path)
    assert seen.topics == {"other"}
    assert (path / "gone-0").exists() is not is_known
    assert bool(list(path.glob("gone-0.*-stray"))) is is_known
    assert any("gone-0" in line for line in seen.reported) is not is_known


@pytest.fixture(scope="module", params=["whole", "cleaned"])
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """A directory with two snapshots and the whole log, or with one snapshot and the log after it."""
    path: Path = tmp_path_factory.mktemp("snapshots") / request.param

    async def scenario(node: Node, cluster: Cluster) -> None:
        assert node._quorum is not None
        await create(cluster, "orders", retention_ms="-1")
        await snapshots_of(node).take()
        await create(cluster, "single")
        await snapshots_of(node).take()
        if request.param == "cleaned":
            await node._quorum.clean(retention_bytes=0, retention_ms=-1)
        await create(cluster, "last")
        await produce_apart(cluster, "orders", b"a", b"b")

    run(path, scenario)
    expected = observe(Path(shutil.copytree(path, path.with_name("expected"))))
    assert expected.topics == {"orders", "single", "last"}
    return Sample(path, expected)


# A hundred and more starts: half a minute on a busy machine, and several times that on one that stalls.
@pytest.mark.timeout(900)
def test_damage_to_logs_and_snapshots(sample: Sample) -> None:
    directory = sample.path / METADATA
    for path in sorted([*directory.glob("*.log"), *directory.glob("*.checkpoint")]):
        relative = f"{METADATA}/{path.name}"
        if path.stat().st_size:
            assert silent_losses(sample, harms_of_log(sample.path, relative)) == []
    others = [path for path in directory.iterdir() if path.suffix not in (".log", ".checkpoint")]
    for path in sorted(others):
        assert silent_losses(sample, harms_of_small_file(sample.path, f"{METADATA}/{path.name}")) == []


def test_the_refusal_of_a_cleaned_log_without_its_snapshot(sample: Sample, tmp_path: Path) -> None:
    target = Path(shutil.copytree(sample.path, tmp_path / "data"))
    for path in (target / METADATA).glob("*.checkpoint"):
        path.write_bytes(b"")
    before = contents_of(target)
    seen = observe(target)
    if sample.path.name == "whole":
        assert (seen.startup_error, seen.topics) == (None, sample.expected.topics)
        assert any("a metadata snapshot is damaged and not used" in line for line in seen.reported)
    else:
        assert seen.startup_error is not None
        assert "was removed because a snapshot replaces it" in seen.startup_error
        assert contents_of(target) == before
