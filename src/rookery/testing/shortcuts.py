"""Frequent operations of tests on a broker, as single calls: create, produce, read, wait, seed, register.

Each call uses a new client, in a thread with its own event loop: the caller may already run in one, whose time is not
the broker's.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from rookery.base.types import TopicPartition
from rookery.client.admin import BROKER_DEFAULT, Admin, NewTopic, PartitionLag
from rookery.client.consume.consumer import Consumer
from rookery.client.consume.records import ConsumerRecord
from rookery.client.produce.producer import Producer
from rookery.client.produce.records import RecordMetadata
from rookery.testing.seeds import parse_seeds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rookery.schemas.interface import SchemaType
    from rookery.serdes import Reference, RegistryClient

Headers: TypeAlias = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | None]]
WriteFormat: TypeAlias = Literal["plain", "registry"]
ReadFormat: TypeAlias = Literal["bytes", "text", "json", "registry"]
Record: TypeAlias = ConsumerRecord[Any, Any]
Result = TypeVar("Result")

DEFAULT_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.2
_LAG_PAUSE_S: Final = 0.05


class Shortcuts(ABC):
    """The shortcuts of a broker; see docs/testing.md."""

    # More settings of the clients, such as those of a login.
    _client_settings: Mapping[str, str]

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """`host:port`, for any client."""

    @property
    @abstractmethod
    def schema_registry_url(self) -> str:
        """`http://host:port`, for any client of a schema registry."""

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replicas: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic. Raises ApiError if that fails."""
        topic = NewTopic(
            name=name,
            partitions=BROKER_DEFAULT if partitions is None else partitions,
            replication_factor=BROKER_DEFAULT if replicas is None else replicas,
            configs=config,
        )

        async def create() -> None:
            async with self._admin() as admin:
                (outcome,) = await admin.create_topics([topic])
            outcome.check()

        run_in_thread(create())

    def produce(
        self,
        topic: str,
        *values: Any,
        key: Any = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        value_format: WriteFormat = "plain",
        key_format: WriteFormat = "plain",
    ) -> list[RecordMetadata]:
        """Write one record per value; return their partitions and offsets when all are acknowledged.

        In the format "plain", a str is encoded as UTF-8, bytes are used unchanged, None is null, and anything else is
        JSON. In the format "registry", the value is encoded with the latest schema of the topic's subject.
        """
        with self._encoders(value_format, key_format) as encode:
            encoded_key = encode(topic, key, is_key=True)
            encoded = [encode(topic, value, is_key=False) for value in values]
        options: dict[str, Any] = {"partition": partition, "timestamp_ms": timestamp_ms, "headers": _headers(headers)}

        async def write() -> list[RecordMetadata]:
            async with Producer(self._config()) as producer:
                sent = [await producer.send(topic, value, key=encoded_key, **options) for value in encoded]
                return list(await asyncio.gather(*sent))

        return run_in_thread(write())

    def seed(
        self,
        path: Path | str,
        *,
        topic: str | None = None,
        value_format: WriteFormat = "plain",
        key_format: WriteFormat = "plain",
    ) -> int:
        """Write the records of a file, in order; return their number.

        Each line is a record as printed by `rookery consume --json`. All are written to `topic` if it is given, else
        each one to the topic that it names, or to the topic that the file is named after.
        """
        path = Path(path)
        seeds = list(parse_seeds(path.read_text(encoding="utf-8"), str(path)))
        with self._encoders(value_format, key_format) as encode:
            records = []
            for seed in seeds:
                target = topic or seed.topic or path.stem
                key, value = encode(target, seed.key, is_key=True), encode(target, seed.value, is_key=False)
                records.append((target, key, value, seed))

        async def write() -> None:
            async with Producer(self._config()) as producer:
                sent = [
                    await producer.send(
                        target,
                        value,
                        key=key,
                        headers=seed.headers,
                        # The original topic may have more partitions than this one.
                        partition=None if topic else seed.partition,
                        timestamp_ms=seed.timestamp_ms,
                    )
                    for target, key, value, seed in records
                ]
                await asyncio.gather(*sent)

        run_in_thread(write())
        return len(records)

    def records(
        self,
        topic: str,
        *,
        count: int | None = None,
        partition: int | None = None,
        value_format: ReadFormat = "bytes",
        key_format: ReadFormat = "bytes",
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> list[Record]:
        """Return all present records of the topic, ordered by partition and offset.

        With `count`, wait until there are at least so many. Raises TimeoutError if they do not arrive.
        """

        async def read() -> list[Record]:
            async with Consumer(self._config() | {"isolation.level": isolation}) as consumer:
                known = [found.index for found in await consumer.partitions_for(topic)]
                wanted = [TopicPartition(topic, index) for index in known if partition in (None, index)]
                consumer.assign(wanted)
                consumer.seek_to_beginning(*wanted)
                return await _read_all(consumer, wanted, topic, count, timeout_s)

        found = sorted(run_in_thread(read()), key=lambda record: (record.partition, record.offset))
        with self._decoders(value_format, key_format) as decode:
            return [
                msgspec.structs.replace(
                    record,
                    key=decode(topic, record.key, is_key=True),
                    value=decode(topic, record.value, is_key=False),
                )
                for record in found
            ]

    def wait_for_lag(
        self, group: str, *, at_most: int = 0, topic: str | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> int:
        """Wait until a group's lag is at most `at_most` records, and return it.

        The lag is the sum over the partitions for which the group has committed offsets, or those of one topic. It
        also waits for the first commit of the group. Raises TimeoutError with the lag of each partition.
        """

        async def wait() -> int:
            deadline = asyncio.get_running_loop().time() + timeout_s
            async with self._admin() as admin:
                while True:
                    lags = [each for each in await admin.lags(group) if topic in (None, each.partition.topic)]
                    known = [each.lag for each in lags if each.lag is not None]
                    if lags and len(known) == len(lags) and sum(known) <= at_most:
                        return sum(known)
                    if asyncio.get_running_loop().time() >= deadline:
                        raise TimeoutError(_describe_lags(group, lags, at_most, timeout_s))
                    await asyncio.sleep(_LAG_PAUSE_S)

        return run_in_thread(wait())

    def register_schema(
        self,
        subject: str,
        schema: "str | Mapping[str, Any] | Path",
        *,
        schema_type: "SchemaType | None" = None,
        references: "Iterable[Reference]" = (),
    ) -> int:
        """Register a schema (its text, a dictionary of its JSON, or its file) and return its id.

        The type is `schema_type`, or that of the file's name (.avsc, .json, .proto), or Avro.
        """
        from rookery.serdes import Schema
        from rookery.serdes.entities import schema_type_of

        if isinstance(schema, Path):
            schema_type, text = schema_type or schema_type_of(schema), schema.read_text(encoding="utf-8")
        else:
            text = schema if isinstance(schema, str) else json.dumps(schema)
        with self._registry() as registry:
            return registry.register(subject, Schema(text, schema_type or "AVRO", tuple(references)))

    def _config(self) -> dict[str, object]:
        common = {"bootstrap.servers": self.bootstrap_servers, "client.id": "rookery-testing"}
        return {**common, **self._client_settings}

    def _admin(self) -> Admin:
        return Admin(self._config())

    def _registry(self) -> "RegistryClient":
        from rookery.serdes import RegistryClient

        return RegistryClient(self.schema_registry_url)

    @contextmanager
    def _encoders(self, value_format: WriteFormat, key_format: WriteFormat) -> "Iterator[Callable[..., bytes | None]]":
        """Yield a function that encodes a value for a topic; it fetches each subject's schema once."""
        if value_format == key_format == "plain":
            yield lambda topic, value, *, is_key: _plain_bytes(value)
            return
        from rookery.serdes.json_records import JsonWriter

        with self._registry() as registry:
            writers: dict[tuple[str, bool], JsonWriter] = {}

            def encode(topic: str, value: Any, *, is_key: bool) -> bytes | None:
                if (key_format if is_key else value_format) == "plain" or value is None:
                    return _plain_bytes(value)
                if (topic, is_key) not in writers:
                    writers[topic, is_key] = JsonWriter(registry, topic, is_key=is_key)
                return writers[topic, is_key](value)

            yield encode

    @contextmanager
    def _decoders(self, value_format: ReadFormat, key_format: ReadFormat) -> "Iterator[Callable[..., Any]]":
        if "registry" not in (value_format, key_format):
            yield lambda topic, data, *, is_key: _read_plain(data, key_format if is_key else value_format)
            return
        from rookery.serdes.json_records import JsonReader

        with self._registry() as registry:
            readers = {is_key: JsonReader(registry, is_key=is_key) for is_key in (True, False)}

            def decode(topic: str, data: bytes | None, *, is_key: bool) -> Any:
                chosen = key_format if is_key else value_format
                return readers[is_key](topic, data) if chosen == "registry" else _read_plain(data, chosen)

            yield decode


async def _read_all(
    consumer: Consumer[bytes, bytes], partitions: list[TopicPartition], topic: str, count: int | None, timeout_s: float
) -> list[Record]:
    ends = await consumer.end_offsets(partitions)
    found: list[Record] = []
    try:
        async with asyncio.timeout(timeout_s):
            while len(found) < (count or 0) or not all([await consumer.position(tp) >= ends[tp] for tp in partitions]):
                found += await consumer.poll(_POLL_S)
    except TimeoutError:
        wanted = f"the {count} that were requested" if count else f"all up to {dict(ends)}"
        raise TimeoutError(f"{topic} had {len(found)} records within {timeout_s:g} s, not {wanted}") from None
    return found


def _describe_lags(group: str, lags: Iterable[PartitionLag], at_most: int, timeout_s: float) -> str:
    parts = [f"{each.partition.topic}-{each.partition.partition}: {each.lag}" for each in lags]
    state = ", ".join(parts) or "it has committed no offsets"
    return f"the lag of group {group} was not {at_most} or less within {timeout_s:g} s ({state})"


def _plain_bytes(value: Any) -> bytes | None:
    match value:
        case None | bytes():
            return value
        case str():
            return value.encode()
        case _:
            return msgspec.json.encode(value)


def _read_plain(data: bytes | None, form: ReadFormat) -> Any:
    if data is None or form == "bytes":
        return data
    return data.decode() if form == "text" else json.loads(data)


def _headers(given: Headers) -> tuple[tuple[str, bytes | None], ...]:
    pairs = given.items() if isinstance(given, Mapping) else given
    return tuple((name, _plain_bytes(value)) for name, value in pairs)


def run_in_thread(work: Coroutine[Any, Any, Result]) -> Result:
    """Run the coroutine on an event loop in another thread, and return its result."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, work).result()
