"""`rookery log repair` on directories that were damaged on purpose; a broker then shows what is left."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rookery.base.files import OsFiles
from rookery.base.types import TopicPartition
from rookery.cli.commands import app
from rookery.records.batch import iterate_headers
from tests.node.damage import Harm, contents_of, cut, flip, observe, remove
from tests.node.test_damage import METADATA_LOG, Sample, build

ORDERS = TopicPartition("orders", 0)
SEGMENT = "orders-0/00000000000000000002.log"


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return build(tmp_path_factory.mktemp("repair") / "data", clean=True)


@pytest.fixture
def data_dir(sample: Sample, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sample.path, tmp_path / "data"))


def repair(data_dir: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["log", "repair", str(data_dir), *arguments])


def plan(data_dir: Path, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(repair(data_dir, "--json", *arguments).stdout)
    return found


def batch_positions(path: Path) -> list[int]:
    return [position for position, _ in iterate_headers(path.read_bytes())]


def test_a_healthy_directory(data_dir: Path) -> None:
    before = contents_of(data_dir)
    result = repair(data_dir, "--execute")
    assert result.exit_code == 0
    assert "no damage was found" in result.output
    assert contents_of(data_dir) == before


@pytest.mark.parametrize("field", [7, 11, 16, 18, 26, 34, 60, 75])
@pytest.mark.parametrize("relative", [METADATA_LOG, SEGMENT])
def test_a_changed_byte_is_corrected(sample: Sample, data_dir: Path, relative: str, field: int) -> None:
    path = data_dir / relative
    good = path.read_bytes()
    flip(relative, batch_positions(path)[1] + field, 0x24).do(data_dir)
    before = contents_of(data_dir)
    shown = plan(data_dir)
    assert (shown["damaged"], shown["executed"], shown["lost_offsets"]) == (True, False, 0)
    assert shown["logs"][0]["problems"][0]["remedy"] == "mend"
    assert contents_of(data_dir) == before, "nothing is changed without --execute"
    result = repair(data_dir, "--execute")
    assert result.exit_code == 0, result.output
    assert path.read_bytes() == good
    (copies,) = data_dir.glob("*-repair")
    assert (copies / relative).read_bytes() == before[relative]
    assert observe(data_dir) == sample.expected


def test_a_lost_batch_leaves_the_others(sample: Sample, data_dir: Path) -> None:
    path = data_dir / SEGMENT
    position = batch_positions(path)[0]
    data = bytearray(path.read_bytes())
    data[position + 61 : position + 101] = b"\xff" * 40
    path.write_bytes(data)
    (problem,) = plan(data_dir)["logs"][0]["problems"]
    assert (problem["first_lost_offset"], problem["last_lost_offset"], problem["remedy"]) == (2, 2, "remove")
    assert repair(data_dir, "--execute", "--partition", "orders-0").exit_code == 0
    assert not plan(data_dir)["damaged"]
    seen = observe(data_dir)
    assert not seen.reported
    assert seen.records[ORDERS] == [each for each in sample.expected.records[ORDERS] if each[0] != 2]


@pytest.mark.parametrize(
    ("harm", "lost"),
    [
        (remove(SEGMENT), [2, 3]),
        (cut(SEGMENT, 0), [2, 3]),
        (cut(SEGMENT, 150), [3]),
        (remove("orders-0/00000000000000000012.log"), [12]),
    ],
    ids=str,
)
def test_a_loss_is_reported_exactly_and_accepted(sample: Sample, data_dir: Path, harm: Harm, lost: list[int]) -> None:
    harm.do(data_dir)
    assert observe(Path(shutil.copytree(data_dir, data_dir.with_name("before")))).reported
    problems = plan(data_dir)["logs"][0]["problems"]
    reported = {
        each
        for item in problems
        if item["lost_offsets"]
        for each in range(item["first_lost_offset"], item["last_lost_offset"] + 1)
    }
    assert reported == set(lost)
    assert repair(data_dir, "--execute").exit_code == 0
    seen = observe(data_dir)
    assert not seen.reported
    assert seen.records[ORDERS] == [each for each in sample.expected.records[ORDERS] if each[0] not in lost]


def test_a_missing_directory_is_accepted(sample: Sample, data_dir: Path) -> None:
    remove("orders-0").do(data_dir)
    assert plan(data_dir)["lost_offsets"] == 13
    assert repair(data_dir, "--execute").exit_code == 0
    seen = observe(data_dir)
    assert not seen.reported
    assert seen.records[ORDERS] == []
    assert seen.topics == sample.expected.topics


def test_lost_metadata_names_its_topics_and_keeps_their_records(data_dir: Path) -> None:
    path = data_dir / METADATA_LOG
    data = bytearray(path.read_bytes())
    position = next(position for position in batch_positions(path) if b"orders" in data[position : position + 200])
    data[position + 70 : position + 100] = b"\xff" * 30
    path.write_bytes(data)
    shown = plan(data_dir)
    assert shown["topics_without_metadata"] == ["orders"]
    assert shown["logs"][0]["problems"][0]["remedy"] == "fill"
    assert "topic orders" in repair(data_dir).output
    assert repair(data_dir, "--execute").exit_code == 0
    seen = observe(data_dir)
    assert seen.startup_error is None
    assert seen.topics == {"single"}
    assert any("orders-0" in line for line in seen.reported)
    assert (data_dir / SEGMENT).exists()


def test_an_empty_metadata_log_cannot_be_repaired(data_dir: Path) -> None:
    cut(METADATA_LOG, 0).do(data_dir)
    before = contents_of(data_dir)
    result = repair(data_dir, "--execute")
    assert result.exit_code == 1
    assert "restore it from a copy" in result.output
    assert contents_of(data_dir) == before


def test_a_running_broker_prevents_the_repair(data_dir: Path) -> None:
    lock = OsFiles().lock_directory(data_dir)
    assert lock is not None
    try:
        result = repair(data_dir)
    finally:
        lock.release()
    assert result.exit_code == 1
    assert "a broker uses" in result.output


def test_other_directories_are_refused(tmp_path: Path) -> None:
    assert "is not a log directory" in repair(tmp_path).output
