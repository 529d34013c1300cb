"""A node checks produced records against the registry's log, which the tests write as a registry does."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import SystemRandom
from typing import Any

import msgspec
import pytest

from rookery.base.clock import SystemClock
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.files import OsFiles
from rookery.base.types import TopicPartition
from rookery.broker import schema_checks
from rookery.client import Consumer, Producer, RecordMetadata
from rookery.client.admin import Admin, NewTopic
from rookery.node import registered_schemas
from rookery.node.node import Node
from rookery.node.registered_schemas import RegisteredSchemas
from rookery.node.settings import Settings
from rookery.registry.candidates import Source, find_record_name

SCHEMAS = "_schemas"
CUSTOMER = '{"type":"record","name":"Customer","namespace":"shop","fields":[{"name":"id","type":"int"}]}'
ORDER = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"by","type":"shop.Customer"}]}'


def set_limit(monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    """Set how long the reading of the schemas may take."""
    for module in (schema_checks, registered_schemas):
        monkeypatch.setattr(module, "CATCH_UP_SECONDS_MAX", seconds)


@pytest.fixture(autouse=True)
def _long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow a long wait: no request here is retried, and the machine may be busy."""
    set_limit(monkeypatch, 30)


@asynccontextmanager
async def running(data_dir: Path, *settings: str) -> AsyncIterator[str]:
    """Run a node and yield its address."""
    loaded = Settings.load(None, [f"log.dirs={data_dir}", "listeners=PLAINTEXT://127.0.0.1:0", *settings])
    node = Node(loaded, files=OsFiles(), clock=SystemClock(), random=SystemRandom())
    await node.start()
    try:
        yield node.address
    finally:
        await node.stop()


async def create(address: str, name: str, **configs: str) -> None:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    async with Admin({"bootstrap.servers": address}) as admin:
        (outcome,) = await admin.create_topics([NewTopic(name=name, partitions=1, configs=named)])
    outcome.check()


async def create_checked(address: str, **configs: str) -> None:
    await create(address, "orders", value_schema_validation="true", **configs)
    await create(address, SCHEMAS, cleanup_policy="compact")


def entry(subject: str, version: int, schema_id: int, text: str = '"string"', **more: Any) -> tuple[bytes, bytes]:
    """Return a record of the registry's log."""
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {"subject": subject, "version": version, "id": schema_id, "schema": text, "deleted": False} | more
    return msgspec.json.encode(key), msgspec.json.encode(value)


async def register(address: str, *entries: tuple[bytes, bytes]) -> None:
    async with Producer[bytes, bytes]({"bootstrap.servers": address}) as producer:
        for key, value in entries:
            await producer.send(SCHEMAS, value, key=key)


def framed(schema_id: int, text: bytes = b"") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + text


async def produce(address: str, schema_id: int) -> ErrorCode:
    """Produce a record with this schema id, without retries, and return the error code."""
    config = {"bootstrap.servers": address, "retries": 0, "enable.idempotence": False}
    async with Producer[bytes, bytes](config) as producer:
        try:
            await (await producer.send("orders", framed(schema_id)))
        except ApiError as error:
            return error.code
    return ErrorCode.NONE


