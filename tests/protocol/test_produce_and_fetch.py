"""The hand-written Produce and Fetch, compared with the general codec for every version."""

import random
from typing import Any
from uuid import UUID

import pytest

from rookery.base.bounds import PRODUCE_PARTITIONS_MAX, WHOLE_REQUEST_ITEMS_MAX
from rookery.base.errors import ProtocolError, UnsupportedVersionError
from rookery.base.types import NO_TOPIC_ID
from rookery.protocol import codec, dialect, fetch, produce
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.framing import parts_size
from rookery.protocol.message import Message
from tests.protocol import oracle

PRODUCE_VERSIONS = range(DEFINED[ApiKey.PRODUCE].minimum, DEFINED[ApiKey.PRODUCE].maximum + 1)
FETCH_VERSIONS = range(DEFINED[ApiKey.FETCH].minimum, DEFINED[ApiKey.FETCH].maximum + 1)
MESSAGES_PER_VERSION = 40


def _random_requests(api_key: ApiKey, version: int) -> list[tuple[bytes, Message]]:
    chance = random.Random(f"{api_key} {version}")
    schema = oracle.load(api_key, version, "request")
    entities = [oracle.random_entity(schema, chance) for _ in range(MESSAGES_PER_VERSION)]
    return [(oracle.encode(entity), oracle.to_message(entity)) for entity in entities]


def _random_responses(api_key: ApiKey, version: int) -> list[tuple[bytes, Message]]:
    chance = random.Random(f"{api_key} {version}")
    schema = oracle.load(api_key, version, "response")
    entities = [oracle.random_entity(schema, chance) for _ in range(MESSAGES_PER_VERSION)]
    return [(oracle.encode(entity), oracle.to_message(entity)) for entity in entities]


def _produce_as_message(request: produce.ProduceRequest, version: int) -> Message:
    topics = []
    for name, topic_id, partitions in request.topics:
        topic = Message(topic_id=topic_id) if version >= 13 else Message(name=name)
        topic.partition_data = [Message(index=index, records=records) for index, records in partitions]
        topics.append(topic)
    return Message(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=topics,
    )


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_requests_read_as_the_codec_reads_them(version: int) -> None:
    for data, message in _random_requests(ApiKey.PRODUCE, version):
        request = produce.decode_produce(version, b"header" + data, 6)
        assert _produce_as_message(request, version) == message


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("transactional_id", [None, "", "t"])
@pytest.mark.parametrize("name", ["a", "n" * 125, "n" * 126, "n" * 127, "n" * 300])
@pytest.mark.parametrize("records", [None, b"", b"batch", b"b" * 126, b"b" * 127, b"b" * 20_000])
def test_a_single_batch_reads_as_the_codec_reads_it(
    version: int, transactional_id: str | None, name: str, records: bytes | None
) -> None:
    """The smallest requests, which have a fast path, and requests that differ in one detail."""
    topic = Message(name=name, topic_id=UUID(int=7), partition_data=[Message(index=3, records=records)])
    message = Message(transactional_id=transactional_id, acks=-1, timeout_ms=5, topic_data=[topic])
    data = codec.encode_request(0, version, message)
    expected = codec.decode_request(0, version, data)
    assert _produce_as_message(produce.decode_produce(version, data), version) == expected
    if version >= 9:
        # An unknown tagged field at the end: tag 9 with one byte.
        tagged = data[:-1] + b"\x01\x09\x01x"
        assert _produce_as_message(produce.decode_produce(version, tagged), version) == expected
    for size in range(min(len(data), 60)):
        with pytest.raises(ProtocolError):
            produce.decode_produce(version, data[:size])


def test_produced_records_are_writable_views_of_the_frame() -> None:
    topic = Message(name="a", partition_data=[Message(index=3, records=b"batch")])
    data = codec.encode_request(0, 9, Message(transactional_id=None, acks=-1, timeout_ms=5, topic_data=[topic]))
    frame = bytearray(data)
    ((_, _, ((_, records),)),) = produce.decode_produce(9, memoryview(frame)).topics
    assert records is not None
    records[:1] = b"B"
    assert b"Batch" in frame


