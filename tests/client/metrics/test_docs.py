from pathlib import Path

from rookery.client.metrics import docs
from rookery.client.metrics.names import DESCRIPTIONS

PAGE = Path(__file__).parents[3] / "docs" / "client-metrics.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == docs.render(), "run: python -m rookery.client.metrics.docs > docs/client-metrics.md"


def test_every_metric_is_on_the_page() -> None:
    page = docs.render()
    assert all(f"| `{name}` | {text} |" in page for name, text in DESCRIPTIONS.items())