def test_ids_of_the_log(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as address:
            await create_checked(address)
            await register(address, entry("orders-value", 1, 1), entry("bills-value", 1, 2))
            assert [await produce(address, schema_id) for schema_id in (1, 2, 3)] == [
                ErrorCode.NONE,
                ErrorCode.INVALID_RECORD,
                ErrorCode.INVALID_RECORD,
            ]
            await register(address, entry("orders-value", 2, 3, '"long"'))
            assert await produce(address, 3) is ErrorCode.NONE, "it may be used as soon as it is registered"

    asyncio.run(main())


def test_deleted_versions_and_other_contexts(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as address:
            await create_checked(address)
            deleted = entry("orders-value", 2, 2, deleted=True)
            await register(address, entry("orders-value", 1, 1), deleted, entry(":.test:orders-value", 1, 3))
            assert await produce(address, 1) is ErrorCode.NONE
            assert [await produce(address, schema_id) for schema_id in (2, 3)] == [ErrorCode.INVALID_RECORD] * 2
            await register(address, entry("orders-value", 1, 1, deleted=True))
            # A deletion takes effect when it is read, and that happens when an unknown id is produced.
            await produce(address, 9)
            assert await produce(address, 1) is ErrorCode.INVALID_RECORD

    asyncio.run(main())


def test_a_subject_that_is_an_alias(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as address:
            await create_checked(address)
            key = {"keytype": "CONFIG", "subject": "orders-value", "magic": 0}
            alias = msgspec.json.encode(key), b'{"alias":":.test:bills","compatibilityLevel":"NONE"}'
            await register(address, entry("orders-value", 1, 1), entry(":.test:bills", 1, 2), alias)
            assert await produce(address, 2) is ErrorCode.NONE
            assert await produce(address, 1) is ErrorCode.INVALID_RECORD

    asyncio.run(main())


def test_a_node_without_registered_schemas(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as address:
            await create(address, "orders", value_schema_validation="true")
            assert await produce(address, 1) is ErrorCode.INVALID_RECORD

    asyncio.run(main())


def test_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as address:
            await create_checked(address)
            await register(address, entry("orders-value", 1, 1))
        async with running(tmp_path) as address:
            assert await produce(address, 1) is ErrorCode.NONE
            assert await produce(address, 2) is ErrorCode.INVALID_RECORD

    asyncio.run(main())


def test_another_topic_of_schemas(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, "schema.registry.kafkastore.topic=_other") as address:
            await create_checked(address)
            await register(address, entry("orders-value", 1, 1))
            assert await produce(address, 1) is ErrorCode.INVALID_RECORD

    asyncio.run(main())


@pytest.mark.parametrize(
    ("strategy", "subject"), [("RecordNameStrategy", "shop.Order"), ("TopicRecordNameStrategy", "orders-shop.Order")]
)
def test_subjects_by_record_name(tmp_path: Path, strategy: str, subject: str) -> None:
    async def main() -> None:
        async with running(tmp_path) as address:
            await create_checked(address, value_subject_name_strategy=strategy)
            references = [{"name": "shop.Customer", "subject": "customers", "version": 1}]
            await register(
                address,
                entry("customers", 1, 1, CUSTOMER),
                entry(subject, 1, 2, ORDER, references=references),
                entry("orders-value", 1, 3),
                entry("rotten", 1, 4, "no schema"),
            )
            assert await produce(address, 2) is ErrorCode.NONE
            assert [await produce(address, schema_id) for schema_id in (1, 3, 4)] == [ErrorCode.INVALID_RECORD] * 3

    asyncio.run(main())


def test_record_names_are_found_in_a_thread_and_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsing a large schema would block the broker's event loop. A batch may have several new ids."""
    threads: list[threading.Thread] = []
    find = find_record_name

    def watched(source: Source) -> str | None:
        threads.append(threading.current_thread())
        return find(source)

    monkeypatch.setattr(registered_schemas, "find_record_name", watched)

    async def main() -> None:
        async with running(tmp_path) as address:
            await create_checked(address, value_subject_name_strategy="RecordNameStrategy")
            others = CUSTOMER.replace("Customer", "Other")
            await register(address, entry("shop.Customer", 1, 1, CUSTOMER), entry("shop.Other", 1, 2, others))
            async with Producer[bytes, bytes]({"bootstrap.servers": address, "linger.ms": 60_000}) as producer:
                for _ in range(2):
                    sent = [await producer.send("orders", framed(schema_id, b"")) for schema_id in (1, 2, 1)]
                    await producer.flush()
                    assert len({(await each).offset for each in sent}) == 3
        assert len(threads) == 2
        assert threading.current_thread() not in threads

    asyncio.run(main())


@pytest.mark.parametrize(
    "setting",
    ["schema.registry.kafkastore.bootstrap.servers=127.0.0.1:1", "schema.registry.kafkastore.topic= "],
    ids=["unreachable", "misconfigured"],
)
def test_a_log_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    set_limit(monkeypatch, 1)

    async def main() -> None:
        async with running(tmp_path, setting) as address:
            await create_checked(address)
            begun_s = asyncio.get_running_loop().time()
            code = await produce(address, 1)
            assert code is ErrorCode.NOT_ENOUGH_REPLICAS
            assert code.retriable
            assert asyncio.get_running_loop().time() - begun_s < 20

    asyncio.run(main())


def test_a_producer_with_requests_in_flight(tmp_path: Path) -> None:
    """Each new id delays the batches after it, which must stay in sequence."""

    async def main() -> None:
        async with running(tmp_path) as address:
            await create_checked(address)
            config = {"bootstrap.servers": address, "linger.ms": 0, "max.in.flight.requests.per.connection": 5}
            async with Producer[bytes, bytes](config) as producer:
                sent: list[asyncio.Future[RecordMetadata]] = []
                for schema_id in range(1, 21):
                    await register(address, entry("orders-value", schema_id, schema_id, f'"{schema_id}"'))
                    for number in range(10):
                        used_id = schema_id if number % 3 == 0 else 1
                        sent.append(await producer.send("orders", framed(used_id, b"%d" % len(sent))))
                        await asyncio.sleep(0)
                assert [(await each).offset for each in sent] == list(range(200))
            assert await read_all(address) == [b"%d" % number for number in range(200)]

    asyncio.run(main())


async def read_all(address: str) -> list[bytes]:
    partition, texts = TopicPartition("orders", 0), list[bytes]()
    async with Consumer[bytes, bytes]({"bootstrap.servers": address, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end:
            texts += [(record.value or b"")[5:] for record in await consumer.poll()]
    return texts


class SlowReader:
    """A replacement of the registry's reader: reaches the end when the gate is open, and counts the calls."""

    def __init__(self, *_: object, **__: object) -> None:
        self.calls = 0
        self.gate = asyncio.Event()

    async def catch_up(self, timeout_s: float) -> None:
        self.calls += 1
        await self.gate.wait()

    async def stop(self) -> None:
        pass


def make_schemas(monkeypatch: pytest.MonkeyPatch, static: Mapping[str, str]) -> tuple[RegisteredSchemas, SlowReader]:
    reader = SlowReader()
    monkeypatch.setattr(registered_schemas, "SchemasReader", lambda *_, **__: reader)
    return RegisteredSchemas(static, bootstrap_servers="127.0.0.1:9092"), reader


def test_callers_share_a_round_that_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        schemas, reader = make_schemas(monkeypatch, {})
        first = asyncio.ensure_future(schemas.catch_up())
        await asyncio.sleep(0.01)
        others = [asyncio.ensure_future(schemas.catch_up()) for _ in range(5)]
        await asyncio.sleep(0.01)
        assert reader.calls == 1
        others[0].cancel()
        reader.gate.set()
        assert await first
        assert await asyncio.gather(*others[1:]) == [True] * 4
        assert reader.calls == 2

    asyncio.run(main())


def test_stop_ends_the_wait_of_all_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        schemas, _ = make_schemas(monkeypatch, {})
        waiting = [asyncio.ensure_future(schemas.catch_up())]
        await asyncio.sleep(0.01)
        waiting.append(asyncio.ensure_future(schemas.catch_up()))
        await asyncio.sleep(0.01)
        await schemas.stop()
        assert await asyncio.gather(*waiting) == [False, False]

    asyncio.run(main())


def test_a_node_without_schema_checks_imports_no_registry_module() -> None:
    code = "import sys, rookery.node.main; print([name for name in sys.modules if name.startswith('rookery.registry')])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "[]"
