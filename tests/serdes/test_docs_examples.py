"""Runs every example of docs/serdes.md unchanged against a broker with a registry."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from rookery.testing import EmbeddedBroker
from tests.serdes.messages import Customer

GUIDE = Path(__file__).resolve().parent.parent.parent / "docs" / "serdes.md"
BROKER = "localhost:9092"
REGISTRIES = ("http://localhost:8081", "http://127.0.0.1:8081")
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples() -> Iterator[object]:
    text = GUIDE.read_text(encoding="utf-8")
    for match in _EXAMPLE.finditer(text):
        heading = next(reversed(_HEADING.findall(text[: match.start()])))
        yield pytest.param(match[1], text.count("\n", 0, match.start()) + 1, id=heading.replace(" ", "-"))


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(schema_registry=True) as running:
        running.create_topic("customers")
        yield running


@pytest.fixture(autouse=True)
def generated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide the module that protoc would generate."""
    module = ModuleType("customer_pb2")
    module.Customer = Customer  # type: ignore[attr-defined]  # attributes of a dynamic module
    monkeypatch.setitem(sys.modules, "customer_pb2", module)


@pytest.mark.parametrize(("source", "line"), list(examples()))
def test_example(broker: EmbeddedBroker, source: str, line: int) -> None:
    assert REGISTRIES[0] in source
    for registry in REGISTRIES:
        source = source.replace(registry, broker.schema_registry_url)
    padded = "\n" * line + source.replace(BROKER, broker.bootstrap_servers)
    exec(compile(padded, str(GUIDE), "exec"), {"__name__": "__main__"})


def test_the_guide_has_examples_of_all_formats() -> None:
    text = "".join(_EXAMPLE.findall(GUIDE.read_text(encoding="utf-8")))
    for name in ("Avro", "JSONSchema", "Protobuf"):
        assert f"{name}Serializer(" in text
        assert f"{name}Deserializer(" in text