def _produce_results(message: Message) -> list[produce.ProduceTopicResult]:
    topics: list[produce.ProduceTopicResult] = []
    for topic in message.responses:
        results = []
        for partition in topic.partition_responses:
            leader = partition.get("current_leader")
            errors = partition.get("record_errors", [])
            results.append(
                produce.ProducePartitionResult(
                    index=partition.index,
                    error_code=partition.error_code,
                    base_offset=partition.base_offset,
                    log_append_time_ms=partition.log_append_time_ms,
                    log_start_offset=partition.get("log_start_offset", 77),
                    record_errors=[(error.batch_index, error.batch_index_error_message) for error in errors],
                    error_message=partition.get("error_message", "ignored where the version has none"),
                    current_leader=_unless_default(leader, "leader_id", "leader_epoch"),
                )
            )
        topics.append((topic.get("name"), topic.get("topic_id"), results))
    return topics


def _unless_default(value: Any, *names: str) -> Any:
    """Return a tagged struct as a tuple, None if it has its default value."""
    if value is None or all(getattr(value, name) == -1 for name in names):
        return None
    return tuple(getattr(value, name) for name in names)


def _endpoints(message: Message) -> list[dialect.NodeEndpoint]:
    endpoints = message.get("node_endpoints", [])
    return [
        dialect.NodeEndpoint(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack) for endpoint in endpoints
    ]


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_responses_are_written_as_the_codec_writes_them(version: int) -> None:
    for data, message in _random_responses(ApiKey.PRODUCE, version):
        encoded = produce.encode_produce_response(
            version,
            _produce_results(message),
            throttle_time_ms=message.throttle_time_ms,
            node_endpoints=_endpoints(message),
        )
        assert encoded == data == codec.encode_response(ApiKey.PRODUCE, version, message)


def _check_fetch(request: fetch.FetchRequest, message: Message) -> None:
    state = message.get("replica_state", Message(replica_id=message.get("replica_id"), replica_epoch=-1))
    assert (request.replica_id, request.replica_epoch) == (state.replica_id, state.replica_epoch)
    for name in ("max_wait_ms", "min_bytes", "max_bytes", "isolation_level"):
        assert getattr(request, name) == getattr(message, name)
    for name, default in (("session_id", 0), ("session_epoch", -1), ("rack_id", ""), ("cluster_id", None)):
        assert getattr(request, name) == message.get(name, default)
    assert [_topic_key(topic) for topic in request.topics] == [_topic_key(topic) for topic in message.topics]
    for topic, expected in zip(request.topics, message.topics, strict=True):
        assert topic.partitions == [_fetch_partition(partition) for partition in expected.partitions]
    forgotten = message.get("forgotten_topics_data", [])
    assert [(_topic_key(topic), topic.partitions) for topic in request.forgotten_topics] == [
        (_topic_key(topic), topic.partitions) for topic in forgotten
    ]


def _topic_key(topic: Any) -> str | UUID | None:
    if isinstance(topic, Message):
        key: str | UUID | None = topic.get("topic", topic.get("topic_id"))
    else:
        assert (topic.name is None) != (topic.topic_id is None)
        key = topic.topic_id if topic.name is None else topic.name
    return key


def _fetch_partition(partition: Message) -> fetch.FetchPartition:
    return fetch.FetchPartition(
        partition=partition.partition,
        fetch_offset=partition.fetch_offset,
        partition_max_bytes=partition.partition_max_bytes,
        current_leader_epoch=partition.get("current_leader_epoch", -1),
        last_fetched_epoch=partition.get("last_fetched_epoch", -1),
        log_start_offset=partition.get("log_start_offset", -1),
        replica_directory_id=partition.get("replica_directory_id", NO_TOPIC_ID),
        high_watermark=partition.get("high_watermark", 2**63 - 1),
    )


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_requests_read_as_the_codec_reads_them(version: int) -> None:
    for data, message in _random_requests(ApiKey.FETCH, version):
        _check_fetch(fetch.decode_fetch(version, b"header" + data, 6), message)


def _fetch_results(message: Message, chance: random.Random) -> list[fetch.FetchTopicResult]:
    topics: list[fetch.FetchTopicResult] = []
    for topic in message.responses:
        results = [_fetch_result(partition, chance) for partition in topic.partitions]
        topics.append((topic.get("topic"), topic.get("topic_id"), results))
    return topics


