"""Apache Kafka's dump tool reads Rookery's files: segments, indexes, producer snapshots, metadata log and snapshot."""

import asyncio
import re
import shutil
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.base.clock import SystemClock
from rookery.base.files import OsFiles
from rookery.metadata.loader import MetadataLoader
from rookery.metadata.snapshot import snapshot_values
from tests.conformance.clients import TIMEOUT_S
from tests.conformance.java_tools import run_tool
from tests.metadata.replay import replay
from tests.quorum.sole import close, open_sole_voter
from tests.support.broker import start_broker

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]
TOPIC = "dumped"
RECORDS = 2_000


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data directory of a broker that wrote several segments and stopped cleanly."""
    path = tmp_path_factory.mktemp("files") / "data"
    with start_broker(path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        topic = NewTopic(TOPIC, 1, config={"segment.bytes": "1048576", "index.interval.bytes": "1000"})
        admin.create_topics([topic])[TOPIC].result(TIMEOUT_S)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.address, "enable.idempotence": True, "batch.num.messages": 20}
        )
        for index in range(RECORDS):
            producer.produce(TOPIC, b"%d" % index + bytes(1000), b"key-%d" % index, partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        assert broker.stop() == 0
    return path


def dump(path: Path, *arguments: str) -> str:
    output = run_tool("dump-log", *arguments, "--files", str(path))
    assert "Exception" not in output
    assert "Found " not in output, output[-2000:]
    assert "Mismatches" not in output, output[-2000:]
    return output


def test_segments(data_dir: Path) -> None:
    segments = sorted((data_dir / f"{TOPIC}-0").glob("*.log"))
    assert len(segments) > 1
    keys = []
    for segment in segments:
        output = dump(segment, "--deep-iteration", "--print-data-log")
        assert "isvalid: true" in output
        assert "isvalid: false" not in output
        keys += re.findall(r"key: key-(\d+) ", output)
    assert keys == [str(index) for index in range(RECORDS)]


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_indexes(data_dir: Path, suffix: str) -> None:
    indexes = sorted((data_dir / f"{TOPIC}-0").glob(f"*.{suffix}"))
    assert len(indexes) > 1
    for index in indexes[:-1]:
        assert "passed sanity check" in dump(index, "--index-sanity-check")
        assert "offset: " in dump(index)


def test_producer_snapshots(data_dir: Path) -> None:
    snapshots = sorted((data_dir / f"{TOPIC}-0").glob("*.snapshot"))
    assert snapshots
    assert f"lastOffset: {RECORDS - 1}" in dump(snapshots[-1])


def test_the_metadata_log(data_dir: Path) -> None:
    segment = sorted((data_dir / "__cluster_metadata-0").glob("*.log"))[0]
    output = dump(segment, "--cluster-metadata-decoder")
    for record in ("REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD", "LeaderChange"):
        assert record in output
    assert f'"name":"{TOPIC}"' in output


def test_a_snapshot_of_the_metadata(data_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(data_dir, tmp_path / "data")
    driver = open_sole_voter(OsFiles(), tmp_path / "data", clock=SystemClock())
    loader = MetadataLoader()
    image = replay(loader, driver.batches()).image
    asyncio.run(driver.take_snapshot(image.offset + 1, snapshot_values(image)))
    close(driver)
    (path,) = (tmp_path / "data" / "__cluster_metadata-0").glob("*.checkpoint")
    output = dump(path, "--cluster-metadata-decoder")
    kinds = ("REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD", "FEATURE_LEVEL_RECORD")
    for record in (*kinds, "SnapshotHeader", "SnapshotFooter"):
        assert record in output
    assert f'"name":"{TOPIC}"' in output
