"""What a start notices: every kind of file damaged, cut, emptied and removed, after a clean stop and after a kill.

The node serves everything that it served before, or it refuses to start and leaves the files alone, or it says which
part is missing. It never serves less without a word.
"""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rookery.base.types import TopicPartition
from rookery.client import Producer
from rookery.client.cluster import Cluster
from rookery.storage.checkpoints import COMMITTED_FILE
from tests.broker.harness import UnsyncedFiles
from tests.node.damage import (
    Harm,
    Observation,
    contents_of,
    cut,
    flip,
    harms_of_log,
    harms_of_small_file,
    observe,
    remove,
)
from tests.node.test_node import config, create, make_node
from tests.support.logs import quiet_logs

METADATA_LOG = "__cluster_metadata-0/00000000000000000000.log"


class Sample(NamedTuple):
    """A data directory with topics and records, and what a node serves from it."""

    path: Path
    expected: Observation


async def produce_apart(cluster: Cluster, topic: str, *values: bytes) -> None:
    """Each record in a batch of its own."""
    async with Producer[bytes, bytes](config(cluster)) as producer:
        for value in values:
            await (await producer.send(topic, value, partition=0))


def build(path: Path, *, clean: bool) -> Sample:
    async def scenario() -> None:
        # Checkpoints as after a minute of work, in the middle of it.
        node = make_node(path, files=UnsyncedFiles())
        await node.start()
        async with Cluster.at(node.address, timeout_s=60) as cluster:
            await create(cluster, "orders", internal_segment_bytes="300", retention_ms="-1")
            await create(cluster, "single", partitions=2)
            await produce_apart(cluster, "orders", *(b"%050d" % number for number in range(12)))
            await produce_apart(cluster, "single", b"a", b"b")
            assert node._logs is not None
            for log in node._logs:
                log.flush()
            node._logs.checkpoint()
            await produce_apart(cluster, "orders", b"last")
            # As every few seconds: it tells how far consumers could read, also beyond the recovery point.
            assert node._replicas is not None
            await node._replicas.checkpoint_high_watermarks()
        await node.stop(clean=clean)

    with quiet_logs():
        asyncio.run(scenario())
    copy = path.with_name(path.name + "-expected")
    shutil.copytree(path, copy)
    expected = observe(copy)
    assert expected.refusal is None
    assert not expected.told
    assert [offset for offset, _ in expected.records[TopicPartition("orders", 0)]] == list(range(13))
    return Sample(path, expected)


@pytest.fixture(scope="module", params=["clean", "killed"])
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return build(tmp_path_factory.mktemp("damage") / request.param, clean=request.param == "clean")


def silent_losses(sample: Sample, harms: Iterator[Harm]) -> list[str]:
    """What each harm made the node keep quiet about; with what it changed although it refused to start."""
    found = []
    for number, harm in enumerate(harms):
        target = sample.path.with_name(f"{sample.path.name}-{number}")
        shutil.copytree(sample.path, target)
        harm.do(target)
        before = contents_of(target)
        seen = observe(target)
        if seen.refusal is not None:
            if contents_of(target) != before:
                found.append(f"{harm}: refused, but changed files: {seen.refusal}")
        elif not seen.told and (seen.topics, seen.records) != (sample.expected.topics, sample.expected.records):
            found.append(f"{harm}: {seen.topics}, {seen.records}")
        elif any("-stray" in path.name for path in target.iterdir()):
            found.append(f"{harm}: a log was set aside")
        shutil.rmtree(target)
    return found


def test_damage_to_the_metadata_log(sample: Sample) -> None:
    assert silent_losses(sample, harms_of_log(sample.path, METADATA_LOG)) == []


def test_damage_to_a_log(sample: Sample) -> None:
    """A base offset is not covered by the batch's checksum: a flip there is found by `rookery log repair` only."""

    def harms() -> Iterator[Harm]:
        for path in sorted((sample.path / "orders-0").glob("*.log")):
            yield from harms_of_log(sample.path, f"orders-0/{path.name}", skipped=("base offset",))
        yield remove("orders-0")
        yield remove("single-1")

    assert silent_losses(sample, harms()) == []


def test_damage_to_the_files_beside_the_logs(sample: Sample) -> None:
    def harms() -> Iterator[Harm]:
        for path in sorted(sample.path.rglob("*")):
            if path.is_file() and path.suffix != ".log" and path.name != ".lock":
                yield from harms_of_small_file(sample.path, str(path.relative_to(sample.path)))

    assert silent_losses(sample, harms()) == []


def test_the_refusal_names_file_byte_offset_and_what_can_be_done(sample: Sample, tmp_path: Path) -> None:
    target = Path(shutil.copytree(sample.path, tmp_path / "data"))
    flip(METADATA_LOG, 70).do(target)
    refusal = observe(target).refusal
    assert refusal is not None
    assert f"{target / METADATA_LOG}, byte 0, offset 0" in refusal
    assert "nothing was cut or changed" in refusal
    assert f"rookery log repair {target}" in refusal
    assert "restore" in refusal


@pytest.mark.parametrize("harm", [cut(METADATA_LOG, 0), remove(METADATA_LOG), remove("__cluster_metadata-0")], ids=str)
@pytest.mark.parametrize("is_noted", [True, False])
def test_a_node_with_partitions_but_no_metadata_log_refuses(
    sample: Sample, tmp_path: Path, harm: Harm, is_noted: bool
) -> None:
    target = Path(shutil.copytree(sample.path, tmp_path / "data"))
    harm.do(target)
    if not is_noted:
        remove(COMMITTED_FILE).do(target)
    before = contents_of(target)
    refusal = observe(target).refusal
    assert refusal is not None
    assert "is missing or empty" in refusal
    assert contents_of(target) == before


def test_a_first_start_that_was_cut_short_is_no_loss(tmp_path: Path) -> None:
    """The identity is written before the metadata log."""
    first = build(tmp_path / "first", clean=True)
    target = tmp_path / "data"
    target.mkdir()
    shutil.copy(first.path / "meta.properties", target)
    assert observe(target).refusal is None
