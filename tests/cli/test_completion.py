"""Shell completion, called as a shell does: through environment variables."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rookery.cli.commands import app
from rookery.testing import EmbeddedBroker
from tests.support.broker import free_port

PROGRAM = Path(sys.executable).with_name("rookery")


def complete(broker: str, words: str) -> list[str]:
    line = f"rookery {words}"
    variables = {
        "_ROOKERY_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
        "ROOKERY_BOOTSTRAP_SERVER": broker,
    }
    done = subprocess.run([PROGRAM], env=os.environ | variables, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("words", ["topics describe or", "consume or", "configs describe topic or", "perf produce or"])
def test_topics(rookery: EmbeddedBroker, words: str) -> None:
    rookery.create_topic("orders")
    rookery.create_topic("payments")
    assert complete(rookery.bootstrap_servers, words) == ["orders"]


def test_groups(rookery: EmbeddedBroker) -> None:
    rookery.produce("orders", "an apple")
    join = ["consume", "orders", "--group", "billing", "--from", "beginning", "--until-end"]
    done = CliRunner().invoke(app, [*join, "--bootstrap-server", rookery.bootstrap_servers])
    assert done.exit_code == 0
    assert complete(rookery.bootstrap_servers, "groups describe b") == ["billing"]
    assert complete(rookery.bootstrap_servers, "consume orders --group b") == ["billing"]


@pytest.mark.rookery(schema_registry=True)
def test_subjects(rookery: EmbeddedBroker) -> None:
    rookery.register_schema("orders-value", '"string"')
    assert complete("", f"schemas get --registry {rookery.schema_registry_url} ord") == ["orders-value"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("topics create orders --set retention.", "retention.ms="),
        ("configs alter topic orders --set retention.", "retention.ms="),
        ("start --set num.part", "num.partitions="),
        ("consume orders --set fetch.min", "fetch.min.bytes="),
        ("produce orders --set linger", "linger.ms="),
    ],
)
def test_settings_need_no_cluster(words: str, offered: str) -> None:
    assert offered in complete(f"127.0.0.1:{free_port()}", words)


def test_without_a_cluster_nothing_is_offered() -> None:
    assert complete(f"127.0.0.1:{free_port()}", "topics describe or") == []


def test_checks_of_the_doctor() -> None:
    assert complete(f"127.0.0.1:{free_port()}", "doctor --only disk") == ["disk-space"]
