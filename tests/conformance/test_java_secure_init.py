"""The files of `rookery secure init` on Apache Kafka and on Rookery, with Kafka's tools and with ours on both."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rookery.base.properties import properties_text
from rookery.cli.commands import app
from tests.conformance.java_tools import JARS, run_tool
from tests.support.broker import STOP_TIMEOUT_S, free_port, start_node
from tests.support.waiting import eventually

pytestmark = pytest.mark.java


@pytest.fixture(params=["rookery", "kafka"])
def admin_file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A running broker; yields the administrator's settings."""
    directory = tmp_path / "cluster"
    made = json.loads(invoke("secure", "init", directory, "--nodes", f"127.0.0.1:{free_port()}", "--json").stdout)
    config = Path(made["nodes"][0]["config"])
    if request.param == "rookery":
        invoke(*made["next"][0].split()[1:])
        with start_node(config):
            yield Path(made["clients"]["properties"])
        return
    users = [f"--add-scram={line}" for line in config.with_name("users.scram").read_text().splitlines()]
    run_tool("storage", "format", "-c", str(config), "-t", made["cluster_id"], *users)
    with kafka(config):
        yield Path(made["clients"]["properties"])


@contextmanager
def kafka(config: Path) -> Iterator[None]:
    command = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*", "kafka.Kafka", str(config)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)


def invoke(*arguments: object, config: Path | None = None, exit_code: int = 0) -> Result:
    environment = {} if config is None else {"ROOKERY_COMMAND_CONFIG": str(config)}
    result = CliRunner(env=environment).invoke(app, list(map(str, arguments)))
    assert result.exit_code == exit_code, result.output
    return result


def test_the_files_and_the_commands_fit_both(admin_file: Path, tmp_path: Path) -> None:
    def serves() -> bool:
        listing = ["topics", "list", "--timeout", "2"]
        return CliRunner(env={"ROOKERY_COMMAND_CONFIG": str(admin_file)}).invoke(app, listing).exit_code == 0

    eventually(serves, "a broker that serves")
    invoke("topics", "create", "orders", config=admin_file)
    printed = invoke("keys", "create", "service", "--produce", "orders", "--json", config=admin_file).stdout
    key = json.loads(printed)["settings"]["java"]
    address, key_file = key["bootstrap.servers"], tmp_path / "key.properties"
    key_file.write_text(properties_text(key))
    with_key = ("--bootstrap-server", address, "--command-config", str(key_file))
    sent = ("--bootstrap-server", address, "--command-config", str(key_file), "--topic", "orders")
    run_tool("console-producer", *sent, text="an apple\n")
    assert run_tool("topics", *with_key, "--list").split() == ["orders"]
    as_admin = ("--bootstrap-server", address, "--command-config", str(admin_file))
    listed = run_tool("acls", *as_admin, "--list")
    assert "(principal=User:service, host=*, operation=WRITE, permissionType=ALLOW)" in listed
    assert "SCRAM-SHA-512=iterations=8192" in run_tool("configs", *as_admin, "--entity-type", "users", "--describe")
    read = invoke("consume", "orders", "--from", "beginning", "--until-end", config=admin_file)
    assert read.stdout == "an apple\n"
    invoke("keys", "revoke", "service", "--yes", config=admin_file)
    assert "service" not in invoke("users", "list", config=admin_file).stdout
