"""`rookery --command-config FILE`: one file with which all commands log in."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rookery.cli.command_config import use_command_config
from rookery.cli.commands import app
from rookery.client.settings.consumer import ConsumerSettings
from rookery.client.settings.producer import Acks, ProducerSettings
from rookery.records.batch import Codec
from tests.support.gate import Gate, gated_broker


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gated_broker(tmp_path_factory.mktemp("gate") / "data", users={"alice": "secret"}) as gate:
        yield gate


@pytest.fixture(autouse=True)
def _reset_command_config() -> Iterator[None]:
    """Remove the file again: other tests in this process use none."""
    yield
    use_command_config(None)


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
        # Settings of a producer and of a consumer, which other clients ignore.
        linger.ms=1
        auto.offset.reset=earliest
        """
    )
    return path


@pytest.fixture
def production(config: Path) -> Path:
    """The file of an application, with its group and its transactional id."""
    more = (
        "group.id=production",
        "group.instance.id=worker-1",
        "enable.auto.commit=true",
        "transactional.id=production-1",
        "isolation.level=read_committed",
    )
    path = config.with_name("production.properties")
    path.write_text("\n".join((config.read_text(), *more)))
    return path


def run(config: Path, *arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["--command-config", str(config), *arguments], input=stdin)


def test_one_file_serves_all_commands(config: Path) -> None:
    assert run(config, "topics", "create", "letters").exit_code == 0
    assert run(config, "produce", "letters", stdin="a\nb\n").exit_code == 0
    consumed = run(config, "consume", "letters", "--from", "beginning", "--count", "2")
    assert consumed.output.split() == ["a", "b"]
    assert "letters" in run(config, "topics", "list").output
    assert run(config, "dlq", "list").exit_code == 0


def test_the_command_line_overrides_the_file(config: Path) -> None:
    result = run(config, "topics", "list", "--bootstrap-server", "127.0.0.1:1")
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.output


def test_the_environment_overrides_the_file(config: Path) -> None:
    environment = {"ROOKERY_BOOTSTRAP_SERVER": "127.0.0.1:1"}
    result = CliRunner().invoke(app, ["--command-config", str(config), "topics", "list"], env=environment)
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.output


FILE_OF_PRODUCER = "acks=1\ncompression.type=lz4\nlinger.ms=7\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], (Acks.LEADER, Codec.LZ4, 7)),
        (["--acks", "all", "--compression", "none"], (Acks.ALL, Codec.NONE, 7)),
        (["--acks", "all", "--set", "acks=0", "--set", "linger.ms=9"], (Acks.NONE, Codec.LZ4, 9)),
    ],
)
def test_given_options_override_producer_settings_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], expected: object
) -> None:
    captured = capture_configs(monkeypatch, "produce.with_producer")
    run(written(tmp_path, FILE_OF_PRODUCER), "produce", "letters", *options)
    settings = ProducerSettings.parse(captured[0])
    assert (settings.acks, settings.compression_codec, settings.linger_ms) == expected


FILE_OF_CONSUMER = "group.id=production\nisolation.level=read_committed\nenable.auto.commit=false\nclient.id=me\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], (None, False, True)),
        (["--isolation-level", "read_uncommitted"], (None, False, False)),
        (["--group", "mine"], ("mine", True, True)),
        (["--group", "mine", "--set", "group.id=his", "--set", "enable.auto.commit=false"], ("his", False, True)),
    ],
)
def test_given_options_override_consumer_settings_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], expected: object
) -> None:
    captured = capture_configs(monkeypatch, "consume.with_consumer")
    run(written(tmp_path, FILE_OF_CONSUMER), "consume", "letters", *options)
    settings = ConsumerSettings.parse(captured[0])
    assert (settings.group_id, settings.enable_auto_commit, settings.read_committed) == expected
    assert settings.common.client_id == "me"


def capture_configs(monkeypatch: pytest.MonkeyPatch, function: str) -> list[dict[str, object]]:
    """Capture the configurations with which a command would create its client."""
    captured: list[dict[str, object]] = []
    monkeypatch.setattr(f"rookery.cli.{function}", lambda config, work: captured.append(config))
    return captured


def written(directory: Path, text: str) -> Path:
    path = directory / "other.properties"
    path.write_text(text)
    return path


def test_timeout_replaces_all_time_outs_of_a_delivery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    captured = capture_configs(monkeypatch, "produce.with_producer")
    times = "request.timeout.ms=10000\ndelivery.timeout.ms=15000\nlinger.ms=7\n"
    run(written(tmp_path, times), "produce", "letters", "--timeout", "20")
    assert ProducerSettings.parse(captured[0]).delivery_timeout_ms == 20_007


def test_reading_a_topic_does_not_use_the_group_of_the_file(config: Path, production: Path) -> None:
    succeed(config, "produce", "looked-at", stdin="a\nb\n")
    assert succeed(production, "consume", "looked-at", "--from", "beginning", "--until-end").output.split() == [
        "a",
        "b",
    ]
    succeed(production, "perf", "consume", "looked-at")
    assert "production" not in groups(production)


def test_a_given_group_overrides_that_of_the_file(config: Path, production: Path) -> None:
    succeed(config, "produce", "shared", stdin="a\nb\n")
    read = succeed(production, "consume", "shared", "--group", "mine", "--from", "beginning", "--until-end")
    assert read.stdout.split() == ["a", "b"]
    assert "production" not in groups(production)
    (described,) = json.loads(succeed(production, "groups", "describe", "mine", "--offsets", "--json").stdout)
    assert sum(row["committed_offset"] for row in described["offsets"]) == 2


def test_a_given_transactional_id_overrides_that_of_the_file(production: Path) -> None:
    succeed(production, "produce", "booked", stdin="a:1\n")
    succeed(production, "perf", "produce", "measured", "--records", "1")
    aborted = run(production, "produce", "booked", "-K", ":", "--transactional-id", "mine", stdin="b:2\nbroken\n")
    assert "nothing was written" in aborted.output
    listed = json.loads(succeed(production, "transactions", "list", "--json").stdout)
    assert {"mine"} == {row["transactional_id"] for row in listed}
    reading = ("consume", "booked", "--from", "beginning", "--until-end")
    assert succeed(production, *reading).stdout.split() == ["a:1"]
    assert succeed(production, *reading, "--isolation-level", "read_uncommitted").stdout.split() == ["a:1", "2"]


def succeed(config: Path, *arguments: str, stdin: str | None = None) -> Result:
    result = run(config, *arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result


def groups(config: Path) -> list[Any]:
    return [row["group"] for row in json.loads(succeed(config, "groups", "list", "--json").stdout)]


def test_the_environment_can_name_the_file(config: Path) -> None:
    environment = {"ROOKERY_COMMAND_CONFIG": str(config)}
    assert CliRunner().invoke(app, ["topics", "list"], env=environment).exit_code == 0


def test_a_wrong_password_is_reported(config: Path) -> None:
    config.write_text(config.read_text().replace('"secret"', '"guess"'))
    result = run(config, "topics", "list")
    assert result.exit_code == 1
    assert "sasl.jaas.config" in result.output
    assert "guess" not in result.output


def test_an_unknown_setting_is_reported_with_its_line(config: Path) -> None:
    config.write_text("\nsecurity.protcol=SSL\n")
    result = run(config, "topics", "list")
    assert result.exit_code == 2
    assert f"{config}:2: no client has the setting security.protcol" in result.output


def test_a_missing_file(tmp_path: Path) -> None:
    result = run(tmp_path / "nowhere.properties", "topics", "list")
    assert result.exit_code == 2
    assert "nowhere.properties" in result.output
