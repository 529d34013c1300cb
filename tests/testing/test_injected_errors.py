"""Error responses are built from the schema, so that they are tested for every served API and version."""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest

from rookery.base.errors import ErrorCode
from rookery.protocol.api import SERVED, ApiKey, is_defined
from rookery.protocol.codec import (
    FieldShape,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    request_shape,
)
from rookery.protocol.message import Message
from rookery.testing.injected_errors import Target, check_target, inject_error

CODE = ErrorCode.POLICY_VIOLATION
TOPIC_ID = UUID(int=7)
NAMES = {TOPIC_ID: "by-id"}
EVERYTHING = Target()

# Old versions of this API report errors only for log directories, which a request does not name.
WITHOUT_ERROR_FIELD = {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)}
VERSIONS = [
    (ApiKey(key), version)
    for key, versions in SERVED.items()
    for version in range(versions.minimum, versions.maximum + 1)
    if is_defined(key, version)
]


def sample(shape: Sequence[FieldShape]) -> Message:
    """Return a request with one item in every array."""
    return Message(**{field.name: _sample_value(field) for field in shape})


def _sample_value(field: FieldShape) -> Any:
    value = sample(field.fields) if field.fields else _sample_scalar(field.kind)
    return [value] if field.is_array else value


def _sample_scalar(kind: str) -> Any:
    plain: dict[str, Any] = {"string": "text", "bytes": b"", "records": b"", "uuid": TOPIC_ID, "bool": True}
    return plain.get(kind, 1)


def round_trip(api_key: ApiKey, version: int, request: Message) -> Message:
    return decode_request(api_key, version, encode_request(api_key, version, request))


def error_codes(message: Message) -> Iterator[int]:
    for name, value in vars(message).items():
        if name in ("error_code", "partition_error_code"):
            yield value
        children = value if isinstance(value, list) else [value]
        for child in children:
            if isinstance(child, Message):
                yield from error_codes(child)


def respond(
    api_key: ApiKey, version: int, request: Message, target: Target = EVERYTHING, executed: Message | None = None
) -> Message:
    """Return the response as the client decodes it."""
    injected = inject_error(api_key, version, request, CODE, target=target, topic_name=NAMES.get)
    assert injected is not None
    assert (injected.rest is None) == (executed is None)
    if injected.rest is not None:
        round_trip(api_key, version, injected.rest)
    return decode_response(api_key, version, encode_response(api_key, version, injected.finish(executed)))


@pytest.mark.parametrize(("api_key", "version"), VERSIONS, ids=lambda value: getattr(value, "name", f"v{value}"))
def test_every_served_version_can_fail(api_key: ApiKey, version: int) -> None:
    request = round_trip(api_key, version, sample(request_shape(api_key, version)))
    executed = None
    if api_key == ApiKey.FETCH:
        request.session_epoch = 0
    if api_key == ApiKey.METADATA:
        topics = [Message(error_code=0, name="text", topic_id=TOPIC_ID, is_internal=False, partitions=[])]
        executed = Message(throttle_time_ms=0, error_code=0, brokers=[], cluster_id="c", controller_id=1, topics=topics)
    if (api_key, version) in WITHOUT_ERROR_FIELD:
        assert inject_error(api_key, version, request, CODE, target=EVERYTHING, topic_name=NAMES.get) is None
    else:
        assert CODE in set(error_codes(respond(api_key, version, request, executed=executed)))


def test_every_served_api_can_fail() -> None:
    assert [key for key in SERVED if check_target(ApiKey(key), EVERYTHING)] == []


def produce_request(*partitions: int, acks: int = -1) -> Message:
    data = [Message(index=index, records=b"") for index in partitions]
    topics = [Message(name="a", partition_data=data), Message(name="b", partition_data=data)]
    return Message(transactional_id=None, acks=acks, timeout_ms=1000, topic_data=topics)


def produced(*topics: tuple[str, Sequence[int]]) -> Message:
    return Message(
        throttle_time_ms=0,
        responses=[
            Message(
                name=name,
                partition_responses=[
                    Message(index=index, error_code=0, base_offset=5, log_append_time_ms=-1, log_start_offset=0)
                    for index in indexes
                ],
            )
            for name, indexes in topics
        ],
    )


def produce_errors(response: Message) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.index): partition.error_code
        for topic in response.responses
        for partition in topic.partition_responses
    }


