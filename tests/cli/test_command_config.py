"""`rookery --command-config FILE`: commands that log in, by a file that serves all of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rookery.cli.commands import app
from tests.support.gate import Gate, gated_broker


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gated_broker(tmp_path_factory.mktemp("gate") / "data", users={"alice": "secret"}) as gate:
        yield gate


@pytest.fixture
def config(tmp_path: Path, gate: Gate) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(
        f"""
        bootstrap.servers={gate.address}
        security.protocol=SASL_PLAINTEXT
        sasl.mechanism=SCRAM-SHA-256
        sasl.jaas.config=a.ScramLoginModule required \\
            username="alice" password="secret";
        # Of a producer, and of a consumer: others do not mind.
        linger.ms=1
        auto.offset.reset=earliest
        """
    )
    return path


def run(config: Path, *arguments: str, said: str | None = None) -> Result:
    return CliRunner().invoke(app, ["--command-config", str(config), *arguments], input=said)


def test_one_file_serves_all_commands(config: Path) -> None:
    assert run(config, "topics", "create", "letters").exit_code == 0
    assert run(config, "produce", "letters", said="a\nb\n").exit_code == 0
    consumed = run(config, "consume", "letters", "--from", "beginning", "--count", "2")
    assert consumed.output.split() == ["a", "b"]
    assert "letters" in run(config, "topics", "list").output
    assert run(config, "dlq", "list").exit_code == 0


def test_the_command_line_wins(config: Path) -> None:
    result = run(config, "topics", "list", "--bootstrap-server", "127.0.0.1:1")
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.output


def test_the_environment_may_name_the_file(config: Path) -> None:
    environment = {"ROOKERY_COMMAND_CONFIG": str(config)}
    assert CliRunner().invoke(app, ["topics", "list"], env=environment).exit_code == 0


def test_a_wrong_password_is_told(config: Path) -> None:
    config.write_text(config.read_text().replace('"secret"', '"guess"'))
    result = run(config, "topics", "list")
    assert result.exit_code == 1
    assert "sasl.jaas.config" in result.output
    assert "guess" not in result.output


def test_what_no_client_knows_is_an_error_with_its_line(config: Path) -> None:
    config.write_text("\nsecurity.protcol=SSL\n")
    result = run(config, "topics", "list")
    assert result.exit_code == 2
    assert f"{config}:2: no client has a setting security.protcol" in result.output


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    result = run(tmp_path / "nowhere.properties", "topics", "list")
    assert result.exit_code == 2
    assert "nowhere.properties" in result.output
