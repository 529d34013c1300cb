"""The functions and classes that docs/data-path.md names exist, in the modules that it links to."""

import ast
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "data-path.md").read_text(encoding="utf-8")
# `Class`, `Class.method` or `function`; other words in backquotes are settings, fields and files.
NAME = r"`(_?[A-Za-z]\w*(?:\.\w+)?)`"


def named() -> list[tuple[str, str]]:
    """Return (module, name) for each name that directly follows a link to a module."""
    pairs = re.findall(rf"\]\((\.\./src/[^)]+\.py)\)(?:,\s+|\s+\()((?:{NAME}(?:,\s+|\s+and\s+)?)+)\)", PAGE)
    return [(module, name) for module, names, *_ in pairs for name in re.findall(NAME, names)]


@pytest.mark.parametrize(("module", "name"), named())
def test_a_name_exists_in_its_module(module: str, name: str) -> None:
    tree = ast.parse((DOCS / module).read_text(encoding="utf-8"))
    scope: list[ast.stmt] = tree.body
    for part in name.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        found = next((node for node in scope if isinstance(node, kinds) and node.name == part), None)
        assert found is not None, f"{module} has no {name}"
        scope = found.body


def test_there_are_names_to_check() -> None:
    assert len(named()) > 25
