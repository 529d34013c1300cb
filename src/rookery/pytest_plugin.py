"""The pytest plugin: fixtures `rookery` (a broker per test) and `rookery_session` (one for the whole run).

`rookery_schema_registry` is the address of a schema registry: asking for it gives the test's broker one.

pytest imports this module at every start, in projects that use it and in those that do not: what is heavy is imported
by the fixtures.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rookery.testing import EmbeddedBroker

_MARKER = (
    'rookery(settings={...}, mode="thread", schema_registry=False): how the broker of the fixture `rookery` is started'
)
_REGISTRY_FIXTURE = "rookery_schema_registry"
_INI_HELP = "settings of the embedded brokers, one key=value per line"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("rookery_settings", _INI_HELP, type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def rookery(request: pytest.FixtureRequest) -> "Iterator[EmbeddedBroker]":
    """A fresh broker for this test; `@pytest.mark.rookery(settings={...})` says how it is started."""
    from rookery.testing import EmbeddedBroker

    marker = request.node.get_closest_marker("rookery")
    options: dict[str, Any] = dict(marker.kwargs) if marker is not None else {}
    settings = _ini_settings(request.config) | dict(options.pop("settings", None) or {})
    if _REGISTRY_FIXTURE in request.fixturenames:
        options.setdefault("schema_registry", True)
    with EmbeddedBroker(settings=settings, **options) as broker:
        yield broker


@pytest.fixture
def rookery_schema_registry(rookery: "EmbeddedBroker") -> str:
    """The URL of the schema registry that the fixture `rookery` then has."""
    return rookery.schema_registry_url


@pytest.fixture(scope="session")
def rookery_session(pytestconfig: pytest.Config) -> "Iterator[EmbeddedBroker]":
    """One broker for the whole run: give every test topics of its own."""
    from rookery.testing import EmbeddedBroker

    with EmbeddedBroker(settings=_ini_settings(pytestconfig)) as broker:
        yield broker


def _ini_settings(config: pytest.Config) -> dict[str, str]:
    lines = [line.partition("=") for line in config.getini("rookery_settings")]
    return {key.strip(): value.strip() for key, _, value in lines}
