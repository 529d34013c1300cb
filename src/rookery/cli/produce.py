"""`rookery produce`: write lines of text as records."""

import io
import sys
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, Protocol

import typer

from rookery.cli import completion
from rookery.cli.client_configs import producer_config
from rookery.cli.option_values import parse_pairs, unescape
from rookery.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    DEFAULT_REGISTRY,
    DEFAULT_TIMEOUT_S,
    BootstrapServer,
    ClientSettings,
    Registry,
    Timeout,
)
from rookery.cli.session import with_producer
from rookery.cli.value_formats import (
    Encode,
    Format,
    KeySchema,
    Side,
    ValueMessage,
    ValueSchema,
    WriteKeyFormat,
    WriteValueFormat,
    line_encoder,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Iterator

    from rookery.cli.lines import LineFormat
    from rookery.cli.progress import Progress
    from rookery.client.produce.producer import Producer
    from rookery.client.produce.records import RecordMetadata
    from rookery.records.record import Headers

EXAMPLES = (
    "Examples:"
    "\n\necho hello | rookery produce greetings"
    "\n\nrookery produce users --file users.tsv --key-separator '\\t' --null-marker NULL"
    "\n\nrookery produce orders --file orders.txt --transactional-id nightly-load"
    "\n\nrookery produce orders --file orders.jsonl --value-schema order.avsc"
)

_CHUNK_SIZE_BYTES = 256 * 1024


class ByteSource(Protocol):
    """A source of lines: a read returns the available bytes, and empty bytes at the end."""

    def read(self, size: int, /) -> bytes: ...


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class AcksChoice(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


Topic = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=completion.topics)]
InputFile = Annotated[
    Path | None, typer.Option("--file", "-f", exists=True, dir_okay=False, help="Read this file instead of stdin.")
]
KeySeparator = Annotated[
    str | None, typer.Option("--key-separator", "-K", help="The text between key and value; \\t is a tab.")
]
Key = Annotated[str | None, typer.Option("--key", "-k", help="The key of all records.")]
HeaderTexts = Annotated[
    list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of every record. Repeatable.")
]
HeadersSeparator = Annotated[
    str | None,
    typer.Option("--headers-separator", help="The text after the headers (name=value,...) at the start of a line."),
]
Partition = Annotated[
    int | None,
    typer.Option("--partition", "-p", min=0, help="Write to this partition instead of the one of the key's hash."),
]
CompressionType = Annotated[Compression | None, typer.Option("--compression", "-z", show_default=Compression.NONE)]
AcksOption = Annotated[
    AcksChoice | None,
    typer.Option(
        "--acks",
        "-a",
        help="The replicas that must store a record before it is acknowledged.",
        show_default=AcksChoice.ALL,
    ),
]
NullMarker = Annotated[
    str | None, typer.Option("--null-marker", "-Z", help="A key or value that equals this text is null (a tombstone).")
]
TransactionalId = Annotated[
    str | None,
    typer.Option("--transactional-id", metavar="ID", help="Write all records in one transaction."),
]


