"""Loads of raw frames over plain sockets, for measurements in which a client library would be the bottleneck.

`requests`: one request in flight on each of N connections, with epoll, from prebuilt frames. Only the size and the
error code of a reply are checked: every connection gets replies of the same size as the first one, which is decoded in
full and checked for errors.

`produce`: prebuilt batches, several requests in flight on one connection. `fetch`: Fetch requests for one batch of
every partition at a time; the replies are received and dropped. The batches are those of `produce`, so their sizes are
known: a fetch requests exactly one batch of each partition, and the size of its reply is known.
"""

import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from bench.load import Measurements, await_go, run_action
from bench.payload import event_text
from bench.scram import MECHANISM, Scram
from rookery.base.types import Offset, TimestampMs
from rookery.protocol.api import ApiKey
from rookery.protocol.codec import decode_response, encode_request
from rookery.protocol.framing import RequestHeader, encode_request_frame, parse_response_header
from rookery.protocol.message import Message
from rookery.records.record import Record, build_batch

PRODUCE_VERSION, FETCH_VERSION, METADATA_VERSION, API_VERSIONS_VERSION = 9, 11, 12, 3
_SASL_VERSION = 1
TINY_RECORD_BYTES = 10
ECHO_BYTES = 64
_CORRELATION_ID = 1
_CLIENT_ID = "bench"
_SIZE_BYTES = 4
_NO_ERROR = b"\x00\x00"
_HOST = "127.0.0.1"
_CONNECT_TIMEOUT_S = 10.0
_RETRY_S = 0.02
_REPLY_TIMEOUT_S = 30.0
_RECEIVE_BYTES = 1 << 20
_FETCH_MAX_BYTES = 100_000_000


class WireError(Exception):
    """A reply is not as expected."""


def request_frame(api_key: ApiKey, version: int, body: Message) -> bytes:
    header = RequestHeader(api_key, version, _CORRELATION_ID, _CLIENT_ID)
    return encode_request_frame(header, encode_request(api_key, version, body))


def make_batch(records: int, record_bytes: int) -> bytes:
    """Return a batch without compression and producer id; its timestamps are the current time, as a producer's."""
    text = event_text(records * record_bytes)
    now_ms = TimestampMs(int(time.time() * 1000))
    values = (text[start : start + record_bytes] for start in range(0, len(text), record_bytes))
    return bytes(build_batch([Record(Offset(index), now_ms, None, value) for index, value in enumerate(values)]))


def produce_frame(topic: str, partition: int, batch: bytes, *, acks: int = 1) -> bytes:
    data = Message(index=partition, records=batch)
    topic_data = [Message(name=topic, partition_data=[data])]
    body = Message(transactional_id=None, acks=acks, timeout_ms=30_000, topic_data=topic_data)
    return request_frame(ApiKey.PRODUCE, PRODUCE_VERSION, body)


def fetch_frame(topic: str, offsets: list[int], partition_max_bytes: int, *, max_wait_ms: int = 500) -> bytes:
    """Return a Fetch request for all partitions, from these offsets on."""
    partitions = [
        Message(
            partition=partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            log_start_offset=-1,
            partition_max_bytes=partition_max_bytes,
        )
        for partition, offset in enumerate(offsets)
    ]
    body = Message(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=_FETCH_MAX_BYTES,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[Message(topic=topic, partitions=partitions)],
        forgotten_topics_data=[],
        rack_id="",
    )
    return request_frame(ApiKey.FETCH, FETCH_VERSION, body)


