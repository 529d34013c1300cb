"""The client with which both systems are measured: librdkafka, as bundled in the confluent-kafka wheel.

With the API of that wheel each record would cost a Python call, and the benchmark would measure Python in the client.
So this module calls the C functions directly: `rd_kafka_produce_batch` with an array of messages that is built once and
points into one buffer of text (bench.payload), and `rd_kafka_consume_callback_queue`, which passes the messages of all
partitions to a C function that does nothing, and returns their number.

Settings: librdkafka's defaults (linger.ms 5, batches of at most 1,000,000 bytes and 10,000 records, any number of
requests in flight, not idempotent; fetches of at most 1 MB for each partition), except CLIENT_SETTINGS,
PRODUCER_SETTINGS and CONSUMER_SETTINGS, which are the same for both systems.

Only failed deliveries are reported (`delivery.report.only.error`); one is enough to fail the load. Producers send to
the partitions in turn. Consumers expect a number of records, and check at the end that the sum of their positions is
exactly this number.
"""

import ctypes
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka

from bench.load import Measurements, await_go, run_action
from bench.payload import event_text

CLIENT_SETTINGS = {"client.id": "bench"}
PRODUCER_SETTINGS = {
    "delivery.report.only.error": "true",
    # Ten times the default, so that with records of 100 bytes the queue has more than a few batches for each partition.
    "queue.buffering.max.messages": "1000000",
    "queue.buffering.max.kbytes": "131072",
}
CONSUMER_SETTINGS = {
    "queued.min.messages": "1000000",
    "queued.max.messages.kbytes": "131072",
    # By default a consumer with a full queue pauses for a second; the benchmark would measure only this pause.
    "fetch.queue.backoff.ms": "5",
}
_TEXT_BYTES = 12_000_000
_FLUSH_TIMEOUT_MS = 120_000
_METADATA_TIMEOUT_MS = 30_000
_STALL_S = 30.0
_POLL_MS = 100

_PRODUCER, _CONSUMER = 0, 1
_CONF_OK = 0
_MESSAGE_BLOCK, _MESSAGE_PARTITION = 0x4, 0x8
_PARTITION_UNASSIGNED = -1
_OFFSET_BEGINNING = -2
_ERROR_TEXT_BYTES = 512


class Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


class TopicPartition(ctypes.Structure):
    """rd_kafka_topic_partition_t."""

    _fields_ = (
        ("topic", ctypes.c_char_p),
        ("partition", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("metadata", ctypes.c_void_p),
        ("metadata_size", ctypes.c_size_t),
        ("opaque", ctypes.c_void_p),
        ("err", ctypes.c_int),
        ("private", ctypes.c_void_p),
    )


_DELIVERY_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Message), ctypes.c_void_p)
_handle, _text, _size, _int = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int
_SIGNATURES: Mapping[str, tuple[Any, tuple[Any, ...]]] = {
    "rd_kafka_conf_new": (_handle, ()),
    "rd_kafka_conf_set": (_int, (_handle, _text, _text, _text, _size)),
    "rd_kafka_conf_set_dr_msg_cb": (None, (_handle, _DELIVERY_CALLBACK)),
    "rd_kafka_new": (_handle, (_int, _handle, _text, _size)),
    "rd_kafka_destroy": (None, (_handle,)),
    "rd_kafka_err2str": (_text, (_int,)),
    "rd_kafka_topic_new": (_handle, (_handle, _text, _handle)),
    "rd_kafka_topic_destroy": (None, (_handle,)),
    "rd_kafka_metadata": (_int, (_handle, _int, _handle, ctypes.POINTER(_handle), _int)),
    "rd_kafka_metadata_destroy": (None, (_handle,)),
    "rd_kafka_poll": (_int, (_handle, _int)),
    "rd_kafka_flush": (_int, (_handle, _int)),
    "rd_kafka_outq_len": (_int, (_handle,)),
    "rd_kafka_produce_batch": (_int, (_handle, ctypes.c_int32, _int, _handle, _int)),
    "rd_kafka_queue_new": (_handle, (_handle,)),
    "rd_kafka_queue_destroy": (None, (_handle,)),
    "rd_kafka_consume_start_queue": (_int, (_handle, ctypes.c_int32, ctypes.c_int64, _handle)),
    "rd_kafka_consume_stop": (_int, (_handle, ctypes.c_int32)),
    "rd_kafka_consume_callback_queue": (_int, (_handle, _int, _handle, _handle)),
    "rd_kafka_topic_partition_list_new": (_handle, (_int,)),
    "rd_kafka_topic_partition_list_add": (ctypes.POINTER(TopicPartition), (_handle, _text, ctypes.c_int32)),
    "rd_kafka_topic_partition_list_find": (ctypes.POINTER(TopicPartition), (_handle, _text, ctypes.c_int32)),
    "rd_kafka_topic_partition_list_destroy": (None, (_handle,)),
    "rd_kafka_position": (_int, (_handle, _handle)),
    "rd_kafka_init_transactions": (_handle, (_handle, _int)),
    "rd_kafka_begin_transaction": (_handle, (_handle,)),
    "rd_kafka_commit_transaction": (_handle, (_handle, _int)),
    "rd_kafka_abort_transaction": (_handle, (_handle, _int)),
    "rd_kafka_error_string": (_text, (_handle,)),
    "rd_kafka_error_destroy": (None, (_handle,)),
}


