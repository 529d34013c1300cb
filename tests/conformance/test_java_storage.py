"""`rookery format` writes the files of kafka-storage: the same input gives the same records, and Java reads ours."""

import re
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from rookery.base.files import OsFiles
from rookery.metadata.features import SUPPORTED_FEATURES
from rookery.node.identity import read_stamp
from rookery.quorum.log_view import NOTHING
from rookery.quorum.snapshots import encode_snapshot, snapshot_name
from rookery.quorum.voters import Endpoint, ReplicaKey, Voter, VoterSet
from tests.conformance.java_tools import run_tool

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
ONE, TWO = "AAAAAAAAAAAAAAAAAAABAQ", "AAAAAAAAAAAAAAAAAAABAg"
INITIAL = ("--initial-controllers", f"1@127.0.0.1:9093:{ONE},2@127.0.0.1:9193:{TWO}")
DYNAMIC = "controller.quorum.bootstrap.servers=127.0.0.1:9093"
STATIC = "controller.quorum.voters=1@127.0.0.1:9093,2@127.0.0.1:9193"
FEATURES = tuple(
    argument
    for feature in SUPPORTED_FEATURES
    for argument in ("--feature", f"{feature.name}={feature.max_supported_version}")
)
# The features that only Kafka has: it must not switch them on.
KAFKA_ONLY = tuple(
    argument
    for name in ("eligible.leader.replicas.version", "share.version", "streams.version")
    if all(feature.name != name for feature in SUPPORTED_FEATURES)
    for argument in ("--feature", f"{name}=0")
)


def write_config(directory: Path, quorum: str) -> Path:
    directory.mkdir()
    path = directory / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
        f"log.dirs={directory / 'a'},{directory / 'b'}\n{quorum}\n"
    )
    return path


def format_with_rookery(config: Path, *options: str) -> None:
    command = [sys.executable, "-m", "rookery.cli.main", "format", "--cluster-id", CLUSTER_ID, "--config", str(config)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def format_with_kafka(config: Path, *options: str) -> None:
    run_tool("storage", "format", "--cluster-id", CLUSTER_ID, "--config", str(config), *options)


def files_below(directory: Path) -> dict[str, Path]:
    found = (file for name in ("a", "b") for file in (directory / name).rglob("*"))
    return {str(file.relative_to(directory)): file for file in found if file.is_file() and file.name != ".lock"}


def dump(file: Path) -> str:
    """Return what kafka-dump-log shows, without the path, times and checksums."""
    text = run_tool("dump-log", "--cluster-metadata-decoder", "--files", str(file))
    text = text.replace(str(file), "FILE")
    return re.sub(r"(CreateTime: |crc: |LogTimestamp\":)\d+", r"\1N", text)


@pytest.mark.parametrize(
    ("quorum", "options"),
    [(STATIC, ()), (DYNAMIC, ("--standalone",)), (DYNAMIC, INITIAL), (DYNAMIC, ("--no-initial-controllers",))],
    ids=["static", "standalone", "initial", "later"],
)
def test_the_files_are_those_of_kafka(tmp_path: Path, quorum: str, options: tuple[str, ...]) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    format_with_rookery(write_config(ours, quorum), *options, *FEATURES)
    format_with_kafka(write_config(theirs, quorum), *options, *FEATURES, *KAFKA_ONLY)
    mine, expected = files_below(ours), files_below(theirs)
    assert set(mine) == set(expected)
    stamps = {path: read_stamp(OsFiles(), path / "a") or {} for path in (ours, theirs)}
    for key in ("cluster.id", "node.id", "version"):
        assert stamps[ours][key] == stamps[theirs][key]
    if options is INITIAL:
        assert stamps[ours]["directory.id"] == stamps[theirs]["directory.id"] == ONE
    for name in mine:
        if name.endswith(".checkpoint"):
            text = dump(mine[name]).replace(stamps[ours]["directory.id"], "DIRECTORY")
            assert text == dump(expected[name]).replace(stamps[theirs]["directory.id"], "DIRECTORY")


def test_kafka_reads_voters_of_which_some_were_removed(tmp_path: Path) -> None:
    voters = VoterSet([Voter(ReplicaKey(1, UUID(int=7)), {"CONTROLLER": Endpoint("one", 9093)})])
    shown = []
    for removed in ((), (ReplicaKey(2, UUID(int=8)), ReplicaKey(3, UUID(int=9)))):
        batches = encode_snapshot((), 0, last_timestamp_ms=0, now_ms=0, voters=VoterSet(voters, removed))
        (tmp_path / str(len(removed))).mkdir()
        file = tmp_path / str(len(removed)) / snapshot_name(NOTHING)
        file.write_bytes(b"".join(batches))
        shown.append(re.sub(r"(?i)(size|position): \d+|isvalid: \w+", "", dump(file)))
    assert "KRaftVoters" in shown[0]
    assert shown[0] == shown[1]


def test_kafka_recognises_formatted_directories(tmp_path: Path) -> None:
    config = write_config(tmp_path / "node", DYNAMIC)
    format_with_rookery(config, "--standalone")
    shown = run_tool("storage", "info", "--config", str(config))
    assert f"cluster.id={CLUSTER_ID}" in shown
    assert "problem" not in shown.lower()
    again = run_tool("storage", "format", "-t", CLUSTER_ID, "-c", str(config), "--standalone", "--ignore-formatted")
    assert "All of the log directories are already formatted" in again


def test_rookery_recognises_directories_of_kafka(tmp_path: Path) -> None:
    config = write_config(tmp_path / "node", DYNAMIC)
    format_with_kafka(config, "--standalone")
    format_with_rookery(config, "--standalone", "--ignore-formatted")
