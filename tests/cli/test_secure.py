"""`rookery secure`, as users call it."""

import json
import stat
from pathlib import Path

from typer.testing import CliRunner, Result

from rookery.cli.commands import app


def secure(*arguments: object, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["secure", *map(str, arguments)])
    assert result.exit_code == exit_code, result.output
    return result


def test_everything_is_readable_by_the_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    printed = secure("init", directory, "--brokers", 3).output
    assert "rookery format --config" in printed
    paths = [directory, *directory.rglob("*")]
    assert len([path for path in paths if path.name == "server.properties"]) == 3
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert [path.name for path in tmp_path.iterdir()] == ["cluster"]


def test_no_secret_is_printed(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    made = secure("init", directory, "--json")
    found = json.loads(made.stdout)
    assert found["bootstrap_servers"] == "127.0.0.1:9092"
    assert found["nodes"][0]["config"] == str(directory / "node-1" / "server.properties")
    assert found["next"][0].startswith("rookery format --config ")
    password = (directory / "clients" / "admin.librdkafka.properties").read_text().split("sasl.password=")[1].split()[0]
    assert len(password) == 32
    assert password not in made.output
    assert password not in (directory / "README.txt").read_text()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    secure("init", directory)
    before = (directory / "ca" / "ca.key").read_text()
    refused = secure("init", directory, exit_code=2)
    assert f"{directory} is not empty" in refused.output
    assert "rookery secure renew" in refused.output
    assert (directory / "ca" / "ca.key").read_text() == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    assert "is not empty" in secure("init", tmp_path / "other", exit_code=2).output


def test_an_empty_directory_is_used_and_closed(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    directory.mkdir(mode=0o755)
    secure("init", directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_wrong_usage(tmp_path: Path) -> None:
    both = secure("init", tmp_path / "x", "--nodes", "a,b", "--brokers", 2, exit_code=2)
    assert "--nodes names all nodes" in both.output
    assert "must be absolute" in secure("init", tmp_path / "x", "--path", "etc", exit_code=2).output
    assert "'a b' must have the form" in secure("init", tmp_path / "x", "--nodes", "a b", exit_code=2).output
    assert not (tmp_path / "x").exists()
    assert "has no authority" in secure("renew", tmp_path, exit_code=2).output


def test_renewal_keeps_the_authority_and_the_names(tmp_path: Path) -> None:
    from rookery.security.authority import end_of_pem, subject_of_pem

    directory = tmp_path / "cluster"
    secure("init", directory, "--nodes", "kafka1/10.0.0.1,kafka2", "--days", 10)
    path = directory / "node-1" / "node.pem"
    before, authority = path.read_text(), (directory / "ca" / "ca.crt").read_text()
    renewed = json.loads(secure("renew", directory, "--days", 20, "--json").stdout)
    assert [row["node"] for row in renewed] == ["node-1", "node-2"]
    after = path.read_text()
    assert after != before
    assert subject_of_pem(after) == subject_of_pem(before)
    assert (end_of_pem(after) - end_of_pem(before)).days == 10
    assert (directory / "ca" / "ca.crt").read_text() == authority
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