def _fetch_result(partition: Message, chance: random.Random) -> fetch.FetchPartitionResult:
    aborted = partition.aborted_transactions
    cut = chance.randint(0, len(partition.records or b""))
    return fetch.FetchPartitionResult(
        partition=partition.partition_index,
        error_code=partition.error_code,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.get("log_start_offset", 77),
        aborted_transactions=None if aborted is None else [(item.producer_id, item.first_offset) for item in aborted],
        preferred_read_replica=partition.get("preferred_read_replica", 77),
        records=None if partition.records is None else [partition.records[:cut], partition.records[cut:]],
        diverging_epoch=_unless_default(partition.get("diverging_epoch"), "epoch", "end_offset"),
        current_leader=_unless_default(partition.get("current_leader"), "leader_id", "leader_epoch"),
        snapshot_id=_unless_default(partition.get("snapshot_id"), "end_offset", "epoch"),
    )


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_responses_are_written_as_the_codec_writes_them(version: int) -> None:
    for data, message in _random_responses(ApiKey.FETCH, version):
        parts = fetch.encode_fetch_response(
            version,
            _fetch_results(message, random.Random(version)),
            throttle_time_ms=message.throttle_time_ms,
            error_code=message.get("error_code", 0),
            session_id=message.get("session_id", 0),
            node_endpoints=_endpoints(message),
        )
        assert b"".join(bytes(part) for part in parts if not isinstance(part, tuple)) == data
        assert parts_size(parts) == len(data)
        assert data == codec.encode_response(ApiKey.FETCH, version, message)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_hostile_produce_requests_raise_only_protocol_error(version: int) -> None:
    _check_hostile(ApiKey.PRODUCE, version, lambda data: produce.decode_produce(version, data))


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_hostile_fetch_requests_raise_only_protocol_error(version: int) -> None:
    _check_hostile(ApiKey.FETCH, version, lambda data: fetch.decode_fetch(version, data))


def _check_hostile(api_key: ApiKey, version: int, decode: Any) -> None:
    """Check truncated and mutated bytes: they are rejected exactly if the general codec rejects them."""
    chance = random.Random(version)
    for data, _ in _random_requests(api_key, version)[:8]:
        for size in range(min(len(data), 400)):
            with pytest.raises(ProtocolError):
                decode(data[:size])
        for _ in range(200):
            mutated = bytearray(data)
            for _ in range(chance.randint(1, 3)):
                mutated[chance.randrange(len(mutated))] = chance.choice((0x00, 0x7F, 0xFF, 0x80, chance.randrange(256)))
            assert _accepts(decode, mutated) == _accepts(
                lambda raw: codec.decode_request(api_key, version, raw), mutated
            )


def _accepts(decode: Any, data: bytearray) -> bool:
    try:
        decode(data)
    except ProtocolError:
        return False
    return True


def test_requests_with_too_many_partitions_are_rejected() -> None:
    partition = Message(index=0, records=None)
    topics = [Message(name="a", partition_data=[partition] * (PRODUCE_PARTITIONS_MAX // 2 + 1))] * 2
    data = codec.encode_request(0, 9, Message(transactional_id=None, acks=1, timeout_ms=1, topic_data=topics))
    with pytest.raises(ProtocolError, match="too many"):
        produce.decode_produce(9, data)
    forgotten = [Message(topic="a", partitions=[0] * (WHOLE_REQUEST_ITEMS_MAX // 2 + 1))] * 2
    request = Message(max_wait_ms=0, min_bytes=0, topics=[], forgotten_topics_data=forgotten, replica_id=-1)
    with pytest.raises(ProtocolError, match="too many"):
        fetch.decode_fetch(9, codec.encode_request(1, 9, request))


def test_undefined_versions_are_rejected() -> None:
    for version in (-1, 2, 14):
        with pytest.raises(UnsupportedVersionError):
            produce.decode_produce(version, b"")
    for version in (3, 19):
        with pytest.raises(UnsupportedVersionError):
            fetch.decode_fetch(version, b"")
