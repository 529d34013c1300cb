"""No request blocks the event loop: the longest turn of the loop, counted in calls (see `tests.support.stalls`)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from rookery.base.bounds import FETCH_PARTITIONS_PER_SLICE, ITEMS_PER_SLICE, PARTITIONS_PER_SLICE
from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID
from rookery.net.connection import Held
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.replication.manager import ReplicaManager
from rookery.replication.replica import Replica
from tests.broker.harness import Broker, UnsyncedFiles, decode, request_frame, running, settle, start
from tests.net.support import until
from tests.support.stalls import CALLS_MAX, counted_calls, counted_turns

METADATA = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}


def measure(path: Path, scene: Callable[[Broker], Awaitable[None]], **config: str) -> int:
    """Return the longest turn of the loop while `scene` runs."""

    async def main() -> int:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        async with running(path, config=settings) as broker:
            with counted_turns() as turns:
                await scene(broker)
        return turns.longest

    return asyncio.run(main())


def new_topics(count: int, partitions: int) -> list[Message]:
    return [
        Message(name=f"t{number}", num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        for number in range(count)
    ]


async def create(broker: Broker, count: int, partitions: int) -> None:
    reply = broker.send(ApiKey.CREATE_TOPICS, 7, topics=new_topics(count, partitions), timeout_ms=600_000)
    assert isinstance(reply, Awaitable)
    await reply


def test_create_topics_and_delete_topics_of_many_partitions_do_not_block_the_loop(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        await create(broker, 1, 1500)
        assert len(broker.services.replicas) == 1500
        deleted = await broker.call(ApiKey.DELETE_TOPICS, 5, topic_names=["t0"], timeout_ms=600_000)
        assert deleted.responses[0].error_code == ErrorCode.NONE
        assert len(broker.services.replicas) == len(broker.logs.logs()) == 0

    assert measure(tmp_path, scene) < CALLS_MAX


def test_create_topics_of_many_topics_does_not_block_the_loop(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        await create(broker, 500, 1)
        assert len(broker.services.image.topics) == 500

    assert measure(tmp_path, scene) < CALLS_MAX


def test_requests_during_a_long_creation_see_all_partitions_or_none(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        creation = asyncio.ensure_future(create(broker, 1, 500))
        seen = set()
        while not creation.done():
            reply = broker.call_now(ApiKey.METADATA, 12, topics=None, **METADATA)
            seen.add(sum(len(topic.partitions) for topic in reply.topics))
            # Every partition in the metadata can be written to.
            assert len(broker.services.image.topics) == 0 or len(broker.services.replicas) == 500
            await asyncio.sleep(0)
        assert seen <= {0, 500}

    measure(tmp_path, scene)


def test_a_topic_that_is_created_again_has_none_of_its_old_records(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        first = await broker.create_topic("again", partitions=40)
        broker.append("again", b"old", partition=39)
        await broker.call(ApiKey.DELETE_TOPICS, 5, topic_names=["again"], timeout_ms=600_000)
        assert await broker.create_topic("again", partitions=40) != first
        assert broker.replica("again", 39).log.end_offset == 0

    measure(tmp_path, scene)


def test_a_failed_disk_leaves_the_topic_without_its_partitions(tmp_path: Path) -> None:
    class FullFiles(UnsyncedFiles):
        def make_directory(self, path: Path) -> None:
            raise OSError(28, "no space left on device")

    async def main() -> None:
        async with running(tmp_path, files=FullFiles()) as broker:
            await create(broker, 1, 2)
            assert len(broker.services.replicas) == 0
            assert list(broker.services.image.topics) == ["t0"]

    asyncio.run(main())


ITEMS = 20_000
RESOURCES = [Message(resource_type=2, resource_name="t", configuration_keys=None)] * ITEMS
OFFSETS = [
    Message(partition_index=index, committed_offset=1, committed_leader_epoch=-1, committed_metadata=None)
    for index in range(ITEMS)
]
LONG_REQUESTS: list[tuple[ApiKey, int, dict[str, Any]]] = [
    (
        ApiKey.METADATA,
        12,
        {"topics": [Message(name=f"n{index}", topic_id=NO_TOPIC_ID) for index in range(ITEMS)], **METADATA},
    ),
    (ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [f"g{index}" for index in range(ITEMS)]}),
    (
        ApiKey.OFFSET_FETCH,
        8,
        {
            "groups": [Message(group_id="g", topics=[Message(name="t", partition_indexes=[*range(ITEMS)])])],
            "require_stable": False,
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
            "topics": [Message(name="t", partitions=OFFSETS)],
        },
    ),
    (
        ApiKey.DESCRIBE_CONFIGS,
        4,
        {"resources": RESOURCES, "include_synonyms": True, "include_documentation": False},
    ),
    (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        {
            "v3_and_below_transactional_id": "x",
            "v3_and_below_producer_id": 1,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [Message(name="t", partitions=[*range(ITEMS - 1)])],
        },
    ),
]


@pytest.mark.parametrize(("api_key", "version", "fields"), LONG_REQUESTS, ids=lambda value: getattr(value, "name", ""))
def test_a_request_with_many_items_does_not_block_the_loop(
    tmp_path: Path, api_key: ApiKey, version: int, fields: dict[str, Any]
) -> None:
    async def main() -> int:
        async with running(tmp_path) as broker:
            await broker.create_topic("t")
            for kind in (0, 1):
                await broker.call(ApiKey.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=["g"])
            await settle()
            frame = memoryview(request_frame(api_key, version, **fields))
            with counted_turns() as turns:
                await asyncio.sleep(0)
                answer = broker.dispatcher.handle(frame, broker.connection)
                if isinstance(answer, Awaitable):
                    await answer
        return turns.longest

    assert asyncio.run(main()) < CALLS_MAX


def test_a_repeated_resource_is_described_once(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        await broker.create_topic("t")
        answer = await broker.call(
            ApiKey.DESCRIBE_CONFIGS, 4, resources=RESOURCES, include_synonyms=True, include_documentation=False
        )
        assert [result.resource_name for result in answer.results] == ["t"]

    measure(tmp_path, scene)


def fetch_frame(session_id: int, session_epoch: int, indexes: range, *, topic: str = "t", **more: Any) -> memoryview:
    wanted = [Message(partition=index, fetch_offset=0, partition_max_bytes=1_000_000) for index in indexes]
    fields = {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "session_id": session_id,
        "session_epoch": session_epoch,
        "topics": [Message(topic=topic, partitions=wanted)] if wanted else [],
        "forgotten_topics_data": [],
        **more,
    }
    return memoryview(request_frame(ApiKey.FETCH, 12, **fields))


def test_a_fetch_of_many_partitions_does_not_block_the_loop(tmp_path: Path) -> None:
    async def main() -> int:
        async with running(tmp_path) as broker:
            await broker.create_topic("t", partitions=2)
            broker.append("t", b"first", partition=1)
            frame = fetch_frame(0, 0, range(ITEMS))
            with counted_turns() as turns:
                await asyncio.sleep(0)
                answer = broker.dispatcher.handle(frame, broker.connection)
                assert isinstance(answer, Held)
                reply = await answer
            assert reply is not None
            response = decode(ApiKey.FETCH, 12, reply)
            assert [bool(each.records) for each in response.responses[0].partitions[:2]] == [False, True]
            # The requests of a session are small, but have as many partitions; this one waits for data.
            follow_up = fetch_frame(response.session_id, 1, range(0), max_wait_ms=60_000, min_bytes=500)
            with counted_turns() as later_turns:
                await asyncio.sleep(0)
                waiting = broker.dispatcher.handle(follow_up, broker.connection)
                assert isinstance(waiting, Held)
                task = asyncio.ensure_future(waiting)
                await until(lambda: len(broker.services.pending) == 1)
                broker.append("t", b"x" * 600)
                reply = await task
            assert reply is not None
            partitions = decode(ApiKey.FETCH, 12, reply).responses[0].partitions
            assert [each.partition_index for each in partitions if each.records] == [0, 1]
        return max(turns.longest, later_turns.longest)

    assert asyncio.run(main()) < CALLS_MAX


PARTITIONS = 600


def test_a_start_with_many_partitions_does_not_block_the_loop(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await create(broker, 3, PARTITIONS // 3)
        with counted_turns() as turns:
            broker = await start(tmp_path, config={}, files=UnsyncedFiles())
        await broker.close()
        assert len(broker.services.replicas) == PARTITIONS
        assert turns.longest < CALLS_MAX
        with counted_calls(ReplicaManager, "_host") as hosted:
            again = await start(tmp_path, config={}, files=UnsyncedFiles())
        await again.close()
        assert hosted.total == PARTITIONS
        assert hosted.longest <= ITEMS_PER_SLICE

    asyncio.run(main())


def test_new_partitions_become_visible_without_a_look_at_each(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        with counted_calls(ReplicaManager, "_host") as hosted, counted_calls(ReplicaManager, "_create") as created:
            await create(broker, 2, 50)
        assert len(broker.services.replicas) == 100
        assert hosted.total == 0
        assert created.total == 100
        assert created.longest <= PARTITIONS_PER_SLICE

    measure(tmp_path, scene)


def test_a_fetch_reads_few_partitions_per_turn(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        await create(broker, 1, PARTITIONS)
        frames = [fetch_frame(0, 0, range(PARTITIONS), topic="t0") for _ in range(3)]
        with counted_calls(Replica, "read") as reads:
            answers = [broker.dispatcher.handle(frame, broker.connection) for frame in frames]
            for answer in answers:
                assert isinstance(answer, Held)
            await asyncio.gather(*cast(Sequence[Awaitable[object]], answers))
        assert reads.total == 3 * PARTITIONS
        assert reads.longest <= FETCH_PARTITIONS_PER_SLICE, "together"

    measure(tmp_path, scene)


def test_a_waiting_fetch_stops_reading_once_it_can_be_answered(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        await create(broker, 1, 100)
        frame = fetch_frame(0, 0, range(100), topic="t0", max_wait_ms=60_000)
        answer = broker.dispatcher.handle(frame, broker.connection)
        assert isinstance(answer, Awaitable)
        for index in range(100):
            broker.append("t0", b"x", partition=index)
        with counted_calls(Replica, "read") as reads:
            reply = await answer
        assert reply is not None
        response = decode(ApiKey.FETCH, 12, reply)
        assert all(each.records for each in response.responses[0].partitions)
        assert reads.total == 1 + 100, "one to see that there are records, and those of the response"

    measure(tmp_path, scene)
