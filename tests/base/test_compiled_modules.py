"""The list of compiled modules in pyproject.toml (docs/decisions/0008)."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def classes(path: Path) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef))


def test_no_interpreted_class_inherits_from_a_compiled_one() -> None:
    """Mypyc forbids it when an instance is made: only the requests that need the class would fail."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    compiled = {ROOT / name for name in wheel["hooks"]["mypyc"]["include"]}
    names = {each.name for path in compiled for each in classes(path)}
    assert names
    interpreted = [
        f"{path.relative_to(ROOT)}: {each.name}"
        for path in (ROOT / "src").rglob("*.py")
        if path not in compiled
        for each in classes(path)
        if names & {ast.unparse(base).rpartition(".")[2] for base in each.bases}
    ]
    assert interpreted == []
