"""`rookery up --secure`: what it makes, when it refuses, and that the platform works."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rookery.base.errors import ConfigError
from rookery.cli.commands import app
from rookery.cli.secured_platform import prepare
from tests.support.broker import STOP_TIMEOUT_S, free_port

REGISTRY = "https://127.0.0.1:8081"


def test_the_first_start_makes_and_formats_the_nodes_and_later_ones_use_them(tmp_path: Path) -> None:
    data = tmp_path / "data"
    platform = prepare(data, 3, "127.0.0.1:9092", REGISTRY)
    assert [member.port for member in platform.members] == [9092, 9094, 9096]
    stamps = [(member.data_dir / "meta.properties").read_text() for member in platform.members]
    ids = {line for text in stamps for line in text.splitlines() if line.startswith("cluster.id=")}
    assert len(ids) == 1
    assert ids.pop().removeprefix("cluster.id=") in (data / "README.txt").read_text()
    first = (data / "node-1" / "server.properties").read_text()
    assert "schema.registry.listeners=https://127.0.0.1:8081" in first
    assert "schema.registry" not in (data / "node-2" / "server.properties").read_text()
    assert prepare(data, 3, "127.0.0.1:9092", REGISTRY) == platform
    assert (data / "node-1" / "server.properties").read_text() == first


@pytest.mark.parametrize(
    ("brokers", "listen", "sentence"),
    [
        (3, "127.0.0.1:9092", "has a secured cluster of 1 nodes: use --brokers 1"),
        (1, "127.0.0.1:9192", "has the address 127.0.0.1:9092, and its certificate is for it"),
    ],
)
def test_other_options_than_those_of_the_first_start(tmp_path: Path, brokers: int, listen: str, sentence: str) -> None:
    data = tmp_path / "data"
    prepare(data, 1, "127.0.0.1:9092", REGISTRY)
    with pytest.raises(ConfigError, match=sentence):
        prepare(data, brokers, listen, REGISTRY)


def test_data_is_served_as_it_was_made(tmp_path: Path) -> None:
    plain, secured = tmp_path / "plain", tmp_path / "secured"
    (plain / "orders-0").mkdir(parents=True)
    with pytest.raises(ConfigError, match="was made without --secure"):
        prepare(plain, 1, "127.0.0.1:9092", REGISTRY)
    prepare(secured, 1, "127.0.0.1:9092", REGISTRY)
    refused = CliRunner().invoke(app, ["up", "--data-dir", str(secured)])
    assert refused.exit_code == 2
    assert "has a secured platform: add --secure" in refused.output
    with pytest.raises(ConfigError, match=r"http://127.0.0.1:8081 must begin with https://"):
        prepare(tmp_path / "other", 1, "127.0.0.1:9092", "http://127.0.0.1:8081")
    with pytest.raises(ConfigError, match=r"--listen: '0.0.0.0:9092' is no address"):
        prepare(tmp_path / "other", 1, "0.0.0.0:9092", REGISTRY)


@pytest.mark.parametrize("brokers", [1, 3])
def test_the_platform_serves_clients_with_a_login(tmp_path: Path, brokers: int) -> None:
    data = tmp_path / "data"
    arguments = ["--data-dir", str(data), "--listen", f"127.0.0.1:{free_port()}", "--brokers", str(brokers)]
    command = [sys.executable, "-m", "rookery.cli.main", "up", "--secure", *arguments]
    registry = f"https://127.0.0.1:{free_port()}"
    log = tmp_path / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*command, "--registry", registry], stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ
        )
    try:
        assert process.stdout is not None
        shown: list[str] = []
        for line in process.stdout:
            shown.append(line)
            if "export ROOKERY_COMMAND_CONFIG=" in line:
                break
        assert any("export ROOKERY_COMMAND_CONFIG=" in line for line in shown), [*shown, log.read_text()]
        config = shown[-1].strip().removeprefix("export ROOKERY_COMMAND_CONFIG=")
        runner = CliRunner(env={"ROOKERY_COMMAND_CONFIG": config})
        assert runner.invoke(app, ["produce", "greetings"], input=b"hello\n").exit_code == 0
        read = runner.invoke(app, ["consume", "greetings", "--from", "beginning", "--until-end"])
        assert read.output == "hello\n"
        users = json.loads(runner.invoke(app, ["users", "list", "--json"]).stdout)
        assert [user["user"] for user in users] == ["admin", "broker"]
        _check_registry(data, registry)
        # The file of the administrator has the registry, too.
        assert runner.invoke(app, ["schemas", "list", "--json"]).stdout == "[]\n"
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=STOP_TIMEOUT_S)
    assert process.returncode == 0


def _check_registry(data: Path, url: str) -> None:
    lines = (data / "clients" / "admin.registry.properties").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    assert settings["schema.registry.url"] == url
    trusted = ["--set", f"ssl.ca.location={settings['ssl.ca.location']}"]
    allowed = url.replace("https://", f"https://{settings['basic.auth.user.info']}@")
    listed = CliRunner().invoke(app, ["schemas", "list", "--json", "-r", allowed, *trusted])
    assert (listed.exit_code, listed.stdout) == (0, "[]\n")
    assert CliRunner().invoke(app, ["schemas", "list", "-r", url, *trusted]).exit_code == 1
