"""The codec, compared with kio's reader and writer for every API and version, and with bytes from hostile peers."""

import random
import subprocess
import sys
import tracemalloc
from typing import Any
from uuid import UUID

import pytest

from rookery.base.bounds import REQUEST_ITEMS_MAX
from rookery.base.errors import ErrorCode, ProtocolError, UnsupportedVersionError
from rookery.base.types import Buffer
from rookery.protocol import codec, wire
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.protocol import oracle

MESSAGES = list(oracle.all_messages())
EVERY_MESSAGE = pytest.mark.parametrize(("api_key", "version", "direction"), MESSAGES)
ABSURD_LENGTHS = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\xff", b"\x80\x00\x00\x00")


def _decode(api_key: int, version: int, direction: str, data: Buffer) -> Message:
    decode = codec.decode_request if direction == "request" else codec.decode_response
    return decode(api_key, version, data)


def _encode(api_key: int, version: int, direction: str, message: Message) -> bytes:
    encode = codec.encode_request if direction == "request" else codec.encode_response
    return encode(api_key, version, message)


def _chance(api_key: int, version: int, direction: str) -> random.Random:
    return random.Random(f"{api_key} {version} {direction}")


@EVERY_MESSAGE
def test_agrees_with_the_oracle_both_ways(api_key: int, version: int, direction: str) -> None:
    chance = _chance(api_key, version, direction)
    schema = oracle.load(api_key, version, direction)
    for _ in range(8):
        entity = oracle.random_entity(schema, chance)
        data, message = oracle.encode(entity), oracle.to_message(entity)
        assert _decode(api_key, version, direction, data) == message
        assert _encode(api_key, version, direction, message) == data
        assert oracle.decode(schema, data) == entity


@EVERY_MESSAGE
def test_reads_whole_truncated_and_with_trailing_data(api_key: int, version: int, direction: str) -> None:
    chance = _chance(api_key, version, direction)
    entity = oracle.random_entity(oracle.load(api_key, version, direction), chance, items_max=2)
    data, message = oracle.encode(entity), oracle.to_message(entity)
    assert _decode(api_key, version, direction, memoryview(bytearray(data))) == message
    assert _decode(api_key, version, direction, data + b"trailing") == message
    for size in range(min(len(data), 400)):
        with pytest.raises(ProtocolError):
            _decode(api_key, version, direction, data[:size])


@EVERY_MESSAGE
def test_garbage_raises_only_protocol_error(api_key: int, version: int, direction: str) -> None:
    chance = _chance(api_key, version, direction)
    data = oracle.encode(oracle.random_entity(oracle.load(api_key, version, direction), chance))
    for _ in range(30):
        garbage = _mutate(data, chance)
        try:
            _decode(api_key, version, direction, garbage)
        except ProtocolError:
            continue


def _mutate(data: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.2:
        return chance.randbytes(chance.randint(0, 60))
    mutated = bytearray(data or b"\x00")
    for _ in range(chance.randint(1, 4)):
        position = chance.randrange(len(mutated))
        if chance.random() < 0.5:
            mutated[position] = chance.randrange(256)
        else:
            absurd = chance.choice(ABSURD_LENGTHS)
            mutated[position : position + len(absurd)] = absurd
    return bytes(mutated)


def test_absurd_lengths_cost_no_memory() -> None:
    for api_key, version, direction in MESSAGES[::5]:
        _decode_or_fail(api_key, version, direction, b"")  # the first use compiles, which is not to be measured
    tracemalloc.start()
    try:
        for api_key, version, direction in MESSAGES[::5]:
            for absurd in ABSURD_LENGTHS:
                for lead in range(12):
                    _decode_or_fail(api_key, version, direction, bytes(lead) + absurd * 8)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_a_request_with_too_many_items_is_rejected_before_they_are_created() -> None:
    """Two bytes on the wire are hundreds in memory: without the limit, a large request could use up all memory."""
    topics = b"\x01\x00" * (REQUEST_ITEMS_MAX + 1)
    count = bytearray()
    wire.write_varint(count, REQUEST_ITEMS_MAX + 2)
    with pytest.raises(ProtocolError, match="too many"):
        codec.decode_request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, bytes(count) + topics + bytes(8))


