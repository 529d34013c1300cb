"""The names that `rookery.client` exports, and the modules that importing them loads."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rookery.client

STUB = Path(rookery.client.__file__).with_suffix(".pyi")
HEAVY = {"pyarrow", "numpy", "numba", "prometheus_client", "uvloop", "pandas"}


def loaded_by(script: str) -> set[str]:
    command = [sys.executable, "-c", f"import sys; {script}; print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_type_checkers_see_the_same_names() -> None:
    stub = ast.parse(STUB.read_text(encoding="utf-8"))
    declared = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert declared == set(rookery.client.__all__) - {"__getattr__"}


@pytest.mark.parametrize("name", sorted(set(rookery.client.__all__) - {"__getattr__"}))
def test_every_name_is_what_the_stub_says(name: str) -> None:
    stub = ast.parse(STUB.read_text(encoding="utf-8"))
    (module,) = [
        node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]
    ]
    assert module is not None
    scope: dict[str, object] = {}
    exec(f"from {module} import {name} as stated", scope)
    assert getattr(rookery.client, name) is scope["stated"]


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="Produzer"):
        rookery.client.Produzer  # type: ignore[attr-defined]  # noqa: B018  # that is the point


@pytest.mark.parametrize(
    ("script", "others"),
    [
        ("import rookery.client.admin", ("rookery.client.produce", "rookery.client.consume", "rookery.client.sync")),
        ("from rookery.client import Admin", ("rookery.client.produce", "rookery.client.consume")),
        ("from rookery.client import Producer", ("rookery.client.consume", "rookery.client.admin")),
        ("from rookery.client import Consumer", ("rookery.client.produce", "rookery.client.admin")),
        ("import rookery.client.sync", ()),
    ],
)
def test_unneeded_modules_are_not_loaded(script: str, others: tuple[str, ...]) -> None:
    loaded = loaded_by(script)
    assert HEAVY.isdisjoint(loaded)
    assert [name for name in loaded if name.startswith(others) and others] == []
