"""The names that `rookery.serdes` exports, and the libraries that they load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rookery.serdes

STUB = Path(rookery.serdes.__file__).with_suffix(".pyi")
NAMES = sorted(set(rookery.serdes.__all__) - {"__getattr__"})
LIBRARIES = {"fastavro", "jsonschema_rs", "google.protobuf", "httpx"}


def stated() -> dict[str, str | None]:
    """Return the module that the stub states for each name."""
    stub = ast.parse(STUB.read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in imports for alias in node.names}


def test_type_checkers_see_the_same_names() -> None:
    assert sorted(stated()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_what_the_stub_says(name: str) -> None:
    scope: dict[str, object] = {}
    exec(f"from {stated()[name]} import {name} as stated", scope)
    assert getattr(rookery.serdes, name) is scope["stated"]


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="YamlSerializer"):
        rookery.serdes.YamlSerializer  # type: ignore[attr-defined]  # noqa: B018  # the access must fail


@pytest.mark.parametrize(
    ("name", "libraries"),
    [
        ("Schema", set()),
        ("RegistryClient", {"httpx"}),
        ("AvroSerializer", {"httpx", "fastavro"}),
        ("JSONSchemaDeserializer", {"httpx", "jsonschema_rs"}),
        ("ProtobufDeserializer", {"httpx", "google.protobuf"}),
    ],
)
def test_a_format_does_not_load_the_others(name: str, libraries: set[str]) -> None:
    script = f"import sys; from rookery.serdes import {name}; print(*sys.modules)"
    command = [sys.executable, "-c", script]
    loaded = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert loaded & LIBRARIES == libraries