def produce(
    topic: Topic,
    file: InputFile = None,
    key_separator: KeySeparator = None,
    key: Key = None,
    headers: HeaderTexts = None,
    headers_separator: HeadersSeparator = None,
    partition: Partition = None,
    compression: CompressionType = None,
    acks: AcksOption = None,
    null_marker: NullMarker = None,
    transactional_id: TransactionalId = None,
    value_format: WriteValueFormat = Format.TEXT,
    key_format: WriteKeyFormat = Format.TEXT,
    value_schema: ValueSchema = None,
    key_schema: KeySchema = None,
    value_message: ValueMessage = None,
    registry: Registry = DEFAULT_REGISTRY,
    settings: ClientSettings = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Write each line of stdin or of a file as a record."""
    from rookery.cli.lines import LineFormat

    value_side, key_side = Side(value_format, value_schema, value_message), Side(key_format, key_schema)
    if key is not None and key_separator is not None:
        raise typer.BadParameter("give --key or --key-separator, not both", param_hint="--key")
    line_format = LineFormat(_bytes(key_separator), _bytes(headers_separator), _bytes(null_marker))
    common = tuple((name, value.encode()) for name, value in parse_pairs(headers or [], "--header").items())

    options = {"acks": acks, "compression.type": compression, "transactional.id": transactional_id}
    config = producer_config(bootstrap_server, timeout_s, settings, options)

    encoders = _encoders(registry, topic, key_side, value_side)

    async def work(producer: "Producer[bytes, bytes]") -> None:
        writer = _Writer(producer, topic, key=_bytes(key), partition=partition, headers=common, encoders=encoders)
        rest = "the lines before it were written" if transactional_id is None else "nothing was written"
        with _progress(file) as progress, _source(file) as source:
            async with nullcontext() if transactional_id is None else _new_transaction(producer):
                await writer.write_all(source, line_format, progress, rest=rest)
                await producer.flush()
                writer.check()
        progress.finish(f"wrote {writer.acknowledged:,} records to {topic}")

    with_producer(config, work)


class _Encoders(NamedTuple):
    key: Encode
    value: Encode


def _encoders(registry: str, topic: str, key: Side, value: Side) -> "_Encoders":
    """Return the encoders of keys and values. Asks the registry, if it is needed, before the first line is read."""
    if not (key.uses_registry or value.uses_registry):
        return _Encoders(_unchanged, _unchanged)
    from rookery.cli.registry_access import connect_registry

    client = connect_registry(registry, None)
    return _Encoders(
        key=line_encoder(client, topic, key, is_key=True), value=line_encoder(client, topic, value, is_key=False)
    )


def _unchanged(data: bytes | None) -> bytes | None:
    return data


@asynccontextmanager
async def _new_transaction(producer: "Producer[bytes, bytes]") -> "AsyncIterator[None]":
    await producer.init_transactions()
    async with producer.transaction():
        yield


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else unescape(text).encode("utf-8", "surrogateescape")


def _source(file: Path | None) -> AbstractContextManager[ByteSource]:
    """Open the input unbuffered: a read returns the available bytes, and the reading thread holds no lock when the
    process exits.
    """
    if file is not None:
        return file.open("rb", buffering=0)
    try:
        return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
    except io.UnsupportedOperation:
        return nullcontext(sys.stdin.buffer)


def _progress(file: Path | None) -> "Progress":
    from rookery.cli.progress import Progress

    interactive = file is None and sys.stdin.isatty()
    return Progress("producing", total_bytes=file.stat().st_size if file else None, shown=not interactive)


class _Writer:
    """Sends lines, counts acknowledged records, and stops at the first failure."""

    def __init__(
        self,
        producer: "Producer[bytes, bytes]",
        topic: str,
        *,
        key: bytes | None,
        partition: int | None,
        headers: "Headers",
        encoders: _Encoders,
    ) -> None:
        self.acknowledged = 0
        self._encoders = encoders
        self._producer = producer
        self._topic = topic
        self._key = key
        self._partition = partition
        self._headers = headers
        self._failure: BaseException | None = None

    async def write_all(
        self, source: ByteSource, line_format: "LineFormat", progress: "Progress", *, rest: str
    ) -> None:
        """Write all lines. `rest` ends the error message for an invalid line: it says what happened to those before."""
        from rookery.cli.errors import CommandError
        from rookery.cli.lines import LineError

        number = 0
        async for lines in read_lines(source):
            for line in lines:
                number += 1
                try:
                    await self._write(line, line_format)
                except LineError as error:
                    self._failure = CommandError(f"line {number}: {error}; {rest}")
                if self._failure is not None:
                    return
            progress.advance(records=len(lines), size_bytes=sum(map(len, lines)) + len(lines))

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _write(self, line: bytes, line_format: "LineFormat") -> None:
        parsed = line_format.parse(line)
        sent = await self._producer.send(
            self._topic,
            self._encoders.value(parsed.value),
            key=self._encoders.key(parsed.key if self._key is None else self._key),
            partition=self._partition,
            headers=self._headers + parsed.headers,
        )
        sent.add_done_callback(self._on_result)

    def _on_result(self, sent: "asyncio.Future[RecordMetadata]") -> None:
        failure = None if sent.cancelled() else sent.exception()
        if failure is None:
            self.acknowledged += 1
        elif self._failure is None:
            self._failure = failure


async def read_lines(source: ByteSource) -> "AsyncIterator[list[bytes]]":
    """Yield lines without their line ends, as they arrive.

    A thread does the blocking reads and waits until its lines are taken. It is a daemon thread: while it blocks in a
    read of a terminal, it must not keep the process from exiting.
    """
    import asyncio
    import threading
    from concurrent.futures import CancelledError

    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[list[bytes] | OSError | None] = asyncio.Queue(maxsize=1)

    def put(item: list[bytes] | OSError | None) -> None:
        asyncio.run_coroutine_threadsafe(queue.put(item), loop).result()

    def read() -> None:
        # A closed loop, a cancelled put or a closed source (ValueError) means that the command has ended.
        with suppress(RuntimeError, CancelledError, ValueError):
            try:
                for lines in split_lines(source):
                    put(lines)
                put(None)
            except OSError as error:
                put(error)

    threading.Thread(target=read, name="read-lines", daemon=True).start()
    while (item := await queue.get()) is not None:
        if isinstance(item, OSError):
            raise item
        yield item


def split_lines(source: ByteSource) -> "Iterator[list[bytes]]":
    """Yield the lines that each read completes; line ends are LF or CR LF."""
    rest = b""
    while chunk := source.read(_CHUNK_SIZE_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest]
