import pytest
from typer.testing import CliRunner

from rookery.cli.commands import app


@pytest.mark.parametrize("command", [["topics", "create"], ["consume"], ["schemas", "config"], []])
def test_flags_show_no_type(command: list[str]) -> None:
    help_text = CliRunner().invoke(app, [*command, "--help"]).output
    assert "--help" in help_text
    assert "bool" not in help_text.lower()