def metadata_frame(topics: list[str] | None) -> bytes:
    """Request the metadata of the named topics, or of all."""
    named = None if topics is None else [Message(topic_id=None, name=name) for name in topics]
    body = Message(topics=named, allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    return request_frame(ApiKey.METADATA, METADATA_VERSION, body)


def api_versions_frame() -> bytes:
    body = Message(client_software_name=_CLIENT_ID, client_software_version="1")
    return request_frame(ApiKey.API_VERSIONS, API_VERSIONS_VERSION, body)


class Conversation:
    """One connection that sends the same frame repeatedly, and checks the replies."""

    def __init__(
        self, connection: socket.socket, frame: bytes, is_good: Callable[[bytes], bool], error_position: int | None
    ) -> None:
        self.socket = connection
        self.frame = frame
        reply = self._first_reply(is_good)
        self.size_prefix = reply[:_SIZE_BYTES]
        self.buffer = bytearray(len(reply))
        self.view = memoryview(self.buffer)
        self.received = 0
        # None for replies without an error code.
        self.error_position = error_position
        self.socket.setblocking(False)

    def _first_reply(self, is_good: Callable[[bytes], bool]) -> bytes:
        """Return a reply without an error.

        Kafka's brokers describe the leaders of a new topic a moment before they accept its records.
        """
        deadline_s = time.monotonic() + _CONNECT_TIMEOUT_S
        while True:
            self.socket.sendall(self.frame)
            reply = read_reply(self.socket)
            if is_good(reply):
                return reply
            if time.monotonic() > deadline_s:
                raise WireError(f"the first reply has an error: {reply[:200]!r}")
            time.sleep(_RETRY_S)

    def receive_more(self, count: int) -> bool:
        """Count received bytes; returns whether the reply is complete."""
        if not count:
            raise WireError("the broker closed the connection")
        self.received += count
        if self.received < len(self.buffer):
            return False
        self.received = 0
        self._check()
        return True

    def _check(self) -> None:
        position = self.error_position
        if self.buffer[:_SIZE_BYTES] != self.size_prefix:
            raise WireError("the size of the reply changed")
        if position is not None and self.buffer[position : position + 2] != _NO_ERROR:
            raise WireError(f"error {struct.unpack_from('>h', self.buffer, position)[0]}")


def connect(port: int) -> socket.socket:
    """Return a connection without Nagle's delay. The listener may still be starting."""
    deadline_s = time.monotonic() + _CONNECT_TIMEOUT_S
    while True:
        try:
            connection = socket.create_connection((_HOST, port), _REPLY_TIMEOUT_S)
        except ConnectionRefusedError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_RETRY_S)
            continue
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def read_reply(connection: socket.socket) -> bytes:
    """Read one whole frame, its size included."""
    prefix = _receive(connection, _SIZE_BYTES)
    return prefix + _receive(connection, int.from_bytes(prefix, "big"))