def test_nested_items_count_together() -> None:
    topic = Message(name="a", partition_indexes=[0] * 1000)
    partitions = Message(topics=[topic] * (REQUEST_ITEMS_MAX // 1000))
    data = codec.encode_request(ApiKey.DESCRIBE_PRODUCERS, 0, partitions)
    with pytest.raises(ProtocolError, match="too many"):
        codec.decode_request(ApiKey.DESCRIBE_PRODUCERS, 0, data)
    partitions.topics.pop()
    data = codec.encode_request(ApiKey.DESCRIBE_PRODUCERS, 0, partitions)
    assert codec.decode_request(ApiKey.DESCRIBE_PRODUCERS, 0, data) == partitions


@pytest.mark.parametrize("field", ["group_id", "group_instance_id"])
def test_compact_strings_are_limited_to_the_length_of_plain_ones(field: str) -> None:
    """A string from a flexible request must fit into records and responses that are not flexible."""

    def join(text: str) -> bytes:
        named: dict[str, Any] = {
            "group_id": "",
            "group_instance_id": None,
            "member_id": "",
            "protocol_type": "",
            "protocols": [],
        }
        message = Message(**(named | {field: text}), session_timeout_ms=1, rebalance_timeout_ms=1)
        return codec.encode_request(ApiKey.JOIN_GROUP, 9, message)

    longest = "x" * 32767
    assert codec.decode_request(ApiKey.JOIN_GROUP, 9, join(longest)).get(field) == longest
    with pytest.raises(ProtocolError, match="32768 bytes"):
        codec.decode_request(ApiKey.JOIN_GROUP, 9, join(longest + "x"))


def _decode_or_fail(api_key: int, version: int, direction: str, data: bytes) -> None:
    try:
        _decode(api_key, version, direction, data)
    except ProtocolError:
        return


GOLDEN = [
    # A Metadata request of an old client for one topic: an array of strings.
    (3, 1, "request", "00000001 0003 666f6f", Message(topics=[Message(name="foo")])),
    # ... and for all topics: a null array.
    (3, 1, "request", "ffffffff", Message(topics=None)),
    # The ApiVersions v3 request of the Java client, with its name and version.
    (
        18,
        3,
        "request",
        "12 6170616368652d6b61666b612d6a617661 06 342e312e30 00",
        Message(client_software_name="apache-kafka-java", client_software_version="4.1.0"),
    ),
    # A nullable struct (KIP-893) and compact arrays.
    (
        75,
        0,
        "request",
        "02 02 61 00 000007d0 01 02 61 00000005 00 00",
        Message(
            topics=[Message(name="a")],
            response_partition_limit=2000,
            cursor=Message(topic_name="a", partition_index=5),
        ),
    ),
]


@pytest.mark.parametrize(("api_key", "version", "direction", "data", "message"), GOLDEN)
def test_golden_bytes(api_key: int, version: int, direction: str, data: str, message: Message) -> None:
    golden = bytes.fromhex(data)
    assert _encode(api_key, version, direction, message) == golden
    assert _decode(api_key, version, direction, golden) == message
    assert _decode(api_key, version, direction, golden + b"\x00\x01") == message
    for size in range(len(golden)):
        with pytest.raises(ProtocolError):
            _decode(api_key, version, direction, golden[:size])


@pytest.mark.parametrize(("api_key", "version"), [(3, 14), (3, -1), (0, 2), (7, 0), (999, 0), (-1, 0)])
def test_undefined_versions_have_their_own_error(api_key: int, version: int) -> None:
    with pytest.raises(UnsupportedVersionError):
        codec.decode_request(api_key, version, b"")
    with pytest.raises(UnsupportedVersionError):
        codec.encode_response(api_key, version, Message())


def test_encoding_ignores_other_versions_fields_and_fills_in_defaults() -> None:
    message = Message(transactional_id=None, transaction_timeout_ms=7, some_future_field=1)
    data = codec.encode_request(ApiKey.INIT_PRODUCER_ID, 4, message)
    assert codec.decode_request(ApiKey.INIT_PRODUCER_ID, 4, data) == Message(
        transactional_id=None, transaction_timeout_ms=7, producer_id=-1, producer_epoch=-1
    )


def test_encoding_names_a_missing_field() -> None:
    with pytest.raises(AttributeError, match=r"InitProducerIdRequest\.transaction_timeout_ms"):
        codec.encode_request(ApiKey.INIT_PRODUCER_ID, 4, Message(transactional_id=None))


def test_encoding_accepts_error_codes_and_no_uuid() -> None:
    topic = Message(name="a", topic_id=None, error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, error_message=None)
    message = Message(throttle_time_ms=0, responses=[topic])
    data = codec.encode_response(ApiKey.DELETE_TOPICS, 6, message)
    decoded = codec.decode_response(ApiKey.DELETE_TOPICS, 6, data).responses[0]
    assert (decoded.error_code, decoded.topic_id) == (17, UUID(int=0))


def test_unknown_tagged_fields_are_skipped() -> None:
    data = codec.encode_request(ApiKey.LIST_CONFIG_RESOURCES, 0, Message())
    assert data == b"\x00"
    assert codec.decode_request(ApiKey.LIST_CONFIG_RESOURCES, 0, b"\x01\x63\x02\xaa\xbb") == Message()


@pytest.mark.parametrize(
    "section",
    [
        b"\x01\x63\x03\xaa\xbb",  # an unknown field that is longer than the message
        b"\xff\xff\xff\xff\x0f",  # more fields than bytes
        b"\x01\xff\xff\xff\xff\xff\x00",  # a tag that does not end
        b"\xe9\x07" + b"\x63\x00" * 1001,  # more fields than any schema has
    ],
)
def test_malformed_tagged_fields_are_rejected(section: bytes) -> None:
    with pytest.raises(ProtocolError):
        codec.decode_request(ApiKey.LIST_CONFIG_RESOURCES, 0, section)


def test_a_tagged_field_must_have_the_size_that_it_claims() -> None:
    good = codec.encode_response(
        ApiKey.API_VERSIONS, 3, Message(error_code=0, api_keys=[], throttle_time_ms=0, finalized_features_epoch=5)
    )
    assert codec.decode_response(ApiKey.API_VERSIONS, 3, good).finalized_features_epoch == 5
    bad = good.replace(b"\x01\x01\x08", b"\x01\x01\x09") + b"\x00"
    assert bad != good + b"\x00"
    with pytest.raises(ProtocolError, match="tagged field 1"):
        codec.decode_response(ApiKey.API_VERSIONS, 3, bad)


def test_defaults_are_not_shared_between_messages() -> None:
    data = codec.encode_response(ApiKey.API_VERSIONS, 3, Message(error_code=0, api_keys=[], throttle_time_ms=0))
    first = codec.decode_response(ApiKey.API_VERSIONS, 3, data)
    first.supported_features.append("mine")
    assert codec.decode_response(ApiKey.API_VERSIONS, 3, data).supported_features == []


def test_importing_the_codec_imports_no_schema_and_using_it_no_hypothesis() -> None:
    program = (
        "import sys; from rookery.protocol import codec; from rookery.protocol.message import Message;"
        "assert 'kio' not in sys.modules;"
        "codec.encode_request(18, 0, Message()); assert 'kio' in sys.modules; assert 'hypothesis' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_shapes_describe_the_schema() -> None:
    (topics,) = [field for field in codec.response_shape(ApiKey.METADATA, 12) if field.name == "topics"]
    by_name = {field.name: field for field in topics.fields}
    assert (topics.is_array, topics.is_nullable, topics.kind) == (True, False, "")
    assert (by_name["error_code"].kind, by_name["name"].is_nullable) == ("error_code", True)
    assert [field.name for field in by_name["partitions"].fields][:2] == ["error_code", "partition_index"]
    throttle = codec.response_shape(ApiKey.METADATA, 12)[0]
    assert (throttle.name, throttle.kind, throttle.make_default) == ("throttle_time_ms", "timedelta_i32", None)
    (topics,) = [field for field in codec.request_shape(ApiKey.METADATA, 12) if field.name == "topics"]
    assert topics.is_nullable