class ClientError(Exception):
    """librdkafka returned an error."""


def open_library() -> ctypes.CDLL:
    """Open the shared library of the wheel: next to its package, or linked into its extension module."""
    package = Path(confluent_kafka.__file__).resolve().parent
    bundled = [*package.parent.glob("confluent_kafka.libs/librdkafka*"), *package.glob(".dylibs/librdkafka*")]
    for path in [*bundled, *package.glob("cimpl*.so")]:
        library = ctypes.CDLL(str(path))
        if hasattr(library, "rd_kafka_produce_batch"):
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
            return library
    raise FileNotFoundError(f"the confluent-kafka package in {package.parent} has no librdkafka with C symbols")


class Client:
    """A producer or consumer with one topic. `notes_deliveries`: check each delivery report that the settings allow."""

    def __init__(self, kind: int, topic: str, settings: Mapping[str, str], *, notes_deliveries: bool = True) -> None:
        self.library = open_library()
        self.errors: list[str] = []
        # Kept here, because C code holds no reference to it.
        self._on_delivery = _DELIVERY_CALLBACK(self._note_delivery) if notes_deliveries else self._ignore_delivery()
        self.handle = self._new(kind, settings)
        self.topic = self.library.rd_kafka_topic_new(self.handle, topic.encode(), None)
        self._fetch_metadata()

    def _new(self, kind: int, settings: Mapping[str, str]) -> int:
        text = ctypes.create_string_buffer(_ERROR_TEXT_BYTES)
        configuration = self.library.rd_kafka_conf_new()
        for key, value in settings.items():
            code = self.library.rd_kafka_conf_set(configuration, key.encode(), value.encode(), text, len(text))
            if code != _CONF_OK:
                raise ClientError(text.value.decode())
        if kind == _PRODUCER:
            self.library.rd_kafka_conf_set_dr_msg_cb(configuration, self._on_delivery)
        handle: int | None = self.library.rd_kafka_new(kind, configuration, text, len(text))
        if handle is None:
            raise ClientError(text.value.decode())
        return handle

    def _fetch_metadata(self) -> None:
        """Connect and fetch the leaders before the measurement."""
        found = ctypes.c_void_p()
        self.check(
            self.library.rd_kafka_metadata(self.handle, 0, self.topic, ctypes.byref(found), _METADATA_TIMEOUT_MS)
        )
        self.library.rd_kafka_metadata_destroy(found)

    def _note_delivery(self, _handle: int, message: Any, _opaque: int) -> None:
        if message.contents.err:
            self.errors.append(self.describe(message.contents.err))

    def _ignore_delivery(self) -> Any:
        """Return a C function that does nothing, because it is called for each record."""
        return ctypes.cast(self.library.rd_kafka_version, _DELIVERY_CALLBACK)

    def check(self, code: int) -> None:
        if code:
            raise ClientError(self.describe(code))

    def describe(self, code: int) -> str:
        text: bytes = self.library.rd_kafka_err2str(code)
        return text.decode()

    def check_error(self, error: int | None) -> None:
        """Raise the error of a call that returns an rd_kafka_error_t: null on success, otherwise freed here."""
        if error is not None:
            text: bytes = self.library.rd_kafka_error_string(error)
            message = text.decode()
            self.library.rd_kafka_error_destroy(error)
            raise ClientError(message)

    def close(self) -> None:
        self.library.rd_kafka_topic_destroy(self.topic)
        self.library.rd_kafka_destroy(self.handle)


