"""Invalid bytes on a socket lead to the right error or a closed connection, and do not affect other connections.

Each test uses its own connection; the fixture then checks that the broker still serves others, that no record was
added, and that the log has no traceback, because bad input is not a bug of the broker.
"""

import random
import socket
import struct
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from rookery.base.errors import ErrorCode
from rookery.protocol.api import SERVED, ApiKey
from rookery.protocol.message import Message
from rookery.records.batch import Codec, compute_crc
from rookery.records.record import Record, build_batch
from tests.support.broker import BrokerProcess, start_broker
from tests.support.wire import WireClient, produce_frame, request_frame

TOPIC = "kept"
VALUES = [b"one", b"two", b"three"]
REQUEST_BYTES_MAX = 1_000_000
# The records are old, so retention must not remove them while a test counts them.
SETTINGS = (f"socket.request.max.bytes={REQUEST_BYTES_MAX}", "log.retention.check.interval.ms=86400000")


def good_batch(*values: bytes, **options: int) -> bytearray:
    records = [Record(offset, 1_700_000_000_000, b"key", value, ()) for offset, value in enumerate(values)]
    return build_batch(records, codec=Codec(options.get("codec", 0)))


def with_field(batch: bytearray, layout: str, position: int, value: int, *, crc: bool = True) -> bytearray:
    """Return the batch with one header field changed and, if `crc`, with a correct CRC."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, position, value)
    if crc:
        struct.pack_into(">I", changed, 17, compute_crc(changed))
    return changed


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with start_broker(tmp_path_factory.mktemp("bad-input") / "data", *SETTINGS) as process:
        with WireClient(process.address) as client:
            topic = Message(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            created = client.call(ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=10_000, validate_only=False)
            assert created.topics[0].error_code == 0
            assert produce(client, good_batch(*VALUES)) == ErrorCode.NONE
        yield process


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.address) as misbehaving, WireClient(broker.address) as bystander:
        bystander.call(ApiKey.API_VERSIONS, 0)
        yield misbehaving
        assert broker.process.poll() is None, broker.log()
        for other in (bystander, WireClient(broker.address)):
            assert other.call(ApiKey.API_VERSIONS, 0).error_code == 0
            assert end_offset(other) == len(VALUES)
    assert "Traceback" not in broker.log()


def produce(client: WireClient, records: bytes | bytearray | None, *, version: int = 9) -> ErrorCode:
    client.send(produce_frame(TOPIC, records, version=version))
    response = client.read_response(ApiKey.PRODUCE, version)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def end_offset(client: WireClient) -> int:
    partition = Message(partition_index=0, timestamp=-1)
    response = client.call(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=[Message(name=TOPIC, partitions=[partition])])
    offset: int = response.topics[0].partitions[0].offset
    return offset


def test_an_http_request(client: WireClient) -> None:
    client.send(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n")
    assert client.is_closed_by_broker()


def test_a_tls_greeting(client: WireClient) -> None:
    client.send(bytes.fromhex("16030100ba010000b60303") + bytes(64))
    assert client.is_closed_by_broker()


def test_a_port_scan(broker: BrokerProcess, client: WireClient) -> None:
    host, _, port = broker.address.rpartition(":")

    def knock(index: int) -> None:
        with socket.create_connection((host, int(port))) as probe:
            if index % 2:
                probe.sendall(b"\0\0")
            if index % 3 == 0:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(knock, range(100)))


@pytest.mark.parametrize("size", [REQUEST_BYTES_MAX + 1, 2**31 - 1, -1, -(2**31)])
def test_an_invalid_frame_size(client: WireClient, size: int) -> None:
    client.send(struct.pack(">i", size) + bytes(100))
    assert client.is_closed_by_broker()


@pytest.mark.parametrize("size", range(8))
def test_a_frame_that_is_too_short_for_a_header(client: WireClient, size: int) -> None:
    client.send(struct.pack(">i", size) + bytes(size))
    assert client.is_closed_by_broker()


@pytest.mark.parametrize("api_key", [-1, 4, 999, 32_767])
def test_an_unknown_api(client: WireClient, api_key: int) -> None:
    client.send(struct.pack(">ihhih", 10, api_key, 0, 1, -1))
    assert client.is_closed_by_broker()


@pytest.mark.parametrize("api_key", [ApiKey.FETCH, ApiKey.METADATA, ApiKey.CREATE_TOPICS])
@pytest.mark.parametrize("version", [-1, 99, 32_767])
def test_an_unknown_version(client: WireClient, api_key: ApiKey, version: int) -> None:
    client.send(struct.pack(">ihhih", 10, api_key, version, 1, -1))
    assert client.is_closed_by_broker()


@pytest.mark.parametrize("version", [-1, 99, 32_767])
def test_an_unknown_version_of_api_versions_is_answered(client: WireClient, version: int) -> None:
    """KIP-511: the response has version 0, with the error and the table, so that the client can choose another one."""
    body = b"\0" + b"\x05wire" + b"\x041.0" + b"\0"
    client.send(struct.pack(">ihhih", 10 + len(body), ApiKey.API_VERSIONS, version, 4711, -1) + body)
    response = client.read_response(ApiKey.API_VERSIONS, 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert ApiKey.API_VERSIONS in [found.api_key for found in response.api_keys]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_old_produce_version_is_rejected(client: WireClient, version: int) -> None:
    """It is advertised because old clients check for it, and rejected with a code that they understand."""
    body = struct.pack(">hi", 1, 1000) + struct.pack(">i", 1) + struct.pack(">h", len(TOPIC)) + TOPIC.encode()
    body += struct.pack(">iii", 1, 0, 30) + bytes(30)
    client.send(struct.pack(">ihhih", 10 + len(body), ApiKey.PRODUCE, version, 4711, -1) + body)
    try:
        frame = client.read_frame()
    except ConnectionError:
        return
    # Correlation id, topics, the name, partitions, index, then the code.
    code = struct.unpack_from(">h", frame, 4 + 4 + 2 + len(TOPIC) + 4 + 4)[0]
    assert code == ErrorCode.UNSUPPORTED_VERSION


FRAMES: dict[str, Callable[[], bytes]] = {
    "produce": lambda: produce_frame(TOPIC, good_batch(b"truncated")),
    "metadata": lambda: request_frame(
        ApiKey.METADATA,
        9,
        topics=[Message(name=TOPIC)],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    ),
    "list offsets": lambda: request_frame(
        ApiKey.LIST_OFFSETS,
        1,
        replica_id=-1,
        topics=[Message(name=TOPIC, partitions=[Message(partition_index=0, timestamp=-1)])],
    ),
}


@pytest.mark.parametrize("name", FRAMES)
def test_every_truncation(broker: BrokerProcess, client: WireClient, name: str) -> None:
    """The frame is complete, but the request in it is truncated. The broker must not execute any part of it."""
    whole = FRAMES[name]()
    for end in range(14, len(whole) - 1, max(1, len(whole) // 60)):
        with WireClient(broker.address) as victim:
            victim.send(struct.pack(">i", end - 4) + whole[4:end])
            try:
                victim.read_frame()
            except ConnectionError:
                continue
            assert name != "produce" or end_offset(victim) == len(VALUES)


@pytest.mark.parametrize("count", [2**31 - 1, 2**30, 1_000_000, -2])
def test_an_absurd_array_length(client: WireClient, count: int) -> None:
    body = struct.pack(">ii", -1, count)
    client.send(struct.pack(">ihhih", 10 + len(body), ApiKey.LIST_OFFSETS, 1, 4711, -1) + body)
    assert client.is_closed_by_broker()


def test_an_absurd_compact_array_length(client: WireClient) -> None:
    """An unsigned varint of 2**32 - 1 topics in a flexible Metadata request."""
    body = b"\0" + b"\xff\xff\xff\xff\x0f"
    client.send(struct.pack(">ihhih", 10 + len(body), ApiKey.METADATA, 12, 4711, -1) + body)
    assert client.is_closed_by_broker()


def test_noise(broker: BrokerProcess, client: WireClient) -> None:
    """Valid headers and random bodies, for every served API and version."""
    noise = random.Random(20_240)
    for index in range(300):
        api_key, versions = noise.choice(sorted(SERVED.items()))
        version = noise.randrange(versions.minimum, versions.maximum + 1)
        body = noise.randbytes(noise.randrange(200))
        with WireClient(broker.address) as victim:
            victim.send(struct.pack(">ihhih", 10 + len(body), api_key, version, index, -1) + body)
            victim.socket.shutdown(socket.SHUT_WR)
            while victim.socket.recv(65_536):
                pass


BAD_BATCHES: dict[str, tuple[Callable[[], bytes | bytearray], ErrorCode]] = {
    "wrong crc": (lambda: with_field(good_batch(b"v"), ">I", 17, 12345, crc=False), ErrorCode.CORRUPT_MESSAGE),
    "flipped byte": (lambda: good_batch(b"v" * 50)[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE),
    "cut short": (lambda: good_batch(b"v" * 50)[:-10], ErrorCode.INVALID_RECORD),
    "half a header": (lambda: good_batch(b"v")[:40], ErrorCode.INVALID_RECORD),
    "more records than it has": (
        lambda: with_field(good_batch(b"v"), ">i", 57, 1000),
        ErrorCode.INVALID_RECORD,
    ),
    "negative count": (
        lambda: with_field(good_batch(b"v"), ">i", 57, -5),
        ErrorCode.INVALID_RECORD,
    ),
    "offset delta that is not the count": (
        lambda: with_field(good_batch(b"v"), ">i", 23, 7),
        ErrorCode.INVALID_RECORD,
    ),
    "length beyond the data": (
        lambda: with_field(good_batch(b"v"), ">i", 8, 100_000, crc=False),
        ErrorCode.INVALID_RECORD,
    ),
    "negative length": (
        lambda: with_field(good_batch(b"v"), ">i", 8, -1, crc=False),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "unknown codec": (
        lambda: with_field(good_batch(b"v"), ">h", 21, 7),
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ),
    "control batch": (lambda: with_field(good_batch(b"v"), ">h", 21, 0x20), ErrorCode.INVALID_RECORD),
    "old message format": (
        lambda: with_field(good_batch(b"v"), ">b", 16, 1, crc=False),
        ErrorCode.INVALID_RECORD,
    ),
    "two batches": (lambda: good_batch(b"a") + good_batch(b"b"), ErrorCode.INVALID_RECORD),
    "nothing": (lambda: b"", ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_a_bad_batch_is_rejected(client: WireClient, name: str) -> None:
    make, code = BAD_BATCHES[name]
    assert produce(client, make()) == code
    assert end_offset(client) == len(VALUES), "the connection stays open, and nothing was stored"


def test_a_decompression_bomb_where_the_broker_must_look_inside(client: WireClient) -> None:
    """The broker decompresses batches of compacted topics to check their keys; its memory limit rejects this one."""
    topic = Message(
        name="compacted",
        num_partitions=1,
        replication_factor=1,
        assignments=[],
        configs=[Message(name="cleanup.policy", value="compact")],
    )
    created = client.call(ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=10_000, validate_only=False)
    assert created.topics[0].error_code in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(compressor.compress(bytes(2**20)) for _ in range(100)) + compressor.flush()
    batch = good_batch(b"v", codec=Codec.GZIP)[:61] + bomb
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, compute_crc(batch))
    client.send(produce_frame("compacted", batch))
    response = client.read_response(ApiKey.PRODUCE, 9)
    code = ErrorCode(response.responses[0].partition_responses[0].error_code)
    assert code == ErrorCode.CORRUPT_MESSAGE


def test_an_unknown_acks_value(client: WireClient) -> None:
    client.send(produce_frame(TOPIC, good_batch(b"v"), acks=5))
    response = client.read_response(ApiKey.PRODUCE, 9)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_replies_keep_the_order_of_the_requests(client: WireClient) -> None:
    """A long poll and quick requests after it, all in one write: the quick ones wait for the long poll."""
    fetch = struct.pack(">iiiibi", -1, 500, 1, 2**20, 0, 1) + struct.pack(">h", len(TOPIC)) + TOPIC.encode()
    fetch += struct.pack(">iiqi", 1, 0, len(VALUES), 2**20)
    frames = struct.pack(">ihhih", 10 + len(fetch), ApiKey.FETCH, 4, 1, -1) + fetch
    for correlation_id in (2, 3, 4):
        frames += struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, correlation_id, -1)
    client.send(frames)
    assert [struct.unpack_from(">i", client.read_frame())[0] for _ in range(4)] == [1, 2, 3, 4]


def test_a_request_byte_by_byte(client: WireClient) -> None:
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in request_frame(ApiKey.API_VERSIONS, 0):
        client.send(bytes([byte]))
    assert client.read_response(ApiKey.API_VERSIONS, 0).error_code == 0
