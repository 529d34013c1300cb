"""Detection of damage at start: every kind of file is damaged, cut, emptied and removed, after a clean stop or a kill.

The node serves everything that it served before, or it fails to start and leaves the files unchanged, or it reports
which part is missing. It never serves less without reporting it.
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
    """A data directory with topics and records, and the observation of a node that serves it undamaged."""

    path: Path
    expected: Observation


async def produce_apart(cluster: Cluster, topic: str, *values: bytes) -> None:
    """Produce each record in its own batch."""
    async with Producer[bytes, bytes](config(cluster)) as producer:
        for value in values:
            await (await producer.send(topic, value, partition=0))


def build(path: Path, *, clean: bool) -> Sample:
    async def scenario() -> None:
        # Checkpoints are written in the middle of the work, as the periodic job does every minute.
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
            # As the periodic job does every few seconds: consumers could read up to the high watermark, which may be
            # after the recovery point.
            assert node._broker is not None
            await node._broker.replicas.checkpoint_high_watermarks()
        await node.stop(clean=clean)

    with quiet_logs():
        asyncio.run(scenario())
    copy = path.with_name(path.name + "-expected")
    shutil.copytree(path, copy)
    expected = observe(copy)
    assert expected.startup_error is None
    assert not expected.reported
    assert [offset for offset, _ in expected.records[TopicPartition("orders", 0)]] == list(range(13))
    return Sample(path, expected)


@pytest.fixture(scope="module", params=["clean", "killed"])
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return build(tmp_path_factory.mktemp("damage") / request.param, clean=request.param == "clean")


def silent_losses(sample: Sample, harms: Iterator[Harm]) -> list[str]:
    """Return the harms after which the node served less without an error, or failed to start but changed files."""
    found = []
    for number, harm in enumerate(harms):
        target = sample.path.with_name(f"{sample.path.name}-{number}")
        shutil.copytree(sample.path, target)
        harm.do(target)
        before = contents_of(target)
        seen = observe(target)
        if seen.startup_error is not None:
            if contents_of(target) != before:
                found.append(f"{harm}: the start failed, but changed files: {seen.startup_error}")
        elif not seen.reported and (seen.topics, seen.records) != (sample.expected.topics, sample.expected.records):
            found.append(f"{harm}: {seen.topics}, {seen.records}")
        elif any("-stray" in path.name for path in target.iterdir()):
            found.append(f"{harm}: a log was set aside")
        shutil.rmtree(target)
    return found


def test_damage_to_the_metadata_log(sample: Sample) -> None:
    assert silent_losses(sample, harms_of_log(sample.path, METADATA_LOG)) == []


def test_damage_to_a_log(sample: Sample) -> None:
    """The checksum of a batch does not cover its base offset: only `rookery log repair` finds a flip there."""

    def harms() -> Iterator[Harm]:
        for path in sorted((sample.path / "orders-0").glob("*.log")):
            yield from harms_of_log(sample.path, f"orders-0/{path.name}", skipped=("base offset",))
        yield remove("orders-0")
        yield remove("single-1")

    assert silent_losses(sample, harms()) == []


def test_damage_to_the_other_files(sample: Sample) -> None:
    def harms() -> Iterator[Harm]:
        for path in sorted(sample.path.rglob("*")):
            if path.is_file() and path.suffix != ".log" and path.name != ".lock":
                yield from harms_of_small_file(sample.path, str(path.relative_to(sample.path)))

    assert silent_losses(sample, harms()) == []


def test_the_startup_error_names_file_byte_offset_and_remedies(sample: Sample, tmp_path: Path) -> None:
    target = Path(shutil.copytree(sample.path, tmp_path / "data"))
    flip(METADATA_LOG, 70).do(target)
    startup_error = observe(target).startup_error
    assert startup_error is not None
    assert f"{target / METADATA_LOG}, byte 0, offset 0" in startup_error
    assert "nothing was cut or changed" in startup_error
    assert f"rookery log repair {target}" in startup_error
    assert "restore" in startup_error


@pytest.mark.parametrize("harm", [cut(METADATA_LOG, 0), remove(METADATA_LOG), remove("__cluster_metadata-0")], ids=str)
@pytest.mark.parametrize("is_noted", [True, False])
def test_a_node_with_partitions_but_no_metadata_log_does_not_start(
    sample: Sample, tmp_path: Path, harm: Harm, is_noted: bool
) -> None:
    target = Path(shutil.copytree(sample.path, tmp_path / "data"))
    harm.do(target)
    if not is_noted:
        remove(COMMITTED_FILE).do(target)
    before = contents_of(target)
    startup_error = observe(target).startup_error
    assert startup_error is not None
    assert "is missing or empty" in startup_error
    assert contents_of(target) == before


def test_a_first_start_that_was_interrupted_is_no_loss(tmp_path: Path) -> None:
    """The identity is written before the metadata log, so that there may be an identity without a log."""
    first = build(tmp_path / "first", clean=True)
    target = tmp_path / "data"
    target.mkdir()
    shutil.copy(first.path / "meta.properties", target)
    assert observe(target).startup_error is None
