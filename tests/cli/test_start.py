"""`rookery start`: the parser of plain options, which must agree with typer, and the modules that a start imports."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rookery.cli import start
from rookery.cli.broker import StartOptions, plain_options
from rookery.cli.commands import app

# All imports happen before the settings are checked.
START_AND_LIST_MODULES = """
import sys
before = set(sys.modules)
from rookery.cli.main import main
sys.argv = ["rookery", "start", "--set", "node.id=none"]
try:
    main()
except SystemExit as error:
    assert error.code == 2
    print(*(name for name, module in sys.modules.items() if module is not None and name not in before))
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "server.properties"
    path.write_text("node.id=3\n")
    return str(path)


def parsed_by_typer(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> StartOptions | None:
    """Return the options that typer parses; None if it refuses the arguments or only shows the help."""
    run: list[StartOptions] = []
    monkeypatch.setattr(start, "run_broker", run.append)
    CliRunner().invoke(app, ["start", *arguments])
    return run[0]._replace(settings=list(run[0].settings)) if run else None


def test_plain_options_are_parsed_as_by_typer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, config: str) -> None:
    for arguments in (
        [],
        ["--listen", "127.0.0.1:0"],
        ["--listen=[::1]:9092", f"--data-dir={tmp_path}"],
        ["--set", "a=b", "--set=c=d=e", "--data-dir", str(tmp_path / "new"), "--config", config],
        ["--listen", "127.0.0.1:1", "--listen", "127.0.0.1:2"],
    ):
        options = plain_options(arguments)
        assert options is not None, arguments
        assert options == parsed_by_typer(monkeypatch, *arguments), arguments


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["-c", "server.properties"],
        ["--lis", "127.0.0.1:0"],
        ["--listen"],
        ["--listen", "--set", "a=b"],
        ["--listen="],
        ["--no-such-option", "1"],
        ["--config", "no/such/file"],
        ["surplus"],
        ["--", "surplus"],
    ],
)
def test_other_options_are_left_to_typer(arguments: list[str]) -> None:
    assert plain_options(arguments) is None


def test_a_data_directory_that_is_a_file_is_not_plain(config: str) -> None:
    assert plain_options(["--data-dir", config]) is None


def test_starting_imports_nothing_that_a_broker_does_not_need() -> None:
    """Imports take most of the time of a start: a new module in this list needs a good reason."""
    command = [sys.executable, "-c", START_AND_LIST_MODULES]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "rookery.node.node" in loaded
    assert "rookery.cli.commands" not in loaded
    packages = {name.partition(".")[0] for name in loaded}
    heavy = {"typer", "click", "pydantic", "rich", "pygments", "markdown_it", "hypothesis", "kio", "numpy", "pyarrow"}
    assert heavy.isdisjoint(packages)
    assert {"email", "http", "html", "zipfile", "xml", "multiprocessing", "unittest", "difflib"}.isdisjoint(packages)
    assert [name for name in loaded if name.startswith(("rookery.client", "rookery.testing"))] == []
    own = [name for name in loaded if name.startswith("rookery")]
    assert len(own) < 470, "our own modules"
    assert len(loaded) - len(own) < 180, "those of libraries"
