"""`rookery --command-config FILE`: commands that log in, by a file that serves all of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rookery.cli.command_config import remember
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
def _forget_the_file() -> Iterator[None]:
    """Other tests in this process have none."""
    yield
    remember(None)


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


@pytest.fixture
def production(config: Path) -> Path:
    """The file of an application, which has a group and a transactional id of its own."""
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


def test_brokers_of_the_environment_win_too(config: Path) -> None:
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
def test_options_that_are_given_win_over_the_file_of_a_producer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], expected: object
) -> None:
    made = configs_made(monkeypatch, "produce.with_producer")
    run(written(tmp_path, FILE_OF_PRODUCER), "produce", "letters", *options)
    settings = ProducerSettings.parse(made[0])
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
def test_options_that_are_given_win_over_the_file_of_a_consumer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], expected: object
) -> None:
    made = configs_made(monkeypatch, "consume.with_consumer")
    run(written(tmp_path, FILE_OF_CONSUMER), "consume", "letters", *options)
    settings = ConsumerSettings.parse(made[0])
    assert (settings.group_id, settings.enable_auto_commit, settings.read_committed) == expected
    assert settings.common.client_id == "me"


def configs_made(monkeypatch: pytest.MonkeyPatch, function: str) -> list[dict[str, object]]:
    """What a command makes its client with, instead of making it."""
    made: list[dict[str, object]] = []
    monkeypatch.setattr(f"rookery.cli.{function}", lambda config, work: made.append(config))
    return made


def written(directory: Path, text: str) -> Path:
    path = directory / "other.properties"
    path.write_text(text)
    return path


def test_timeout_stands_for_all_times_of_a_delivery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = configs_made(monkeypatch, "produce.with_producer")
    times = "request.timeout.ms=10000\ndelivery.timeout.ms=15000\nlinger.ms=7\n"
    run(written(tmp_path, times), "produce", "letters", "--timeout", "20")
    assert ProducerSettings.parse(made[0]).delivery_timeout_ms == 20_007


def test_looking_at_a_topic_leaves_the_group_of_the_file_alone(config: Path, production: Path) -> None:
    done(config, "produce", "looked-at", said="a\nb\n")
    assert done(production, "consume", "looked-at", "--from", "beginning", "--until-end").output.split() == ["a", "b"]
    done(production, "perf", "consume", "looked-at")
    assert "production" not in groups(production)


def test_a_group_that_is_given_wins_over_that_of_the_file(config: Path, production: Path) -> None:
    done(config, "produce", "shared", said="a\nb\n")
    read = done(production, "consume", "shared", "--group", "mine", "--from", "beginning", "--until-end")
    assert read.stdout.split() == ["a", "b"]
    assert "production" not in groups(production)
    (described,) = json.loads(done(production, "groups", "describe", "mine", "--offsets", "--json").stdout)
    assert sum(row["committed_offset"] for row in described["offsets"]) == 2


def test_a_transactional_id_that_is_given_wins_over_that_of_the_file(production: Path) -> None:
    done(production, "produce", "booked", said="a:1\n")
    done(production, "perf", "produce", "measured", "--records", "1")
    aborted = run(production, "produce", "booked", "-K", ":", "--transactional-id", "mine", said="b:2\nbroken\n")
    assert "nothing was written" in aborted.output
    listed = json.loads(done(production, "transactions", "list", "--json").stdout)
    assert {"mine"} == {row["transactional_id"] for row in listed}
    reading = ("consume", "booked", "--from", "beginning", "--until-end")
    assert done(production, *reading).stdout.split() == ["a:1"]
    assert done(production, *reading, "--isolation-level", "read_uncommitted").stdout.split() == ["a:1", "2"]


def done(config: Path, *arguments: str, said: str | None = None) -> Result:
    result = run(config, *arguments, said=said)
    assert result.exit_code == 0, result.output
    return result


def groups(config: Path) -> list[Any]:
    return [row["group"] for row in json.loads(done(config, "groups", "list", "--json").stdout)]


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
