"""The client's side of the hand-written Produce and Fetch, compared with the general codec for every version."""

import random
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from rookery.base.errors import ProtocolError, UnsupportedVersionError
from rookery.base.types import Buffer
from rookery.protocol import codec, fetch, produce
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.dialect import NodeEndpoint
from rookery.protocol.message import Message
from tests.protocol import oracle

PRODUCE_VERSIONS = range(DEFINED[ApiKey.PRODUCE].minimum, DEFINED[ApiKey.PRODUCE].maximum + 1)
FETCH_VERSIONS = range(DEFINED[ApiKey.FETCH].minimum, DEFINED[ApiKey.FETCH].maximum + 1)
MESSAGES_PER_VERSION = 40


def random_messages(api_key: ApiKey, version: int, direction: str) -> list[tuple[bytes, Message]]:
    chance = random.Random(f"{api_key} {version} {direction}")
    schema = oracle.load(api_key, version, direction)
    entities = [oracle.random_entity(schema, chance) for _ in range(MESSAGES_PER_VERSION)]
    return [(oracle.encode(entity), oracle.to_message(entity)) for entity in entities]


def joined(parts: Sequence[Buffer]) -> bytes:
    return b"".join(parts)


# Produce


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_requests_are_written_as_the_codec_writes_them(version: int) -> None:
    chance = random.Random(version)
    for _, message in random_messages(ApiKey.PRODUCE, version, "request"):
        topics: list[produce.OutgoingTopic] = []
        for topic in message.topic_data:
            partitions = []
            for partition in topic.partition_data:
                # A producer never sends null records.
                partition.records = partition.records or b""
                cut = chance.randint(0, len(partition.records))
                partitions.append((partition.index, [partition.records[:cut], partition.records[cut:]]))
            topics.append((topic.get("name"), topic.get("topic_id"), partitions))
        parts = produce.encode_produce_request(
            version,
            transactional_id=message.transactional_id,
            acks=message.acks,
            timeout_ms=message.timeout_ms,
            topics=topics,
        )
        assert joined(parts) == codec.encode_request(ApiKey.PRODUCE, version, message)


@pytest.mark.parametrize("version", [3, 9, 13])
def test_produced_records_are_not_copied(version: int) -> None:
    header, payload = bytes(61), bytearray(1000)
    topics: list[produce.OutgoingTopic] = [("t", UUID(int=1), [(0, [header, payload])])]
    parts = produce.encode_produce_request(version, transactional_id=None, acks=-1, timeout_ms=1, topics=topics)
    assert parts[1] is header
    assert parts[2] is payload


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_383, 16_384, 70_000])
def test_the_size_precedes_records_of_any_size(version: int, size: int) -> None:
    topics = [("t", UUID(int=1), [(0, [bytes(size)]), (1, [])])]
    parts = produce.encode_produce_request(version, transactional_id="x", acks=-1, timeout_ms=1, topics=topics)
    ((_, _, partitions),) = produce.decode_produce(version, joined(parts)).topics
    assert [len(records) for _, records in partitions if records is not None] == [size, 0]


def produce_results(message: Message, version: int) -> produce.ProduceResponse:
    topics = []
    for topic in message.responses:
        results = []
        for partition in topic.partition_responses:
            errors = partition.get("record_errors", [])
            results.append(
                produce.ProducePartitionResult(
                    index=partition.index,
                    error_code=partition.error_code,
                    base_offset=partition.base_offset,
                    log_append_time_ms=partition.log_append_time_ms,
                    log_start_offset=partition.get("log_start_offset", -1),
                    record_errors=[(error.batch_index, error.batch_index_error_message) for error in errors],
                    error_message=partition.get("error_message"),
                    current_leader=unless_default(partition.get("current_leader"), "leader_id", "leader_epoch"),
                )
            )
        topics.append((topic.get("name"), topic.get("topic_id"), results))
    return produce.ProduceResponse(topics, message.throttle_time_ms, endpoints(message))


def unless_default(value: Any, *names: str) -> Any:
    """Return a tagged struct as a tuple, None if it has its default value."""
    if value is None or all(getattr(value, name) == -1 for name in names):
        return None
    return tuple(getattr(value, name) for name in names)


def endpoints(message: Message) -> list[NodeEndpoint]:
    return [NodeEndpoint(each.node_id, each.host, each.port, each.rack) for each in message.get("node_endpoints", [])]


def without_views(results: Sequence[produce.ProducePartitionResult]) -> list[produce.ProducePartitionResult]:
    return [result._replace(record_errors=list(result.record_errors)) for result in results]


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_responses_read_as_the_codec_reads_them(version: int) -> None:
    for data, message in random_messages(ApiKey.PRODUCE, version, "response"):
        response = produce.decode_produce_response(version, data)
        plain = [(name, topic_id, without_views(results)) for name, topic_id, results in response.topics]
        assert response._replace(topics=plain) == produce_results(message, version)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_the_producer_reads_what_the_broker_writes(version: int) -> None:
    results = [produce.ProducePartitionResult(3, 0, 100, -1, 5 if version >= 5 else -1)]
    named = ("t", None) if version < 13 else (None, UUID(int=5))
    data = produce.encode_produce_response(version, [(*named, results)], throttle_time_ms=9)
    assert produce.decode_produce_response(version, memoryview(data)) == ([(*named, results)], 9, [])


