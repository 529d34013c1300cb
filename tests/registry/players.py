"""Registries for tests: settings of a test's broker, a service in a thread that can stand still, simple decisions."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from rookery.registry.decisions import Decision
from rookery.registry.election import NodeIdentity
from rookery.registry.records import SchemaValue, schema_record
from rookery.registry.service import RegistryService
from rookery.registry.settings import RegistrySettings
from rookery.registry.state import State
from rookery.testing import EmbeddedBroker

T = TypeVar("T")

BROKER_SETTINGS = {"group.min.session.timeout.ms": "100", "group.initial.rebalance.delay.ms": "0"}
# News are heard soon, and a machine that stands still for seconds changes nothing.
QUICK = {
    "kafkagroup.session.timeout.ms": "15000",
    "kafkagroup.heartbeat.interval.ms": "100",
    "kafkastore.timeout.ms": "60000",
}
# Of nodes that are to be missed: soon, and the broker lets them.
MISSED_SOON = {"kafkagroup.session.timeout.ms": "1500"}


def settings_of(broker: EmbeddedBroker, **changes: str) -> RegistrySettings:
    """`changes` with underscores for dots."""
    named = {key.replace("_", "."): value for key, value in changes.items()}
    base = {"kafkastore.bootstrap.servers": broker.bootstrap_servers, "listeners": "http://127.0.0.1:0"}
    return RegistrySettings.parse(base | QUICK | named)


def identity_of(port: int, *, eligible: bool = True) -> NodeIdentity:
    """Nodes with smaller ports are elected first; nothing listens there."""
    return NodeIdentity(host="127.0.0.1", port=port, master_eligibility=eligible)


def register(subject: str, text: str) -> Callable[[State], Decision[int]]:
    """The id of a schema: the one that it has, or the next. A subject's versions are counted."""

    def decide(state: State) -> Decision[int]:
        versions = state.versions(subject)
        for known in versions:
            if known.schema == text:
                return Decision((), known.id)
        wanted = SchemaValue(subject=subject, version=len(versions) + 1, id=0, schema=text)
        schema_id = next(iter(state.ids_of(wanted)), state.max_id(".") + 1)
        return Decision((schema_record(msgspec.structs.replace(wanted, id=schema_id)),), schema_id)

    return decide


def ids_of(state: State) -> dict[str, int]:
    """Text to id; every id belongs to one text."""
    found: dict[str, int] = {}
    for subject in state.subjects():
        for value in state.versions(subject):
            assert found.setdefault(value.schema, value.id) == value.id
    assert len(set(found.values())) == len(found)
    return found


@asynccontextmanager
async def running(broker: EmbeddedBroker, port: int, **changes: str) -> AsyncIterator[RegistryService]:
    service = RegistryService(settings_of(broker, **changes), identity_of(port))
    try:
        await service.start()
        yield service
    finally:
        await service.stop()


async def until(condition: Callable[[], bool], what: str, *, timeout_s: float = 30.0) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {timeout_s:g} s: {what}") from None


class ServiceThread:
    """A registry on an event loop of its own, which stands still while `pause` holds it, as a stopped process does."""

    def __init__(self, broker: EmbeddedBroker, port: int, **changes: str) -> None:
        self._settings = settings_of(broker, **changes)
        self._identity = identity_of(port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._going = threading.Event()
        self._going.set()
        self.service: RegistryService

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self._make())
        self.run(self.service.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.resume()
        self.run(self.service.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _make(self) -> None:
        self.service = RegistryService(self._settings, self._identity)

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.submit(work).result(60)

    def pause(self) -> None:
        self._going.clear()
        stands = threading.Event()
        self._loop.call_soon_threadsafe(self._stand_still, stands)
        stands.wait()

    def _stand_still(self, stands: threading.Event) -> None:
        stands.set()
        self._going.wait()

    def resume(self) -> None:
        self._going.set()
