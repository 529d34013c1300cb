"""Wrong usage, and what the commands import; `test_end_to_end` tests what they do."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rookery.cli.commands import app

GUIDE = Path(__file__).parents[2] / "docs" / "cli.md"
EXAMPLES = re.findall(r"^(?:.*\| )?rookery (.+?)(?:  +#.*)?$", GUIDE.read_text(), re.MULTILINE)
UNREACHABLE = ["-b", "127.0.0.1:1"]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["start"],
        ["topics"],
        *(["topics", name] for name in ("create", "list", "describe", "alter", "delete")),
        ["produce"],
        ["consume"],
        ["groups"],
        *(["transactions", name] for name in ("list", "describe", "describe-producers", "abort", "find-hanging")),
        ["configs", "describe"],
        ["configs", "alter"],
        *(["features", name] for name in ("describe", "upgrade", "downgrade")),
        ["log", "dump"],
        ["cluster", "describe"],
        *(["brokers", name] for name in ("list", "describe", "drain", "unregister")),
        *(["quorum", name] for name in ("status", "add", "remove")),
        ["partitions", "elect"],
        *(["reassign", name] for name in ("plan", "execute", "list", "verify", "cancel")),
    ],
)
def test_every_command_has_help(command: list[str]) -> None:
    result = invoke(*command, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_version() -> None:
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("rookery ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["topics", "create"], "Missing argument"),
        (["topics", "create", "t", "--partitions", "0"], "--partitions"),
        (["topics", "create", "t", "--set", "novalue"], "must have the form key=value"),
        (["topics", "alter", "t"], "nothing to change"),
        (["configs", "alter", "topic", "t"], "nothing to change"),
        (["configs", "alter", "topic", "t", "--set", "a=1", "--delete", "a"], "both set and deleted"),
        (["configs", "describe", "broker", "x"], "must be a broker's id"),
        (["configs", "describe", "planet", "x"], "planet"),
        (["consume", "t", "--from", "middle"], "must be beginning, end"),
        (["consume", "t", "--format", "%z"], "is not a field"),
        (["produce", "t", "--key", "a", "--key-separator", ":"], "not both"),
        (["produce", "t", "--acks", "2"], "--acks"),
        (["produce", "t", "--file", "/no/such/file"], "--file"),
        (["transactions", "list", "--state", "tired"], "must be one of"),
        (["transactions", "describe"], "Missing argument"),
        (["transactions", "find-hanging", "--partition", "0"], "needs --topic"),
        (["transactions", "abort"], "name no transaction"),
        (["transactions", "abort", "-t", "t", "-p", "0"], "name no transaction"),
        (["transactions", "abort", "-t", "t", "--start-offset", "5"], "name no transaction"),
        (["transactions", "abort", "-t", "t", "-p", "0", "--producer-id", "1"], "name no transaction"),
        (["transactions", "abort", "--transactional-id", "x", "-t", "t"], "cannot be combined"),
        (["features", "upgrade", "transaction.version"], "must have the form key=value"),
        (["features", "upgrade", "transaction.version=two"], "must be a number, not 'two'"),
        (["features", "downgrade", "a=1", "a=0"], "named twice"),
        (["log", "dump", "/no/such/file"], "does not exist"),
        (["topics", "list", "-b", "host:port"], "is not a bootstrap server"),
        (["unknown"], "unknown"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    "arguments",
    [["topics", "list"], ["topics", "create", "t"], ["consume", "t"], ["configs", "describe", "topic", "t"]],
)
def test_an_unreachable_cluster_exits_with_1_and_a_sentence(arguments: list[str]) -> None:
    result = invoke(*arguments, *UNREACHABLE)
    assert result.exit_code == 1
    assert "error: cannot connect to 127.0.0.1:1: Connection refused; is the broker running" in result.stderr
    assert result.stdout == ""


def test_deleting_without_a_terminal_needs_yes() -> None:
    result = invoke("topics", "delete", "t", *UNREACHABLE)
    assert result.exit_code == 1
    assert "--yes" in result.stderr


def test_the_bootstrap_server_can_come_from_the_environment() -> None:
    result = CliRunner(env={"ROOKERY_BOOTSTRAP_SERVER": "127.0.0.1:2"}).invoke(app, ["topics", "list"])
    assert "cannot connect to 127.0.0.1:2" in result.stderr


def test_declaring_the_commands_imports_nothing_heavy() -> None:
    """Help and completion must be instant: a command imports what it needs when it runs."""
    script = "import sys, rookery.cli.commands; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"kio", "cramjam", "crc32c", "pyarrow", "uvloop", "asyncio", "structlog", "prometheus_client", "rich"}
    assert heavy.isdisjoint(loaded)
    assert [name for name in loaded if name.startswith(("rookery.client.", "rookery.storage.", "rookery.node."))] == []


def test_consuming_imports_neither_column_libraries_nor_uvloop() -> None:
    modules = "rookery.cli.session, rookery.client.produce.producer, rookery.client.consume.consumer"
    script = f"import sys, {modules}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert {"pyarrow", "uvloop", "numpy"}.isdisjoint(loaded)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_guides_examples_name_commands_and_options_that_exist(example: str) -> None:
    """Unknown commands and options are refused even if `--help` is given."""
    result = invoke(*shlex.split(example), "--help")
    assert result.exit_code == 0, result.output


def test_the_guide_has_an_example_of_every_command() -> None:
    assert len(EXAMPLES) > 20
    for command in (
        "start",
        "topics create",
        "topics alter",
        "produce",
        "consume",
        "groups describe",
        "transactions abort",
        "configs alter",
        "features upgrade",
        "cluster describe",
        "brokers drain",
        "quorum status",
        "partitions elect",
        "reassign plan",
        "log dump",
        "log repair",
    ):
        assert any(example.startswith(command) for example in EXAMPLES), command


@pytest.mark.parametrize("arguments", [["produce", "t", "--records", "1"], ["consume", "t"]])
def test_columns_are_compiled_before_the_measurement(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    @contextmanager
    def working(what: str) -> Iterator[None]:
        shown.append(what)
        yield

    monkeypatch.setattr("rookery.cli.progress.working", working)
    assert invoke("perf", *arguments, "--columns", *UNREACHABLE).exit_code == 1
    assert shown == ["compiling the code for columns (once per machine)"]
