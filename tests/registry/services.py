"""Registry services for tests: their settings, a service in a thread that can be paused, simple planned writes."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from rookery.registry.commands import PlannedWrite
from rookery.registry.election import NodeIdentity
from rookery.registry.records import SchemaValue, schema_record
from rookery.registry.service import RegistryService
from rookery.registry.settings import RegistrySettings
from rookery.registry.state import State
from rookery.testing import EmbeddedBroker

T = TypeVar("T")

BROKER_SETTINGS = {"group.min.session.timeout.ms": "100", "group.initial.rebalance.delay.ms": "0"}
# Short heartbeats for fast elections, and long time-outs, so that a slow machine does not change the result.
QUICK = {
    "kafkagroup.session.timeout.ms": "15000",
    "kafkagroup.heartbeat.interval.ms": "100",
    "kafkastore.timeout.ms": "60000",
}
# For nodes whose failure the group should notice soon. The brokers' minimum allows it.
SHORT_SESSION = {"kafkagroup.session.timeout.ms": "1500"}


def settings_of(broker: EmbeddedBroker, **changes: str) -> RegistrySettings:
    """Return settings; the names in `changes` have underscores instead of dots."""
    named = {key.replace("_", "."): value for key, value in changes.items()}
    base = {"kafkastore.bootstrap.servers": broker.bootstrap_servers, "listeners": "http://127.0.0.1:0"}
    return RegistrySettings.parse(base | QUICK | named)


def identity_of(port: int, *, eligible: bool = True) -> NodeIdentity:
    """Return an identity. Nodes with smaller ports are elected first; no process listens there."""
    return NodeIdentity(host="127.0.0.1", port=port, master_eligibility=eligible)


def register(subject: str, text: str) -> Callable[[State], PlannedWrite[int]]:
    """Return a plan that registers a schema; its result is the existing id or the next one."""

    def plan(state: State) -> PlannedWrite[int]:
        versions = state.versions(subject)
        for known in versions:
            if known.schema == text:
                return PlannedWrite((), known.id)
        value = SchemaValue(subject=subject, version=len(versions) + 1, id=0, schema=text)
        schema_id = next(iter(state.ids_of(value)), state.max_id(".") + 1)
        return PlannedWrite((schema_record(msgspec.structs.replace(value, id=schema_id)),), schema_id)

    return plan


def ids_of(state: State) -> dict[str, int]:
    """Return the ids by text, and check that every id belongs to one text."""
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
    """A registry on its own event loop, which `pause` blocks until `resume`, as if the process were stopped."""

    def __init__(self, broker: EmbeddedBroker, port: int, **changes: str) -> None:
        self._settings = settings_of(broker, **changes)
        self._identity = identity_of(port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._running = threading.Event()
        self._running.set()
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
        self._running.clear()
        is_paused = threading.Event()
        self._loop.call_soon_threadsafe(self._block, is_paused)
        is_paused.wait()

    def _block(self, is_paused: threading.Event) -> None:
        is_paused.set()
        self._running.wait()

    def resume(self) -> None:
        self._running.set()
