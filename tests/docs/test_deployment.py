"""The files of deploy/ and the steps of docs/deployment.md: they are parsed, started and restored from."""

import configparser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rookery.cli.broker import plain_options
from rookery.node.settings import Settings
from rookery.testing import EmbeddedBroker

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PROGRAM = Path(sys.executable).with_name("rookery")


def test_all_properties_have_an_effect() -> None:
    settings = Settings.load(DEPLOY / "server.properties")
    assert settings.without_effect == ()
    assert settings.has_registry
    assert settings.advertised["PLAINTEXT"].host == "broker.example.org"


def service() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # keys of systemd have upper-case letters
    parser.read(DEPLOY / "rookery.service")
    return parser


def test_the_service_starts_the_program_with_a_writable_directory() -> None:
    found = service()["Service"]
    program, *arguments = found["ExecStart"].split()
    assert Path(program).name == "rookery"
    assert arguments[0] == "start"
    given = [word.replace("/etc/rookery", str(DEPLOY)) for word in arguments[1:]]
    options = plain_options(given)
    assert options is not None
    assert options.config == DEPLOY / "server.properties"
    (directory,) = Settings.load(options.config).log_directories
    assert found["ReadWritePaths"] == str(directory) == f"/var/lib/{found['StateDirectory']}"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_understands_the_service(tmp_path: Path) -> None:
    text = (DEPLOY / "rookery.service").read_text().replace("/opt/rookery/venv/bin/rookery", str(PROGRAM))
    (tmp_path / "rookery.service").write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / "rookery.service"], capture_output=True, text=True, check=False
    )
    assert "rookery.service" not in done.stderr, done.stderr


def test_the_image_starts_a_broker_for_its_host() -> None:
    (command,) = re.findall(r"^CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.M)
    start, *arguments = json.loads(command)
    assert start == "start"
    options = plain_options(arguments)
    assert options is not None
    settings = Settings.load(options.config, options.settings, data_dir=options.data_dir)
    assert settings.without_effect == ()
    assert settings.advertised["PLAINTEXT"].host == "localhost"


def has_docker_engine() -> bool:
    docker = shutil.which("docker")
    return docker is not None and subprocess.run([docker, "info"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not has_docker_engine(), reason="needs a Docker engine")
@pytest.mark.timeout(900)
def test_the_image_is_built() -> None:
    build = ["docker", "build", "-q", "-f", str(DEPLOY / "Dockerfile"), str(ROOT)]
    image = subprocess.run(build, capture_output=True, text=True, check=True).stdout.strip()
    result = subprocess.run(["docker", "run", "--rm", image, "--version"], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("rookery ")


def test_a_copy_of_a_stopped_broker_is_a_backup(tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=tmp_path / "data") as broker:
        broker.create_topic("orders", partitions=2)
        broker.produce("orders", "a", "b", "c", key="k")
    shutil.copytree(tmp_path / "data", tmp_path / "backup")
    with EmbeddedBroker(data_dir=tmp_path / "data") as broker:
        broker.produce("orders", "after the backup", key="k")
    with EmbeddedBroker(data_dir=tmp_path / "backup") as restored:
        assert [record.value for record in restored.records("orders")] == [b"a", b"b", b"c"]