# Fetch


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_requests_are_written_as_the_codec_writes_them(version: int) -> None:
    for data, message in random_messages(ApiKey.FETCH, version, "request"):
        request = fetch.decode_fetch(version, data)
        assert fetch.encode_fetch_request(version, request) == codec.encode_request(ApiKey.FETCH, version, message)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_topic_with_both_name_and_id_is_written_in_every_version(version: int) -> None:
    topic = fetch.FetchTopic("t", UUID(int=3), [fetch.FetchPartition(1, 77, 1000, current_leader_epoch=4)])
    forgotten = fetch.ForgottenTopic("old", UUID(int=4), [0, 2])
    request = fetch.FetchRequest(-1, 500, 1, 50_000, 1, 8, 9, [topic], [forgotten], "rack")
    read = fetch.decode_fetch(version, fetch.encode_fetch_request(version, request))
    assert read.topics[0].name == ("t" if version < 13 else None)
    assert read.topics[0].topic_id == (None if version < 13 else UUID(int=3))
    assert read.topics[0].partitions[0].fetch_offset == 77
    assert [each.partitions for each in read.forgotten_topics] == ([[0, 2]] if version >= 7 else [])
    assert (read.replica_id, read.replica_epoch, read.cluster_id) == (-1, -1, None)


def fetched(partition: Message) -> fetch.FetchedPartition:
    aborted = partition.aborted_transactions
    return fetch.FetchedPartition(
        partition=partition.partition_index,
        error_code=partition.error_code,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.get("log_start_offset", -1),
        aborted_transactions=None if aborted is None else [(item.producer_id, item.first_offset) for item in aborted],
        preferred_read_replica=partition.get("preferred_read_replica", -1),
        records=partition.records,
        diverging_epoch=unless_default(partition.get("diverging_epoch"), "epoch", "end_offset"),
        current_leader=unless_default(partition.get("current_leader"), "leader_id", "leader_epoch"),
    )


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_responses_read_as_the_codec_reads_them(version: int) -> None:
    for data, message in random_messages(ApiKey.FETCH, version, "response"):
        response = fetch.decode_fetch_response(version, data)
        assert response.throttle_time_ms == message.throttle_time_ms
        assert (response.error_code, response.session_id) == (
            message.get("error_code", 0),
            message.get("session_id", 0),
        )
        assert response.topics == [
            (topic.get("topic"), topic.get("topic_id"), [fetched(partition) for partition in topic.partitions])
            for topic in message.responses
        ]
        assert response.node_endpoints == endpoints(message)


@pytest.mark.parametrize("version", [4, 18])
def test_fetched_records_are_views_of_the_response(version: int) -> None:
    results = [fetch.FetchPartitionResult(0, records=[b"batch"])]
    frame = bytearray(b"".join(fetch.encode_fetch_response(version, [("t", UUID(int=1), results)])))  # type: ignore[arg-type]
    ((_, _, (partition,)),) = fetch.decode_fetch_response(version, memoryview(frame)).topics
    frame[frame.index(b"batch")] = ord("B")
    assert bytes(partition.records or b"") == b"Batch"


# Hostile bytes


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_hostile_produce_responses_raise_only_protocol_error(version: int) -> None:
    check_hostile(ApiKey.PRODUCE, version, lambda data: produce.decode_produce_response(version, data))


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_hostile_fetch_responses_raise_only_protocol_error(version: int) -> None:
    check_hostile(ApiKey.FETCH, version, lambda data: fetch.decode_fetch_response(version, data))


def check_hostile(api_key: ApiKey, version: int, decode: Callable[[Buffer], object]) -> None:
    """Check truncated and mutated bytes: they are rejected exactly if the general codec rejects them."""
    chance = random.Random(version)
    for data, _ in random_messages(api_key, version, "response")[:8]:
        for size in range(min(len(data), 400)):
            with pytest.raises(ProtocolError):
                decode(data[:size])
        for _ in range(200):
            mutated = bytearray(data)
            for _ in range(chance.randint(1, 3)):
                mutated[chance.randrange(len(mutated))] = chance.choice((0x00, 0x7F, 0xFF, 0x80, chance.randrange(256)))
            assert accepts(decode, mutated) == accepts(
                lambda raw: codec.decode_response(api_key, version, raw), mutated
            )


def accepts(decode: Callable[[Buffer], object], data: bytearray) -> bool:
    try:
        decode(data)
    except ProtocolError:
        return False
    return True


def test_undefined_versions_are_rejected() -> None:
    for version in (-1, 2, 14):
        with pytest.raises(UnsupportedVersionError):
            produce.decode_produce_response(version, b"")
        with pytest.raises(UnsupportedVersionError):
            produce.encode_produce_request(version, transactional_id=None, acks=1, timeout_ms=1, topics=[])
    for version in (3, 19):
        with pytest.raises(UnsupportedVersionError):
            fetch.decode_fetch_response(version, b"")
