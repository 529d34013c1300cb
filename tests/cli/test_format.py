"""`rookery format` and `rookery random-uuid`, as users call them."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rookery.base.files import OsFiles
from rookery.base.types import decode_uuid
from rookery.cli.commands import app
from rookery.metadata.image import EMPTY_IMAGE
from rookery.node.format import read_bootstrap
from rookery.security.scram_credentials import derive_credential

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


def test_the_first_users_are_in_the_bootstrap_records(config: Path, tmp_path: Path) -> None:
    users = ["SCRAM-SHA-256=[name=alice,password=secret]", "SCRAM-SHA-512=[name=alice,iterations=8192,password=other]"]
    options = [option for user in users for option in ("--add-scram", user)]
    done = CliRunner().invoke(app, ["format", "-t", "the-cluster", "-c", str(config), "-s", *options])
    assert done.exit_code == 0
    assert "secret" not in done.output
    records = read_bootstrap(OsFiles(), tmp_path / "data")
    assert records is not None
    image, _ = EMPTY_IMAGE.apply(records)
    first, second = image.scram.items()
    assert (first[0], second[0]) == (("alice", 1), ("alice", 2))
    assert (len(first[1].salt), second[1].iterations) == (24, 8192)
    for (_, mechanism), stored, password in ((*first, "secret"), (*second, "other")):
        assert stored == derive_credential(mechanism, password, stored.salt, stored.iterations)


def test_the_first_users_may_be_in_a_file(config: Path, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("SCRAM-SHA-256=[name=alice,password=secret]\n\nSCRAM-SHA-512=[name=bob,password=other]\n")
    done = CliRunner().invoke(app, ["format", "-t", "the-cluster", "-c", str(config), "-s", "-S", f"@{users}"])
    assert done.exit_code == 0
    records = read_bootstrap(OsFiles(), tmp_path / "data")
    assert records is not None
    assert list(EMPTY_IMAGE.apply(records)[0].scram) == [("alice", 1), ("bob", 2)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["-s", "-S", "@missing"], "cannot read the configuration file missing"),
        (["-s", "-N"], "give only one of --standalone"),
        (["-s", "-S", "PLAIN=[name=alice,password=secret]"], "--add-scram: the mechanism must be one of SCRAM-SHA-256"),
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
