"""Schemas are parsed in a separate thread: meanwhile the state does not change, and the event loop is not blocked."""

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
from tests.registry.rest.memory import MemoryRegistry, Rest
from tests.registry.rest.samples import CUSTOMER
from tests.registry.services import BROKER_SETTINGS, settings_of


class Block:
    """Work that blocks after its beginning until `resume` is set."""

    def __init__(self) -> None:
        self.begun, self.resume = threading.Event(), threading.Event()
        self.thread: threading.Thread | None = None

    def __call__(self) -> str:
        self.thread = threading.current_thread()
        self.begun.set()
        assert self.resume.wait(60)
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
        first.resume.set()
        second.resume.set()
        assert await asyncio.gather(*tasks) == ["done", "done"]
        assert first.thread is second.thread is not threading.current_thread()
        await worker.close()

    asyncio.run(scenario())


def test_work_of_a_cancelled_caller_keeps_the_lock() -> None:
    async def scenario() -> None:
        worker, block, dropped = SchemaWorker(), Block(), Block()
        running = asyncio.create_task(worker.run(block))
        await block.has_begun()
        waiting = asyncio.create_task(worker.run(dropped))
        await asyncio.sleep(0)
        for task in (running, waiting):
            task.cancel()
        await asyncio.wait([running, waiting])
        assert worker.lock.locked(), "the thread still reads the state"
        block.resume.set()
        async with worker.lock:
            assert not dropped.begun.is_set(), "work that has not begun is dropped"
        await worker.close()

    asyncio.run(scenario())


def test_an_error_is_raised_in_the_caller_and_releases_the_lock() -> None:
    async def scenario() -> None:
        worker = SchemaWorker()
        with pytest.raises(ZeroDivisionError):
            await worker.run(lambda: 1 // 0)
        assert await worker.run(lambda: 1) == 1
        await worker.close()
        with pytest.raises(RuntimeError):
            await worker.run(lambda: 1)
        assert not worker.lock.locked()

    asyncio.run(scenario())


def test_close_waits_for_work_in_progress() -> None:
    async def scenario() -> None:
        worker, block = SchemaWorker(), Block()
        running = asyncio.create_task(worker.run(block))
        await block.has_begun()
        closing = asyncio.create_task(worker.close())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not closing.done()
        block.resume.set()
        await closing
        assert await running == "done"

    asyncio.run(scenario())


class BlockedFormat:
    """The format Avro, which blocks while it parses a schema with "Large" in its text."""

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


def test_a_registry_serves_other_requests_while_it_parses(monkeypatch: pytest.MonkeyPatch) -> None:
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
                running = asyncio.create_task(
                    client.post(f"{node.url}/subjects/large/versions", json={"schema": large})
                )
                await block.has_begun()
                assert (await client.get(f"{node.url}/subjects")).json() == ["a"]
                assert (await client.get(f"{node.url}/schemas/ids/1")).json() == {"schema": '"string"'}
                assert (await client.get(f"{node.url}/config")).json() == {"compatibilityLevel": "BACKWARD"}
                assert not running.done()
                block.resume.set()
                assert (await running).json() == {"id": 2}
                assert block.thread is not threading.current_thread()
        finally:
            block.resume.set()
            await node.stop()

    with EmbeddedBroker(settings=BROKER_SETTINGS) as broker:
        asyncio.run(scenario(broker))


def test_only_requests_that_parse_use_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    paths: list[str] = []
    run_query = MemoryRegistry.run_query
    path = ""

    async def watched(registry: MemoryRegistry, query: object) -> object:
        paths.append(path)
        return await run_query(registry, query)  # type: ignore[arg-type]  # any query

    monkeypatch.setattr(MemoryRegistry, "run_query", watched)
    rest = Rest()
    rest.register("s", CUSTOMER)
    for path in ("/subjects", "/subjects/s/versions/1", "/schemas/ids/1", "/config", "/schemas"):
        rest.get(path)
    assert paths == []
    for path in ("/subjects/s/versions/1?format=resolved", "/schemas/ids/1?format=resolved"):
        rest.get(path)
    for path in ("/subjects/s", "/compatibility/subjects/s/versions", "/compatibility/subjects/s/versions/1"):
        rest.post(path, {"schema": CUSTOMER})
    assert len(paths) == 5
    rest.put("/config", {"compatibility": "NONE", "alias": None, "ignored": "x" * 100_000})
    assert len(paths) == 6, "a large body is decoded there"