def _receive(connection: socket.socket, size_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < size_bytes:
        chunk = connection.recv(min(size_bytes - len(data), _RECEIVE_BYTES))
        if not chunk:
            raise WireError("the broker closed the connection")
        data += chunk
    return bytes(data)


def log_in(connection: socket.socket, scram: Scram) -> None:
    """Log in on a new connection to a listener with SASL."""
    _exchange(connection, ApiKey.SASL_HANDSHAKE, Message(mechanism=MECHANISM))
    login = scram.login()
    message = next(login)
    while True:
        response = _exchange(connection, ApiKey.SASL_AUTHENTICATE, Message(auth_bytes=message))
        try:
            message = login.send(response.auth_bytes)
        except StopIteration:
            return


def _exchange(connection: socket.socket, api_key: ApiKey, body: Message) -> Any:
    connection.sendall(request_frame(api_key, _SASL_VERSION, body))
    response: Any = decode_reply(api_key, _SASL_VERSION, read_reply(connection))
    if response.error_code:
        raise WireError(f"the login failed: {api_key!r} returned {response.error_code}")
    return response


def converse(conversations: list[Conversation], duration_s: float) -> tuple[int, float]:
    """Keep one request in flight on each connection for a while; returns the number of replies and the seconds."""
    poller = select.epoll()
    by_descriptor = {}
    for conversation in conversations:
        descriptor = conversation.socket.fileno()
        poller.register(descriptor, select.EPOLLIN)
        by_descriptor[descriptor] = (conversation, conversation.socket.recv_into, conversation.socket.send)
    started_s = time.perf_counter()
    deadline_s = started_s + duration_s
    for conversation in conversations:
        conversation.socket.send(conversation.frame)
    answered, in_flight = 0, len(conversations)
    while in_flight:
        events = poller.poll(_REPLY_TIMEOUT_S)
        if not events:
            raise WireError(f"no reply for {_REPLY_TIMEOUT_S} s")
        is_over = time.perf_counter() >= deadline_s
        for descriptor, _ in events:
            conversation, receive_into, send = by_descriptor[descriptor]
            received = conversation.received
            count = receive_into(conversation.view[received:] if received else conversation.buffer)
            if conversation.receive_more(count):
                answered += 1
                if is_over:
                    in_flight -= 1
                else:
                    send(conversation.frame)
    return answered, time.perf_counter() - started_s


def requests(
    *,
    port: int,
    kind: str,
    connections: int,
    duration_s: float,
    topics: list[str] | None = None,
    partitions: int = 1,
    user: str | None = None,
) -> Measurements:
    """Send requests of one kind: "produce", "metadata", "api_versions" or "echo" (bench.raw).

    `user` is NAME:PASSWORD of a login with SCRAM-SHA-512.
    """
    sockets = [connect(port) for _ in range(connections)]
    if user is not None:
        scram = Scram(*user.split(":"))
        for each in sockets:
            log_in(each, scram)
    conversations = [_conversation(each, kind, topics, number % partitions) for number, each in enumerate(sockets)]
    await_go()
    cpu_s = time.process_time()
    answered, elapsed_s = converse(conversations, duration_s)
    return {"elapsed_s": elapsed_s, "requests": answered, "client_cpu_s": time.process_time() - cpu_s}


def _conversation(connection: socket.socket, kind: str, topics: list[str] | None, partition: int) -> Conversation:
    if kind == "produce":
        assert topics is not None
        frame = produce_frame(topics[0], partition, make_batch(1, TINY_RECORD_BYTES))
        return Conversation(connection, frame, _is_produced, produce_error_position(topics[0]))
    if kind == "metadata":
        return Conversation(connection, metadata_frame(topics), _is_metadata(topics), None)
    if kind == "api_versions":
        # The error code is the first field after the size and the correlation id.
        return Conversation(connection, api_versions_frame(), _is_api_versions, 8)
    assert kind == "echo"
    frame = (ECHO_BYTES - _SIZE_BYTES).to_bytes(_SIZE_BYTES, "big") + bytes(ECHO_BYTES - _SIZE_BYTES)
    return Conversation(connection, frame, lambda reply: reply == frame, 8)


def decode_reply(api_key: ApiKey, version: int, reply: bytes) -> Message:
    frame = reply[_SIZE_BYTES:]
    _, position = parse_response_header(api_key, version, frame)
    return decode_response(api_key, version, frame, position)


def produce_error_position(topic: str) -> int:
    """Return the position of the error code in a Produce v9 reply for one partition.

    It follows size, header v1, array length, name, array length and index.
    """
    return _SIZE_BYTES + 5 + 1 + 1 + len(topic.encode()) + 1 + 4


def _is_produced(reply: bytes) -> bool:
    response = decode_reply(ApiKey.PRODUCE, PRODUCE_VERSION, reply)
    return all(part.error_code == 0 for topic in response.responses for part in topic.partition_responses)


def _is_metadata(names: list[str] | None) -> Callable[[bytes], bool]:
    def check(reply: bytes) -> bool:
        found = decode_reply(ApiKey.METADATA, METADATA_VERSION, reply).topics
        return bool(found) and (names is None or len(found) == len(names)) and all(not one.error_code for one in found)

    return check


def _is_api_versions(reply: bytes) -> bool:
    return bool(decode_reply(ApiKey.API_VERSIONS, API_VERSIONS_VERSION, reply).error_code == 0)


def produce(
    *, port: int, topic: str, partitions: int, record_bytes: int, records_per_batch: int, batches: int, in_flight: int
) -> Measurements:
    """Send batches to the partitions in turn, and wait until the last one is acknowledged."""
    batch = make_batch(records_per_batch, record_bytes)
    frames = [produce_frame(topic, partition, batch) for partition in range(partitions)]
    connection = connect(port)
    permits = threading.Semaphore(in_flight)
    problems: list[Exception] = []
    reader = threading.Thread(target=_read_acks, args=(connection, batches, permits, problems), daemon=True)
    reader.start()
    await_go()
    started_s = time.perf_counter()
    for index in range(batches):
        permits.acquire()
        if problems:
            break
        connection.sendall(frames[index % partitions])
    reader.join()
    elapsed_s = time.perf_counter() - started_s
    if problems:
        raise problems[0]
    records = batches * records_per_batch
    return {
        "elapsed_s": elapsed_s,
        "requests": batches,
        "records": records,
        "bytes": records * record_bytes,
        "batch_bytes": len(batch),
    }


def _read_acks(connection: socket.socket, count: int, permits: threading.Semaphore, problems: list[Exception]) -> None:
    try:
        for _ in range(count):
            reply = read_reply(connection)
            if not _is_produced(reply):
                raise WireError(f"a batch was rejected: {reply!r}")
            permits.release()
    except (OSError, WireError) as error:
        problems.append(error)
        permits.release()


def fetch(
    *,
    port: int,
    topic: str,
    partitions: int,
    record_bytes: int,
    records_per_batch: int,
    batches_per_partition: int,
    duration_s: float,
    in_flight: int,
) -> Measurements:
    """Read the topic from its beginning to its end, repeatedly for a while, one batch of each partition at a time.

    `in_flight` requests are sent in advance on the one connection, so that the broker need not wait for the client.
    """
    batch_bytes = len(make_batch(records_per_batch, record_bytes))
    offsets = (index * records_per_batch for index in range(batches_per_partition))
    frames = [fetch_frame(topic, [offset] * partitions, batch_bytes) for offset in offsets]
    connection = connect(port)
    reply_bytes = _first_fetch_bytes(connection, frames[0], partitions * batch_bytes)
    buffer = memoryview(bytearray(_RECEIVE_BYTES))
    await_go()
    started_s = time.perf_counter()
    deadline_s = started_s + duration_s
    for index in range(in_flight):
        connection.sendall(frames[index % len(frames)])
    sent, answered = in_flight, 0
    while answered < sent:
        _drop_reply(connection, buffer, reply_bytes)
        answered += 1
        if time.perf_counter() < deadline_s:
            connection.sendall(frames[sent % len(frames)])
            sent += 1
    elapsed_s = time.perf_counter() - started_s
    records = answered * partitions * records_per_batch
    return {"elapsed_s": elapsed_s, "requests": answered, "records": records, "bytes": records * record_bytes}


def _first_fetch_bytes(connection: socket.socket, frame: bytes, expected_bytes: int) -> int:
    """Check the first reply, and return the size of a whole reply."""
    connection.sendall(frame)
    reply = read_reply(connection)
    response: Any = decode_reply(ApiKey.FETCH, FETCH_VERSION, reply)
    parts = [part for topic in response.responses for part in topic.partitions]
    if any(part.error_code for part in parts) or sum(len(part.records or b"") for part in parts) != expected_bytes:
        found = [(part.partition_index, part.error_code, len(part.records or b"")) for part in parts]
        raise WireError(f"expected {expected_bytes} bytes of records: (partition, error, bytes) {found}")
    return len(reply)


def _drop_reply(connection: socket.socket, buffer: memoryview, reply_bytes: int) -> None:
    left = reply_bytes
    while left:
        count = connection.recv_into(buffer, min(left, len(buffer)))
        if not count:
            raise WireError("the broker closed the connection")
        if left == reply_bytes and count >= _SIZE_BYTES:
            _check_size(buffer, reply_bytes)
        left -= count


def _check_size(buffer: memoryview, reply_bytes: int) -> None:
    if int.from_bytes(buffer[:_SIZE_BYTES], "big") != reply_bytes - _SIZE_BYTES:
        raise WireError("the size of the reply changed")


if __name__ == "__main__":
    run_action({"requests": requests, "produce": produce, "fetch": fetch})
