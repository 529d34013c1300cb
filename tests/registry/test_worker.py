"""Schemas are parsed in a thread of their own: the state stands still for it, and the event loop does not."""

import asyncio
import threading
from collections.abc import Mapping

import httpx
import pytest

from rookery.registry import candidates
from rookery.registry.node import RegistryNode
from rookery.registry.worker import SchemaWorker
from rookery.schemas.formats import find_format
from rookery.schemas.interface import ParsedSchema, Reference, SchemaType
from rookery.testing import EmbeddedBroker
from tests.registry.players import BROKER_SETTINGS, settings_of
from tests.registry.rest.memory import MemoryRegistry, Rest
from tests.registry.rest.samples import CUSTOMER


class Block:
    """Work that stands still, when it has begun, until `go_on`."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.thread: threading.Thread | None = None

    def __call__(self) -> str:
        self.thread = threading.current_thread()
        self.begun.set()
        assert self.go_on.wait(60)
        return "done"

    async def has_begun(self) -> None:
        while not self.begun.is_set():
            await asyncio.sleep(0.001)


def test_work_is_done_in_another_thread_one_after_the_other() -> None:
    async def scenario() -> None:
        worker, first, second = SchemaWorker(), Block(), Block()
        tasks = [asyncio.create_task(worker.run(first)), asyncio.create_task(worker.run(second))]
        await first.has_begun()
        for _ in range(100):
            await asyncio.sleep(0)
        assert not second.begun.is_set()
        first.go_on.set()
        second.go_on.set()
        assert await asyncio.gather(*tasks) == ["done", "done"]
        assert first.thread is second.thread is not threading.current_thread()
        await worker.close()

    asyncio.run(scenario())


def test_a_cancelled_caller_does_not_let_the_state_change_under_its_work() -> None:
    async def scenario() -> None:
        worker, block, dropped = SchemaWorker(), Block(), Block()
        asking = asyncio.create_task(worker.run(block))
        await block.has_begun()
        waiting = asyncio.create_task(worker.run(dropped))
        await asyncio.sleep(0)
        for task in (asking, waiting):
            task.cancel()
        await asyncio.wait([asking, waiting])
        assert worker.turn.locked(), "the thread still looks at the state"
        block.go_on.set()
        async with worker.turn:
            assert not dropped.begun.is_set(), "what has not begun is dropped"
        await worker.close()

    asyncio.run(scenario())


def test_an_error_is_the_caller_s_and_the_next_has_its_turn() -> None:
    async def scenario() -> None:
        worker = SchemaWorker()
        with pytest.raises(ZeroDivisionError):
            await worker.run(lambda: 1 // 0)
        assert await worker.run(lambda: 1) == 1
        await worker.close()
        with pytest.raises(RuntimeError):
            await worker.run(lambda: 1)
        assert not worker.turn.locked()

    asyncio.run(scenario())


def test_the_end_waits_for_what_has_begun() -> None:
    async def scenario() -> None:
        worker, block = SchemaWorker(), Block()
        asking = asyncio.create_task(worker.run(block))
        await block.has_begun()
        closing = asyncio.create_task(worker.close())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not closing.done()
        block.go_on.set()
        await closing
        assert await asking == "done"

    asyncio.run(scenario())


class BlockedFormat:
    """Avro, which stands still while it parses a schema with "Large" in its text."""

    def __init__(self, block: Block) -> None:
        self.block = block

    def parse(
        self, text: str, resolved: Mapping[str, str] = {}, references: tuple[Reference, ...] = ()
    ) -> ParsedSchema:
        if "Large" in text:
            self.block()
        return find_format("AVRO").parse(text, resolved, references)

    parse_registered = parse
    check = staticmethod(find_format("AVRO").check)


def test_a_registry_serves_others_while_it_parses(monkeypatch: pytest.MonkeyPatch) -> None:
    block = Block()
    blocked = BlockedFormat(block)

    def find(schema_type: SchemaType) -> BlockedFormat:
        return blocked

    monkeypatch.setattr(candidates, "find_format", find)
    large = '{"type":"enum","name":"Large","symbols":["A"]}'

    async def scenario(broker: EmbeddedBroker) -> None:
        node = RegistryNode(settings_of(broker))
        await node.start()
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
                await client.post(f"{node.url}/subjects/a/versions", json={"schema": '"string"'})
                asking = asyncio.create_task(client.post(f"{node.url}/subjects/large/versions", json={"schema": large}))
                await block.has_begun()
                assert (await client.get(f"{node.url}/subjects")).json() == ["a"]
                assert (await client.get(f"{node.url}/schemas/ids/1")).json() == {"schema": '"string"'}
                assert (await client.get(f"{node.url}/config")).json() == {"compatibilityLevel": "BACKWARD"}
                assert not asking.done()
                block.go_on.set()
                assert (await asking).json() == {"id": 2}
                assert block.thread is not threading.current_thread()
        finally:
            block.go_on.set()
            await node.stop()

    with EmbeddedBroker(settings=BROKER_SETTINGS) as broker:
        asyncio.run(scenario(broker))


def test_only_what_parses_goes_to_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    ask = MemoryRegistry.ask
    path = ""

    async def watched(registry: MemoryRegistry, query: object) -> object:
        asked.append(path)
        return await ask(registry, query)  # type: ignore[arg-type]  # whatever it is

    monkeypatch.setattr(MemoryRegistry, "ask", watched)
    rest = Rest()
    rest.register("s", CUSTOMER)
    for path in ("/subjects", "/subjects/s/versions/1", "/schemas/ids/1", "/config", "/schemas"):
        rest.get(path)
    assert asked == []
    for path in ("/subjects/s/versions/1?format=resolved", "/schemas/ids/1?format=resolved"):
        rest.get(path)
    for path in ("/subjects/s", "/compatibility/subjects/s/versions", "/compatibility/subjects/s/versions/1"):
        rest.post(path, {"schema": CUSTOMER})
    assert len(asked) == 5
    rest.put("/config", {"compatibility": "NONE", "alias": None, "ignored": "x" * 100_000})
    assert len(asked) == 6, "a large body is decoded there"
