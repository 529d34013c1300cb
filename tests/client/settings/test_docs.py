from pathlib import Path

from rookery.client.settings import ADMIN_KEYS, CONSUMER_KEYS, PRODUCER_KEYS, docs

PAGE = Path(__file__).parents[3] / "docs" / "client-config.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == docs.render(), "run: python -m rookery.client.settings.docs > docs/client-config.md"


def test_every_key_is_on_the_page() -> None:
    page = docs.render()
    for key in [*PRODUCER_KEYS.values(), *CONSUMER_KEYS.values(), *ADMIN_KEYS.values()]:
        assert key.internal or f"| `{key.name}` |" in page
