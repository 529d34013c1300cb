"""Runs every example of the client's pages and the README, unchanged, against a broker with a topic `orders`."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.client.sync import Producer
from rookery.testing import EmbeddedBroker

ROOT = Path(__file__).resolve().parent.parent.parent
GUIDE = ROOT / "docs" / "client.md"
PAGES = (ROOT / "README.md", GUIDE, ROOT / "docs" / "client-metrics.md", ROOT / "docs" / "lag.md")
ADDRESS = "localhost:9092"
# The section whose example needs a Spark session: tests/spark/test_readme.py runs it.
SPARK_SECTION = "In your Spark jobs"
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples() -> Iterator[object]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for number, match in enumerate(_EXAMPLE.finditer(text), start=1):
            heading = next(reversed(_HEADING.findall(text[: match.start()])), "")
            line = text.count("\n", 0, match.start()) + 1
            if heading == SPARK_SECTION:
                continue
            yield pytest.param(match[1], page, line, id=f"{page.stem}-{number}-{heading.replace(' ', '-')}")


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        running.create_topic("orders", partitions=3)
        with Producer[bytes, bytes]({"bootstrap.servers": running.bootstrap_servers}) as producer:
            for number in range(60):
                producer.send("orders", b"order %d" % number, partition=number % 3)
        yield running


@pytest.mark.parametrize(("source", "page", "line"), list(examples()))
def test_example(broker: EmbeddedBroker, source: str, page: Path, line: int) -> None:
    assert ADDRESS in source
    padded = "\n" * line + source.replace(ADDRESS, broker.bootstrap_servers)
    exec(compile(padded, str(page), "exec"), {"__name__": "__main__"})


def test_the_guide_has_synchronous_and_asyncio_examples_of_all_clients() -> None:
    text = "".join(_EXAMPLE.findall(GUIDE.read_text(encoding="utf-8")))
    for name in ("Producer", "Consumer", "Admin"):
        assert re.search(rf"from rookery\.client import .*\b{name}\b", text), name
        assert re.search(rf"from rookery\.client\.sync import .*\b{name}\b", text), name