class Messages:
    """An array of messages that point into one buffer of text; it is sent repeatedly."""

    def __init__(self, record_bytes: int, partitions: int, count_max: int) -> None:
        # A multiple of the number of partitions, so that every round has the same number of records for each.
        rounds = max(1, min(_TEXT_BYTES // record_bytes, count_max) // partitions)
        self.count = rounds * partitions
        self._text = ctypes.create_string_buffer(event_text(self.count * record_bytes), self.count * record_bytes)
        self._array = (Message * self.count)()
        start = ctypes.addressof(self._text)
        for index, message in enumerate(self._array):
            message.partition = index % partitions
            message.payload = start + index * record_bytes
            message.len = record_bytes
        self.address = ctypes.addressof(self._array)

    def first_error(self, count: int) -> int:
        return next((message.err for message in self._array[:count] if message.err), 0)


def new_producer(bootstrap: str, topic: str, settings: Mapping[str, str], *, notes_deliveries: bool = True) -> Client:
    combined = {**CLIENT_SETTINGS, **PRODUCER_SETTINGS, **settings, "bootstrap.servers": bootstrap}
    return Client(_PRODUCER, topic, combined, notes_deliveries=notes_deliveries)


def produce(
    *,
    bootstrap: str,
    topic: str,
    partitions: int,
    record_bytes: int,
    records: int,
    settings: Mapping[str, str],
) -> Measurements:
    """Send `records` records as fast as the client accepts them, and wait until the last one is acknowledged."""
    messages = Messages(record_bytes, partitions, records)
    client = new_producer(bootstrap, topic, settings)
    ended = threading.Event()
    # Failed deliveries count as queued until their reports are polled, and a full queue blocks the sender.
    poller = threading.Thread(target=_poll_until, args=(client, ended), daemon=True)
    poller.start()
    await_go()
    started_s = time.perf_counter()
    send(client, messages, records)
    flush(client)
    elapsed_s = time.perf_counter() - started_s
    ended.set()
    poller.join()
    if client.errors:
        raise ClientError(f"{len(client.errors)} of {records} records were not delivered: {client.errors[0]}")
    client.close()
    return {"elapsed_s": elapsed_s, "records": records, "bytes": records * record_bytes}


def _poll_until(client: Client, ended: threading.Event) -> None:
    while not ended.is_set():
        client.library.rd_kafka_poll(client.handle, _POLL_MS)


def flush(client: Client) -> None:
    """Wait until all sent records are acknowledged."""
    client.check(client.library.rd_kafka_flush(client.handle, _FLUSH_TIMEOUT_MS))


def send(client: Client, messages: Messages, records: int) -> None:
    """Pass `records` records to the client, and wait while its queue is full."""
    flags = _MESSAGE_PARTITION | _MESSAGE_BLOCK
    left = records
    while left and not client.errors:
        count = min(left, messages.count)
        sent = client.library.rd_kafka_produce_batch(
            client.topic, _PARTITION_UNASSIGNED, flags, messages.address, count
        )
        if sent != count:
            raise ClientError(f"{count - sent} records were rejected: {client.describe(messages.first_error(count))}")
        left -= count


def consume(
    *,
    bootstrap: str,
    topic: str,
    partitions: int,
    record_bytes: int,
    records: int,
    passes: int = 1,
    settings: Mapping[str, str],
) -> Measurements:
    """Read a topic with `records` records from its beginning to its end, several times."""
    client = Client(
        _CONSUMER, topic, {**CLIENT_SETTINGS, **CONSUMER_SETTINGS, **settings, "bootstrap.servers": bootstrap}
    )
    await_go()
    elapsed_s = 0.0
    for _ in range(passes):
        elapsed_s += _read_through(client, partitions, records)
        position = _position(client, topic, partitions)
        if position != records:
            raise ClientError(f"consumed {position} records instead of {records}")
        for partition in range(partitions):
            client.library.rd_kafka_consume_stop(client.topic, partition)
    return {"elapsed_s": elapsed_s, "records": passes * records, "bytes": passes * records * record_bytes}


def _read_through(client: Client, partitions: int, records: int) -> float:
    """Read the topic once; returns the seconds that it took."""
    library = client.library
    queue = library.rd_kafka_queue_new(client.handle)
    # A C function that is called for each message and does nothing.
    ignore = ctypes.cast(library.rd_kafka_version, ctypes.c_void_p)
    started_s = time.perf_counter()
    for partition in range(partitions):
        if library.rd_kafka_consume_start_queue(client.topic, partition, _OFFSET_BEGINNING, queue):
            raise ClientError(f"cannot consume partition {partition}")
    seen, progressed_s = 0, started_s
    while seen < records:
        count = library.rd_kafka_consume_callback_queue(queue, _POLL_MS, ignore, None)
        now_s = time.perf_counter()
        if count > 0:
            seen, progressed_s = seen + count, now_s
        elif now_s - progressed_s > _STALL_S:
            raise ClientError(f"no record was returned for {_STALL_S} s after {seen} of {records} records")
    library.rd_kafka_queue_destroy(queue)
    return progressed_s - started_s


def _position(client: Client, topic: str, partitions: int) -> int:
    """Return the number of consumed records, from the client's positions."""
    library = client.library
    wanted = library.rd_kafka_topic_partition_list_new(partitions)
    for partition in range(partitions):
        library.rd_kafka_topic_partition_list_add(wanted, topic.encode(), partition)
    client.check(library.rd_kafka_position(client.handle, wanted))
    offsets = [
        library.rd_kafka_topic_partition_list_find(wanted, topic.encode(), partition).contents.offset
        for partition in range(partitions)
    ]
    library.rd_kafka_topic_partition_list_destroy(wanted)
    # The position in a partition without records is negative: there is none.
    return sum(max(0, offset) for offset in offsets)


if __name__ == "__main__":
    run_action({"produce": produce, "consume": consume})
