"""The commands that pages mention exist, with their options."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rookery.cli.commands import app

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("cluster.md", "coming-from.md", "deployment.md", "operations.md")


def commands() -> list[str]:
    texts = [(DOCS / page).read_text(encoding="utf-8") for page in PAGES]
    return sorted({found for text in texts for found in re.findall(r"`rookery ((?:\w[\w-]*)[^`\n]*)`", text)})


@pytest.mark.parametrize("command", commands())
def test_a_command_exists(command: str) -> None:
    """Unknown commands and options are refused even if `--help` is given."""
    result = CliRunner().invoke(app, [*shlex.split(command), "--help"])
    assert result.exit_code == 0, result.output


def test_pages_have_commands() -> None:
    assert len(commands()) > 20
