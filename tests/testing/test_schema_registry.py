"""The embedded broker with a schema registry: in a thread and in a process, with restarts, and as a fixture."""

import asyncio
import threading

import httpx
import pytest

from rookery.testing import EmbeddedBroker
from rookery.testing.embedded import Mode
from rookery.testing.thread import BrokerThread

pytest_plugins = ["pytester"]


def register(broker: EmbeddedBroker, subject: str) -> object:
    url = f"{broker.schema_registry_url}/subjects/{subject}/versions"
    return httpx.post(url, json={"schema": '"string"'}, trust_env=False).json()


def subjects(broker: EmbeddedBroker) -> object:
    return httpx.get(f"{broker.schema_registry_url}/subjects", trust_env=False).json()


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_schemas_survive_restarts_at_the_same_address(mode: Mode) -> None:
    with EmbeddedBroker(schema_registry=True, mode=mode) as broker:
        url = broker.schema_registry_url
        assert register(broker, "a") == {"id": 1}
        for clean in (True, False):
            broker.restart(clean=clean)
            assert broker.schema_registry_url == url
            assert subjects(broker) == ["a"]
            # Immediately, although the crashed registry did not leave its group.
            assert register(broker, "a") == {"id": 1}


def test_every_broker_has_its_own_registry() -> None:
    with EmbeddedBroker(schema_registry=True) as one, EmbeddedBroker(schema_registry=True) as other:
        register(one, "a")
        assert (subjects(one), subjects(other)) == (["a"], [])


def test_a_registry_works_after_time_was_advanced() -> None:
    with EmbeddedBroker(schema_registry=True) as broker:
        broker.advance_time(100)
        assert subjects(broker) == []


def _loops(broker: EmbeddedBroker) -> "list[asyncio.SelectorEventLoop]":
    runner = broker._running()
    assert isinstance(runner, BrokerThread)
    assert len(runner._loops) == 2, "the broker's and the registry's"
    return [*runner._loops]


def test_time_is_also_advanced_for_the_registry() -> None:
    with EmbeddedBroker(schema_registry=True) as broker:
        fired = [threading.Event(), threading.Event()]
        for loop, event in zip(_loops(broker), fired, strict=True):
            asyncio.run_coroutine_threadsafe(_set_later(event), loop).result()
        broker.advance_time(2000)
        assert all(event.is_set() for event in fired)


async def _set_later(event: threading.Event) -> None:
    asyncio.get_running_loop().call_later(1000, event.set)


def test_the_registry_of_a_paused_broker_is_paused() -> None:
    with EmbeddedBroker(schema_registry=True) as broker:
        broker.pause()
        resumed = [threading.Event(), threading.Event()]
        for loop, event in zip(_loops(broker), resumed, strict=True):
            loop.call_soon_threadsafe(event.set)
        assert not any(event.is_set() for event in resumed)
        broker.resume()
        assert all(event.wait(60) for event in resumed)
        assert subjects(broker) == []


def test_settings_of_the_registry_are_passed_on() -> None:
    settings = {"schema.registry.schema.compatibility.level": "full"}
    with EmbeddedBroker(schema_registry=True, settings=settings) as broker:
        found = httpx.get(f"{broker.schema_registry_url}/config", trust_env=False).json()
        assert found == {"compatibilityLevel": "FULL"}


def test_there_is_no_url_without_a_registry() -> None:
    with EmbeddedBroker() as broker, pytest.raises(RuntimeError, match="pass schema_registry=True"):
        _ = broker.schema_registry_url
    with pytest.raises(RuntimeError, match="not started"):
        _ = EmbeddedBroker(schema_registry=True).schema_registry_url
    with pytest.raises(ValueError, match="use schema_registry=True"):
        EmbeddedBroker(settings={"schema.registry.listeners": "http://:1"})


def test_the_fixture_adds_a_registry_to_the_tests_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import httpx
        import pytest

        def test_fixture(rookery, rookery_schema_registry):
            assert rookery_schema_registry == rookery.schema_registry_url
            assert httpx.get(rookery_schema_registry + "/subjects", trust_env=False).json() == []

        @pytest.mark.rookery(schema_registry=True)
        def test_marker(rookery):
            assert rookery.schema_registry_url.startswith("http://127.0.0.1:")

        def test_without(rookery):
            with pytest.raises(RuntimeError):
                rookery.schema_registry_url
    """)
    pytester.runpytest("--strict-markers").assert_outcomes(passed=3)
