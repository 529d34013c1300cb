"""Requests that are handled in pieces: no item is lost, and the joined response is that of the whole request."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rookery.base.bounds import REQUEST_ITEMS_MAX, WHOLE_REQUEST_ITEMS_MAX
from rookery.base.errors import ErrorCode, ProtocolError
from rookery.base.types import NO_TOPIC_ID
from rookery.broker import dispatch, large_requests
from rookery.broker.api_row import ListenerType
from rookery.broker.api_table import APIS
from rookery.broker.request_pieces import join, pieces
from rookery.net.connection import Held
from rookery.protocol.api import ApiKey
from rookery.protocol.codec import FieldShape, request_shape, response_shape
from rookery.protocol.message import Message
from tests.broker.harness import decode, running, settle

METADATA = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
MANY = 1300


def offsets(count: int) -> Message:
    partitions = [Message(partition_index=index % 3, current_leader_epoch=-1, timestamp=-1) for index in range(count)]
    return Message(name="t", partitions=partitions)


# Each has too many items for one piece; some have an item that does not exist, or that is given twice.
REQUESTS: list[tuple[ApiKey, int, dict[str, Any]]] = [
    (ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "isolation_level": 0, "topics": [offsets(2), offsets(MANY)]}),
    (
        ApiKey.METADATA,
        12,
        {
            "topics": [Message(name=f"t{number % 100}", topic_id=NO_TOPIC_ID) for number in range(MANY)],
            **METADATA,
        },
    ),
    (ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [f"g{number}" for number in range(MANY)]}),
    (
        ApiKey.OFFSET_FETCH,
        7,
        {"group_id": "g", "require_stable": False, "topics": [Message(name="t", partition_indexes=[*range(MANY)])]},
    ),
    (
        ApiKey.OFFSET_FETCH,
        8,
        {
            "require_stable": False,
            "groups": [
                Message(group_id="g", topics=[Message(name="t", partition_indexes=[*range(MANY)])]),
                Message(group_id="h", topics=None),
                Message(group_id="i", topics=[Message(name="t", partition_indexes=[0])]),
            ],
        },
    ),
    (
        ApiKey.DESCRIBE_GROUPS,
        5,
        {"groups": [f"g{number}" for number in range(200)], "include_authorized_operations": False},
    ),
    (ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [f"x{number}" for number in range(200)]}),
    (
        ApiKey.DESCRIBE_CONFIGS,
        4,
        {
            "resources": [
                Message(resource_type=2, resource_name=f"t{number % 40}", configuration_keys=["retention.ms"])
                for number in range(80)
            ],
            "include_synonyms": True,
            "include_documentation": False,
        },
    ),
    (
        ApiKey.OFFSET_COMMIT,
        8,
        {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [
                Message(
                    name=name,
                    partitions=[
                        Message(
                            partition_index=index % 5,
                            committed_offset=index,
                            committed_leader_epoch=-1,
                            committed_metadata=None,
                        )
                        for index in range(MANY)
                    ],
                )
                for name in ("t", "unknown")
            ],
        },
    ),
]


@pytest.mark.parametrize(("api_key", "version", "fields"), REQUESTS, ids=lambda value: getattr(value, "name", ""))
def test_the_joined_response_is_that_of_the_whole_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api_key: ApiKey, version: int, fields: dict[str, Any]
) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            for name in ("t", "t1", "t2"):
                await broker.create_topic(name, partitions=3)
            for kind in (0, 1):
                await broker.call(ApiKey.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=["g"])
            await settle()
            answer = broker.send(api_key, version, **fields)
            assert isinstance(answer, Held), "the request fits into one piece"
            reply = await answer
            assert reply is not None
            route = dispatch.routes(ListenerType.BROKER, is_guarded=False)[api_key, version]
            monkeypatch.setattr(route, "split", None)
            assert decode(api_key, version, reply) == await broker.call(api_key, version, **fields)

    asyncio.run(main())


def test_cut_and_joined_again_a_message_is_the_same() -> None:
    random = Random(5)
    path = ("groups", "topics", "partitions")
    for _ in range(200):
        message = Message(
            groups=[
                Message(
                    group_id=group,
                    topics=random.choice([None, []])
                    if random.random() < 0.2
                    else [
                        Message(name=topic, partitions=[*range(random.choice([0, 1, 2, 9]))])
                        for topic in range(random.randrange(4))
                    ],
                )
                for group in range(random.randrange(4))
            ],
            throttle_time_ms=3,
        )
        size = random.randrange(1, 12)
        whole = None
        for piece in pieces(message, path, size):
            assert piece.item_count <= size
            whole = join(whole, piece.message, path, piece.continued)
        assert whole == message


def test_the_first_error_of_a_piece_is_that_of_the_whole() -> None:
    whole = join(None, Message(error_code=0, topics=[1]), ("topics",), 0)
    whole = join(whole, Message(error_code=ErrorCode.NOT_COORDINATOR, topics=[]), ("topics",), 1)
    whole = join(whole, Message(error_code=ErrorCode.GROUP_ID_NOT_FOUND, topics=[]), ("topics",), 1)
    assert whole == Message(error_code=ErrorCode.NOT_COORDINATOR, topics=[1])


def test_splits_name_arrays_that_requests_and_responses_have() -> None:
    for api in APIS.values():
        for version in api.versions:
            split = api.split_of(version)
            if split is not None:
                assert _is_path(request_shape(api.key, version), split.request), (api.name, version)
                assert _is_path(response_shape(api.key, version), split.response), (api.name, version)


def _is_path(shape: Sequence[FieldShape], path: Sequence[str]) -> bool:
    found = {field.name: field for field in shape}.get(path[0])
    return found is not None and found.is_array and (len(path) == 1 or _is_path(found.fields, path[1:]))


def test_a_request_of_many_bytes_is_decoded_in_a_worker_thread(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("t")
            long_name = "x" * 30_000
            topics = [
                Message(name=name, topic_id=NO_TOPIC_ID) for name in ("t", *(long_name + str(i) for i in range(3)))
            ]
            answer = broker.send(ApiKey.METADATA, 12, topics=topics, **METADATA)
            assert isinstance(answer, Held)
            reply = await answer
            assert reply is not None
            codes = [topic.error_code for topic in decode(ApiKey.METADATA, 12, reply).topics]
            assert codes == [ErrorCode.NONE, *[ErrorCode.INVALID_TOPIC_EXCEPTION] * 3]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("api_key", "version", "fields", "items_max"),
    [
        (ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["k"]}, REQUEST_ITEMS_MAX),
        (ApiKey.DELETE_TOPICS, 5, {"topic_names": ["k"], "timeout_ms": 1}, WHOLE_REQUEST_ITEMS_MAX),
    ],
)
def test_too_many_items_close_the_connection(
    tmp_path: Path, api_key: ApiKey, version: int, fields: dict[str, Any], items_max: int
) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            name = next(name for name, value in fields.items() if isinstance(value, list))
            with pytest.raises(ProtocolError, match="too many"):
                await broker.call(api_key, version, **{**fields, name: fields[name] * (items_max + 1)})

    asyncio.run(main())


def test_large_requests_that_wait_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_requests, "WAITING_REQUEST_BYTES_MAX", 150_000)

    async def main() -> None:
        async with running(tmp_path) as broker:
            topics = [Message(name=f"{number}" * 30_000, topic_id=NO_TOPIC_ID) for number in range(3)]
            first = broker.send(ApiKey.METADATA, 12, topics=topics, **METADATA)
            with pytest.raises(ProtocolError, match="wait"):
                broker.send(ApiKey.METADATA, 12, topics=topics, **METADATA)
            assert isinstance(first, Held)
            await first
            assert len((await broker.call(ApiKey.METADATA, 12, topics=topics, **METADATA)).topics) == 3

    asyncio.run(main())
