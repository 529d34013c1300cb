"""The pytest plugin: fixtures `rookery` (a broker per test), `rookery_cluster` (a cluster per test) and
`rookery_session` (one broker for the whole run).

`rookery_schema_registry` is the URL of a schema registry: a test that requests it gets a broker with one.

pytest imports this module at every start, also in projects that do not use it. Heavy imports are therefore in the
fixtures.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rookery.testing import EmbeddedBroker, EmbeddedCluster

_MARKER = (
    'rookery(settings={...}, mode="thread", schema_registry=False, brokers=3): how the broker of the fixture `rookery` '
    "is started, or the brokers of the fixture `rookery_cluster`"
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

    options = _marked_options(request)
    if options.pop("brokers", 1) != 1:
        raise pytest.UsageError("the fixture rookery is one broker: for a cluster, use rookery_cluster")
    if _REGISTRY_FIXTURE in request.fixturenames:
        options.setdefault("schema_registry", True)
    with EmbeddedBroker(**options) as broker:
        yield broker


@pytest.fixture
def rookery_cluster(request: pytest.FixtureRequest) -> "Iterator[EmbeddedCluster]":
    """A new cluster of three brokers for this test; `@pytest.mark.rookery(brokers=5)` configures it."""
    from rookery.testing import EmbeddedCluster

    with EmbeddedCluster(**_marked_options(request)) as cluster:
        yield cluster


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


def _marked_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    marker = request.node.get_closest_marker("rookery")
    options: dict[str, Any] = dict(marker.kwargs) if marker is not None else {}
    return options | {"settings": _ini_settings(request.config) | dict(options.get("settings") or {})}


def _ini_settings(config: pytest.Config) -> dict[str, str]:
    lines = [line.partition("=") for line in config.getini("rookery_settings")]
    return {key.strip(): value.strip() for key, _, value in lines}
