"""`rookery schemas` against a registry in this process."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rookery.cli.commands import app
from rookery.testing import EmbeddedBroker

ID = {"name": "id", "type": "int"}
FAX_NUMBER = {"name": "faxNumber", "type": ["null", "string"], "default": None}
CUSTOMER = {"type": "record", "name": "Customer", "fields": [ID, FAX_NUMBER]}
WITH_EMAIL = {**CUSTOMER, "fields": [ID, {"name": "email", "type": "string"}]}


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with EmbeddedBroker(schema_registry=True) as broker:
        yield broker.schema_registry_url


class Shell:
    """Runs commands for one test, with its own subject and directory."""

    def __init__(self, registry: str, directory: Path, subject: str) -> None:
        self.registry = registry
        self.subject = subject
        self._directory = directory

    def run(self, *arguments: str, stdin: str = "", exit_code: int = 0) -> Result:
        environment = {"ROOKERY_SCHEMA_REGISTRY": self.registry}
        result = CliRunner(env=environment).invoke(app, ["schemas", *arguments], input=stdin)
        assert result.exit_code == exit_code, result.output
        return result

    def json(self, *arguments: str) -> object:
        return json.loads(self.run(*arguments, "--json").stdout)

    def file(self, name: str, content: object) -> str:
        path = self._directory / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return str(path)


@pytest.fixture
def shell(registry: str, tmp_path: Path, request: pytest.FixtureRequest) -> Shell:
    return Shell(registry, tmp_path, f"{request.node.name}-value")


def test_a_schema_is_registered_once_and_printed_on_several_lines(shell: Shell) -> None:
    file = shell.file("customer.avsc", CUSTOMER)
    first = shell.run("register", shell.subject, file).stdout
    assert first.startswith(f"{shell.subject} version 1 has id ")
    assert shell.run("register", shell.subject, file).stdout == first
    printed = shell.run("get", shell.subject).stdout
    assert json.loads(printed) == CUSTOMER
    assert len(printed.splitlines()) > 5
    described = shell.json("get", shell.subject)
    assert isinstance(described, dict)
    by_id = shell.json("get", "--id", str(described["id"]))
    assert isinstance(by_id, dict)
    assert by_id["schema"] == described["schema"]


def test_incompatibilities_are_explained_and_shown(shell: Shell) -> None:
    shell.run("register", shell.subject, shell.file("customer.avsc", CUSTOMER))
    changed = shell.file("changed.avsc", WITH_EMAIL)
    refused = shell.run("check", shell.subject, changed, exit_code=1)
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in refused.stderr
    assert "oldSchema" not in refused.stderr
    lines = refused.stderr.splitlines()
    assert any(line.startswith("-") and "faxNumber" in line for line in lines)
    assert any(line.startswith("+") and "email" in line for line in lines)
    not_registered = shell.run("register", shell.subject, changed, exit_code=1)
    assert "not registered" in not_registered.stderr
    found = shell.run("check", shell.subject, changed, "--json", exit_code=1).stdout
    assert json.loads(found)["is_compatible"] is False
    shell.run("config", shell.subject, "--level", "none")
    assert shell.run("check", shell.subject, changed).stdout == f"compatible with {shell.subject}\n"
    shell.run("register", shell.subject, changed)
    assert [row["version"] for row in shell.json("list", shell.subject)] == [1, 2]  # type: ignore[attr-defined]


def test_types_by_extension_and_references(shell: Shell) -> None:
    shell.run("register", shell.subject, shell.file("s.json", {"type": "object"}))
    proto = 'syntax = "proto3";\nmessage A {\n  int32 number = 1;\n}\n'
    shell.run("register", f"{shell.subject}.proto", shell.file("a.proto", proto))
    user = 'syntax = "proto3";\nimport "a.proto";\nmessage B {\n  A a = 1;\n}\n'
    reference = f"a.proto={shell.subject}.proto:1"
    shell.run("register", f"{shell.subject}.user", "-", "--type", "protobuf", "--reference", reference, stdin=user)
    rows = shell.run("list", "--prefix", shell.subject).stdout.splitlines()
    assert rows[0].split() == ["SUBJECT", "LATEST", "ID", "TYPE", "REFERENCES"]
    assert [row.split()[3] for row in rows[1:]] == ["JSON", "PROTOBUF", "PROTOBUF"]
    assert rows[3].split()[4] == f"{shell.subject}.proto:1"
    assert "import" in shell.run("get", f"{shell.subject}.user").stdout


def test_deleting(shell: Shell) -> None:
    file = shell.file("customer.avsc", CUSTOMER)
    shell.run("register", shell.subject, file)
    assert "add --yes" in shell.run("delete", shell.subject, exit_code=1).stderr
    assert shell.run("delete", shell.subject, "--version", "1", "-y").stdout == f"deleted {shell.subject}, version 1\n"
    assert "40401" in shell.run("get", shell.subject, exit_code=1).stderr
    assert shell.json("list", "--prefix", shell.subject) == []
    assert len(shell.json("list", "--prefix", shell.subject, "--deleted")) == 1  # type: ignore[arg-type]
    shell.run("delete", shell.subject, "--version", "1", "--permanent", "-y")
    assert shell.json("list", "--prefix", shell.subject, "--deleted") == []


def test_config_and_mode(shell: Shell) -> None:
    assert shell.run("config").stdout == "all subjects: BACKWARD\n"
    assert shell.run("config", shell.subject, "--level", "FULL_TRANSITIVE").stdout == (
        f"{shell.subject}: FULL_TRANSITIVE\n"
    )
    assert shell.run("config", shell.subject, "--reset").stdout == f"{shell.subject}: BACKWARD\n"
    assert shell.run("config", shell.subject, "--policy", "lenient").stdout == f"{shell.subject}: BACKWARD, LENIENT\n"
    assert shell.json("config", shell.subject) == {
        "subject": shell.subject,
        "compatibility_level": "BACKWARD",
        "normalize": None,
        "compatibility_policy": "LENIENT",
    }
    assert shell.run("mode", shell.subject, "--to", "READONLY").stdout == f"{shell.subject}: READONLY\n"
    refused = shell.run("register", shell.subject, shell.file("customer.avsc", CUSTOMER), exit_code=1)
    assert "42205" in refused.stderr
    assert shell.json("mode") == {"subject": None, "mode": "READWRITE"}


@pytest.mark.parametrize(
    ("arguments", "exit_code", "reason"),
    [
        (["get"], 2, "either a subject or --id"),
        (["get", "s", "--version", "first"], 2, "must be a number or latest"),
        (["register", "s", "schema.txt"], 2, "AVRO, JSON, PROTOBUF"),
        (["register", "s", "absent.avsc"], 1, "absent.avsc"),
        (["register", "s", "-", "--type", "avro", "--reference", "x=y"], 2, "NAME=SUBJECT:VERSION"),
        (["get", "nowhere"], 1, "40401"),
        (["config", "--level", "SIDEWARD"], 1, "42203"),
        (["config", "--policy", "LOGICAL"], 1, "42203"),
    ],
)
def test_mistakes(shell: Shell, arguments: list[str], exit_code: int, reason: str) -> None:
    assert reason in shell.run(*arguments, exit_code=exit_code).stderr


def test_an_unreachable_registry(tmp_path: Path) -> None:
    shell = Shell("http://127.0.0.1:9", tmp_path, "s")
    assert "http://127.0.0.1:9" in shell.run("list", exit_code=1).stderr
