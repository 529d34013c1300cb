"""`rookery up` and `rookery registry`: processes that print their addresses and stop on SIGTERM."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rookery.cli import up
from rookery.cli.commands import app
from rookery.cli.platform import UpOptions, plain_up_options
from rookery.serdes import RegistryClient
from rookery.testing import EmbeddedBroker
from tests.support.broker import STOP_TIMEOUT_S, free_port


@contextmanager
def running(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "rookery.cli.main", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def lines_until(process: "subprocess.Popen[str]", last: str) -> list[str]:
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if last in line:
            return lines
    raise AssertionError(process.stderr.read() if process.stderr else lines)


def stop(process: "subprocess.Popen[str]") -> int:
    os.kill(process.pid, signal.SIGTERM)
    return process.wait(STOP_TIMEOUT_S)


def test_up_serves_broker_and_registry_and_keeps_the_data(tmp_path: Path) -> None:
    broker, registry = f"127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
    arguments = ("up", "--data-dir", str(tmp_path / "data"), "--listen", broker, "--registry", registry)
    with running(*arguments) as process:
        printed = lines_until(process, "rookery schemas list")
        assert broker in "\n".join(printed)
        with RegistryClient(registry) as client:
            client.put_config("FULL")
        assert stop(process) == 0
    with running(*arguments) as process:
        lines_until(process, "rookery schemas list")
        with RegistryClient(registry) as client:
            assert client.get_config().compatibility_level == "FULL"
        assert stop(process) == 0


def test_a_registry_for_a_running_broker(tmp_path: Path) -> None:
    config = tmp_path / "schema-registry.properties"
    config.write_text("listeners=http://127.0.0.1:0\nschema.compatibility.level=full\n", encoding="utf-8")
    with EmbeddedBroker() as broker:
        arguments = ("--config", str(config), "-b", broker.bootstrap_servers, "--set", "mode.mutability=false")
        with running("registry", *arguments) as process:
            (ready,) = lines_until(process, "ready on ")
            with RegistryClient(ready.removeprefix("ready on ")) as client:
                assert client.get_config().compatibility_level == "FULL"
            assert stop(process) == 0


def test_an_unknown_setting_is_reported() -> None:
    with running("registry", "--set", "listener=http://127.0.0.1:0") as process:
        assert process.wait(STOP_TIMEOUT_S) == 2
        assert process.stderr is not None
        assert "'listener'" in process.stderr.read()


def test_the_help_of_the_registry_shows_its_defaults() -> None:
    output = CliRunner().invoke(app, ["registry", "--help"], env={"COLUMNS": "200"}).output
    assert "127.0.0.1:9092" in output
    assert "http://127.0.0.1:8081" in output


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--data-dir", "here", "--listen=127.0.0.1:1", "--registry", "http://127.0.0.1:2"],
        ["--set", "a=1", "--set", "b=2"],
        ["--brokers", "3"],
    ],
)
def test_plain_options_are_parsed_as_by_typer(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    run: list[UpOptions] = []
    monkeypatch.setattr(up, "run_platform", run.append)
    CliRunner().invoke(app, ["up", *arguments])
    found = plain_up_options(arguments)
    assert found is not None
    assert found._replace(settings=list(found.settings)) == run[0]._replace(settings=list(run[0].settings))


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--data"], ["--unknown", "1"], ["--listen", "--set"], ["--brokers", "0"]]
)
def test_other_options_are_left_to_typer(arguments: list[str]) -> None:
    assert plain_up_options(arguments) is None
