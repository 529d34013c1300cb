"""`rookery log repair` on metadata with snapshots: what they replace is not lost, and the log fits them afterwards."""

import shutil
from pathlib import Path

import pytest

from rookery.client.cluster import Cluster
from rookery.node.node import Node
from rookery.records.batch import HEADER_SIZE, iterate_headers
from tests.cli.test_repair import plan, repair
from tests.node.damage import contents_of, observe
from tests.node.test_metadata_snapshots import METADATA, run, snapshots_of
from tests.node.test_node import create

TOPICS = frozenset({"first", "second", "last"})


def build(path: Path, *, is_cleaned: bool) -> Path:
    """Three topics, with a snapshot after the first and one after the second."""

    async def scenario(node: Node, cluster: Cluster) -> None:
        assert node._quorum is not None
        for name in ("first", "second"):
            await create(cluster, name)
            await snapshots_of(node).take()
        if is_cleaned:
            await node._quorum.clean(retention_bytes=0, retention_ms=-1)
        await create(cluster, "last")

    run(path, scenario)
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("repair") / "whole", is_cleaned=False)


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("repair") / "cleaned", is_cleaned=True)


def copy_of(source: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(source, tmp_path / "data"))


def segments_of(data_dir: Path) -> list[Path]:
    return sorted((data_dir / METADATA).glob("*.log"))


def destroy(path: Path, topic: bytes) -> None:
    """Overwrite the records of the batch that names a topic."""
    data = bytearray(path.read_bytes())
    for position, header in iterate_headers(bytes(data)):
        end = position + header.size_bytes
        if topic in data[position:end]:
            data[position + HEADER_SIZE : end] = b"\xff" * (end - position - HEADER_SIZE)
    path.write_bytes(data)


def test_healthy_directories(whole: Path, cleaned: Path) -> None:
    for path in (whole, cleaned):
        assert repair(path).exit_code == 0
        assert plan(path)["topics_without_metadata"] == []


def test_a_lost_batch_that_a_snapshot_replaces_costs_nothing(whole: Path, tmp_path: Path) -> None:
    data_dir = copy_of(whole, tmp_path)
    destroy(segments_of(data_dir)[0], b"first")
    assert observe(data_dir).startup_error is not None
    shown = plan(data_dir)
    assert [problem["remedy"] for problem in shown["logs"][0]["problems"]] == ["fill"]
    assert shown["topics_without_metadata"] == []
    assert repair(data_dir, "--execute").exit_code == 0
    seen = observe(data_dir)
    assert (seen.startup_error, seen.topics, seen.reported) == (None, TOPICS, [])


@pytest.mark.parametrize("slot", [0, 1])
@pytest.mark.parametrize("harm", ["missing", "cut", "empty"])
def test_a_segment_between_snapshots(whole: Path, tmp_path: Path, slot: int, harm: str) -> None:
    data_dir = copy_of(whole, tmp_path)
    path = segments_of(data_dir)[slot]
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-5] if harm == "cut" else b"")
    if observe(Path(shutil.copytree(data_dir, tmp_path / "before"))).startup_error is None:
        assert (slot, harm) == (0, "missing"), "it looks as after cleaning, and the snapshot has it all"
    else:
        assert repair(data_dir, "--execute").exit_code == 0
    seen = observe(data_dir)
    assert (seen.startup_error, seen.topics, seen.reported) == (None, TOPICS, [])


def test_a_log_that_ends_before_a_snapshot(whole: Path, tmp_path: Path) -> None:
    data_dir = copy_of(whole, tmp_path)
    for path in segments_of(data_dir)[1:]:
        path.unlink()
    assert repair(data_dir, "--execute").exit_code == 0
    seen = observe(data_dir)
    assert (seen.startup_error, seen.topics) == (None, frozenset({"first"}))
    (copies,) = data_dir.glob("*-repair")
    (moved,) = (copies / METADATA).glob("*.checkpoint")
    assert not (data_dir / METADATA / moved.name).exists()


def test_records_after_the_snapshot_of_a_cleaned_log(cleaned: Path, tmp_path: Path) -> None:
    data_dir = copy_of(cleaned, tmp_path)
    destroy(segments_of(data_dir)[-1], b"last")
    shown = plan(data_dir)
    assert shown["topics_without_metadata"] == ["last"]
    assert repair(data_dir, "--execute").exit_code == 0
    seen = observe(data_dir)
    assert (seen.startup_error, seen.topics) == (None, frozenset({"first", "second"}))


def test_a_cleaned_log_without_its_snapshot_cannot_be_repaired(cleaned: Path, tmp_path: Path) -> None:
    data_dir = copy_of(cleaned, tmp_path)
    for path in (data_dir / METADATA).glob("*.checkpoint"):
        path.unlink()
    before = contents_of(data_dir)
    result = repair(data_dir, "--execute")
    assert result.exit_code == 1
    assert "restore it from a copy" in result.output
    assert contents_of(data_dir) == before
