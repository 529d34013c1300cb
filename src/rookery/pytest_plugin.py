"""The pytest plugin: fixtures `rookery` (a broker per test) and `rookery_session` (one for the whole run).

`rookery_schema_registry` is the URL of a schema registry: a test that requests it gets a broker with one.

pytest imports this module at every start, also in projects that do not use it. Heavy imports are therefore in the
fixtures.
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
    """A new broker for this test; `@pytest.mark.rookery(settings={...})` configures it."""
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
    """The URL of the schema registry of the fixture `rookery`."""
    return rookery.schema_registry_url


@pytest.fixture(scope="session")
def rookery_session(pytestconfig: pytest.Config) -> "Iterator[EmbeddedBroker]":
    """One broker for the whole test run: every test should use its own topics."""
    from rookery.testing import EmbeddedBroker

    with EmbeddedBroker(settings=_ini_settings(pytestconfig)) as broker:
        yield broker


def _ini_settings(config: pytest.Config) -> dict[str, str]:
    lines = [line.partition("=") for line in config.getini("rookery_settings")]
    return {key.strip(): value.strip() for key, _, value in lines}