def test_all_partitions_of_a_produce_fail() -> None:
    response = respond(ApiKey.PRODUCE, 9, produce_request(0, 1))
    assert produce_errors(response) == dict.fromkeys([("a", 0), ("a", 1), ("b", 0), ("b", 1)], CODE)
    (first, *_) = response.responses[0].partition_responses
    assert (first.base_offset, first.error_message) == (-1, "injected by the test")


def test_one_partition_fails_and_the_rest_is_executed() -> None:
    target = Target(topic="a", partition=1)
    injected = inject_error(ApiKey.PRODUCE, 9, produce_request(0, 1), CODE, target=target, topic_name=NAMES.get)
    assert injected is not None
    assert injected.rest is not None
    left = [(topic.name, [part.index for part in topic.partition_data]) for topic in injected.rest.topic_data]
    assert left == [("a", [0]), ("b", [0, 1])]
    response = injected.finish(produced(("a", [0]), ("b", [0, 1])))
    assert produce_errors(response) == {("a", 0): 0, ("a", 1): CODE, ("b", 0): 0, ("b", 1): 0}
    assert len(response.responses) == 2, "a topic appears once"


def test_a_request_that_does_not_concern_the_target_does_not_fail() -> None:
    for target in (Target(topic="c"), Target(topic="a", partition=3)):
        request = produce_request(0, 1)
        assert inject_error(ApiKey.PRODUCE, 9, request, CODE, target=target, topic_name=NAMES.get) is None


def fetch_request(*, session_epoch: int) -> Message:
    partitions = [Message(partition=2, fetch_offset=0, partition_max_bytes=1)]
    return Message(
        session_id=9, session_epoch=session_epoch, topics=[Message(topic_id=TOPIC_ID, partitions=partitions)]
    )


def test_partitions_of_a_transaction_are_not_added() -> None:
    topics = [Message(name="a", partitions=[0, 1]), Message(name="b", partitions=[0])]
    request = Message(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=5,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=topics,
    )
    response = respond(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request)
    codes = {
        (topic.name, partition.partition_index): partition.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    }
    assert codes == dict.fromkeys([("a", 0), ("a", 1), ("b", 0)], CODE)


def test_markers_fail_by_producer() -> None:
    topic = Message(name="a", partition_indexes=[3])
    marker = Message(producer_id=5, producer_epoch=0, transaction_result=True, topics=[topic], coordinator_epoch=0)
    response = respond(ApiKey.WRITE_TXN_MARKERS, 1, Message(markers=[marker]))
    (failed,) = response.markers
    assert (failed.producer_id, failed.topics[0].name) == (5, "a")
    (partition,) = failed.topics[0].partitions
    assert (partition.partition_index, partition.error_code) == (3, CODE)


def test_topics_are_also_identified_by_id() -> None:
    response = respond(ApiKey.FETCH, 13, fetch_request(session_epoch=0), Target(topic="by-id", partition=2))
    (topic,) = response.responses
    assert (topic.topic_id, topic.partitions[0].partition_index) == (TOPIC_ID, 2)
    assert (response.error_code, topic.partitions[0].error_code) == (0, CODE)
    assert response.session_id == 0, "no session is begun whose partitions the broker would not have"


def test_a_fetch_session_is_ended_before_it_fails() -> None:
    request = fetch_request(session_epoch=4)
    injected = inject_error(ApiKey.FETCH, 13, request, CODE, target=EVERYTHING, topic_name=NAMES.get)
    assert injected is not None
    assert not injected.counts
    assert injected.finish(None).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_metadata_without_topics_cannot_have_an_error() -> None:
    request = Message(topics=[], allow_auto_topic_creation=True)
    assert inject_error(ApiKey.METADATA, 8, request, CODE, target=EVERYTHING, topic_name=NAMES.get) is None


@pytest.mark.parametrize(
    ("api_key", "target", "reason"),
    [
        (ApiKey.INIT_PRODUCER_ID, Target(topic="a"), "not about topics"),
        (ApiKey.DESCRIBE_CONFIGS, Target(topic="a"), "not about topics"),
        (ApiKey.CREATE_TOPICS, Target(topic="a", partition=0), "whole topics"),
        (ApiKey.METADATA, Target(topic="a"), None),
        (ApiKey.LIST_OFFSETS, Target(topic="a", partition=0), None),
    ],
)
def test_targets_are_checked_against_the_api(api_key: ApiKey, target: Target, reason: str | None) -> None:
    found = check_target(api_key, target)
    assert found is None if reason is None else reason in (found or "")
