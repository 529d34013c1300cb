"""`rookery format` and `rookery random-uuid`, as users call them."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rookery.base.types import decode_uuid
from rookery.cli.commands import app

CONFIG = """
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.quorum.bootstrap.servers=127.0.0.1:9093
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(f"{CONFIG}log.dirs={tmp_path / 'data'}\n")
    return path


def test_a_directory_is_formatted_once(config: Path, tmp_path: Path) -> None:
    arguments = ["format", "-t", "the-cluster", "-c", str(config), "-s"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0
    assert done.output.startswith(f"formatted the dynamic metadata voter directory {tmp_path / 'data'} with ")
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 1
    assert "is already formatted. Use --ignore-formatted" in again.output
    ignored = CliRunner().invoke(app, [*arguments, "-g"])
    assert (ignored.exit_code, ignored.output) == (0, "all log directories are already formatted\n")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["-s", "-N"], "give only one of --standalone"),
        (["-s", "-S", "SCRAM-SHA-256=[name=alice,password=secret]"], "--add-scram is not supported yet"),
        ([], "a controller needs --standalone"),
    ],
)
def test_wrong_usage(config: Path, options: list[str], sentence: str) -> None:
    done = CliRunner().invoke(app, ["format", "-t", "the-cluster", "-c", str(config), *options])
    assert done.exit_code == 2
    assert sentence in done.output


def test_random_ids_are_different_and_no_options() -> None:
    ids = [CliRunner().invoke(app, ["random-uuid"]).output.strip() for _ in range(5)]
    assert len(set(ids)) == len(ids)
    for text in ids:
        assert not text.startswith("-")
        decode_uuid(text)
