"""Group requests through the dispatcher, as frames, in every version, and the differences between versions."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from rookery.base.errors import ErrorCode
from rookery.metadata.image import EMPTY_IMAGE
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.broker import harness
from tests.broker.harness import Broker, running, versions

OFFSETS_TOPIC = "__consumer_offsets"
CONFIG = {"offsets.topic.num.partitions": "5"}


def play(path: Path, scene: Callable[[Broker], Coroutine[Any, Any, None]], **config: str) -> None:
    async def main(broker: Broker) -> None:
        await find_coordinator(broker)
        await scene(broker)

    harness.play(path, main, CONFIG, **config)


async def find_coordinator(broker: Broker, group_id: str = "g") -> Message:
    response = await broker.call(ApiKey.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=[group_id])
    found: Message = response.coordinators[0]
    return found


def join(broker: Broker, version: int = 9, **fields: Any) -> Coroutine[Any, Any, Message]:
    request = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [Message(name="range", metadata=b"meta")],
        "reason": None,
    }
    return broker.call(ApiKey.JOIN_GROUP, version, **(request | fields))


async def join_known(broker: Broker, version: int = 9, **fields: Any) -> Message:
    """Join; if the response assigns a member id first, join again with it."""
    response = await join(broker, version, **fields)
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        response = await join(broker, version, **(fields | {"member_id": response.member_id}))
    return response


async def sync(broker: Broker, joined: Message, version: int = 5, **fields: Any) -> Message:
    request = {
        "group_id": "g",
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [Message(member_id=joined.member_id, assignment=b"work")],
    }
    return await broker.call(ApiKey.SYNC_GROUP, version, **(request | fields))


async def beat(broker: Broker, joined: Message, version: int = 4) -> ErrorCode:
    response = await broker.call(
        ApiKey.HEARTBEAT,
        version,
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=None,
    )
    return ErrorCode(response.error_code)


async def stable_member(broker: Broker, **fields: Any) -> Message:
    joined = await join_known(broker, **fields)
    assert joined.error_code == ErrorCode.NONE
    assert (await sync(broker, joined)).error_code == ErrorCode.NONE
    return joined


async def commit(broker: Broker, version: int = 9, *, topic_id: UUID | None = None, **fields: Any) -> ErrorCode:
    request = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time_ms": -1,
        "topic": "t",
        "offset": 42,
    } | fields
    partition = Message(
        partition_index=0, committed_offset=request.pop("offset"), committed_leader_epoch=3, committed_metadata="note"
    )
    topic = Message(name=request.pop("topic"), topic_id=topic_id, partitions=[partition])
    response = await broker.call(ApiKey.OFFSET_COMMIT, version, topics=[topic], **request)
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def committed(broker: Broker, group_id: str = "g", topic: str = "t") -> int:
    topics = [Message(name=topic, partition_indexes=[0])]
    response = await broker.call(ApiKey.OFFSET_FETCH, 7, group_id=group_id, topics=topics, require_stable=True)
    assert response.error_code == ErrorCode.NONE
    offset: int = response.topics[0].partitions[0].committed_offset
    return offset


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_find_coordinator_creates_the_topic(tmp_path: Path, version: int) -> None:
    async def main() -> None:
        async with running(tmp_path, config=CONFIG) as broker:
            response = await broker.call(
                ApiKey.FIND_COORDINATOR, version, key="g", key_type=0, coordinator_keys=["g", "h"]
            )
            found = response.coordinators if version >= 4 else [response]
            assert len(found) == (2 if version >= 4 else 1)
            if version >= 1:
                assert {item.error_message for item in found} == {"" if version >= 4 else "NONE"}
            assert {(item.error_code, item.node_id, item.host, item.port) for item in found} == {
                (0, 1, "localhost", 9092)
            }
            topic = broker.services.image.topics[OFFSETS_TOPIC]
            assert len(topic.partitions) == 5
            config = broker.services.image.topic_config(OFFSETS_TOPIC)
            assert config["cleanup.policy"] == "compact"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("key_type", "code"),
    [(2, ErrorCode.INVALID_REQUEST), (77, ErrorCode.INVALID_REQUEST)],
)
def test_find_coordinator_of_other_kinds(tmp_path: Path, key_type: int, code: ErrorCode) -> None:
    async def main() -> None:
        async with running(tmp_path, config=CONFIG) as broker:
            old = await broker.call(ApiKey.FIND_COORDINATOR, 1, key="k", key_type=key_type)
            assert (old.error_code, old.node_id, old.port) == (code, -1, -1)
            new = await broker.call(ApiKey.FIND_COORDINATOR, 6, coordinator_keys=["k"], key_type=key_type)
            assert new.coordinators[0].error_code == code
            assert new.coordinators[0].error_message
            assert OFFSETS_TOPIC not in broker.services.image.topics

    asyncio.run(main())


def test_before_the_topic_exists_there_is_no_coordinator(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, config=CONFIG) as broker:
            assert (await join(broker)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert (await broker.call(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=[])).groups == []

    asyncio.run(main())


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_join_group(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        first = await join(broker, version)
        if version >= 4:
            assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
            assert first.generation_id == -1
            first = await join(broker, version, member_id=first.member_id)
        assert first.error_code == ErrorCode.NONE
        assert first.generation_id == 1
        assert first.leader == first.member_id
        assert first.member_id.startswith("test-")
        assert first.protocol_name == "range"
        assert [(member.member_id, member.metadata) for member in first.members] == [(first.member_id, b"meta")]
        if version >= 7:
            assert first.protocol_type == "consumer"
        refused = await join(broker, version, session_timeout_ms=1)
        assert refused.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
        assert refused.protocol_name == (None if version >= 7 else "")

    play(tmp_path, scene)


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
def test_sync_group(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        joined = await join_known(broker)
        synced = await sync(broker, joined, version)
        assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"work")
        if version >= 5:
            assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")
            refused = await sync(broker, joined, version, protocol_name=None)
            assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        stale = await sync(broker, joined, version, generation_id=7)
        assert stale.error_code == ErrorCode.ILLEGAL_GENERATION

    play(tmp_path, scene)


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
def test_heartbeat(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        joined = await stable_member(broker)
        assert await beat(broker, joined, version) is ErrorCode.NONE
        joined.generation_id += 1
        assert await beat(broker, joined, version) is ErrorCode.ILLEGAL_GENERATION
        joined.member_id = "missing"
        assert await beat(broker, joined, version) is ErrorCode.UNKNOWN_MEMBER_ID

    play(tmp_path, scene)


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_leave_group(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        joined = await stable_member(broker)
        members = [
            Message(member_id=joined.member_id, group_instance_id=None, reason="done"),
            Message(member_id="missing", group_instance_id=None, reason=None),
        ]
        response = await broker.call(
            ApiKey.LEAVE_GROUP, version, group_id="g", member_id=joined.member_id, members=members
        )
        assert response.error_code == ErrorCode.NONE
        if version >= 3:
            codes = [(member.member_id, member.error_code) for member in response.members]
            assert codes == [(joined.member_id, ErrorCode.NONE), ("missing", ErrorCode.UNKNOWN_MEMBER_ID)]
        else:
            again = await broker.call(ApiKey.LEAVE_GROUP, version, group_id="g", member_id=joined.member_id)
            assert again.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert await beat(broker, joined) is ErrorCode.UNKNOWN_MEMBER_ID

    play(tmp_path, scene)


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_offset_commit(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        topic_id = await broker.create_topic("t")
        by_id = version >= 10
        assert await commit(broker, version, topic_id=topic_id) is ErrorCode.NONE
        assert await committed(broker) == 42
        missing = await commit(broker, version, topic="missing", topic_id=UUID(int=5))
        assert missing is (ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        joined = await stable_member(broker)
        mine = {"member_id": joined.member_id, "topic_id": topic_id}
        code = await commit(broker, version, generation_id_or_member_epoch=1, offset=43, **mine)
        assert code is ErrorCode.NONE
        code = await commit(broker, version, generation_id_or_member_epoch=9, **mine)
        assert code is ErrorCode.ILLEGAL_GENERATION
        assert await commit(broker, version, topic_id=topic_id) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await committed(broker) == 43

    play(tmp_path, scene)


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_offset_fetch(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        topic_id = await broker.create_topic("t", 2)
        assert await commit(broker) is ErrorCode.NONE

        async def fetch(group_id: str, topics: list[Message] | None) -> Message:
            group = {"group_id": group_id, "topics": topics}
            groups = [Message(**group, member_id=None, member_epoch=-1)]
            response = await broker.call(ApiKey.OFFSET_FETCH, version, groups=groups, require_stable=True, **group)
            found: Message = response.groups[0] if version >= 8 else response
            assert found.get("error_code", ErrorCode.NONE) == ErrorCode.NONE
            return found

        asked = [Message(name="t", topic_id=topic_id, partition_indexes=[1, 0])]
        (topic,) = (await fetch("g", asked)).topics
        first, second = topic.partitions
        assert (first.partition_index, first.committed_offset, first.error_code) == (1, -1, ErrorCode.NONE)
        assert (second.partition_index, second.committed_offset, second.metadata) == (0, 42, "note")
        if version >= 5:
            assert second.committed_leader_epoch == 3
        (unknown,) = (await fetch("missing", asked)).topics
        assert [partition.committed_offset for partition in unknown.partitions] == [-1, -1]
        if version >= 2:
            (everything,) = (await fetch("g", None)).topics
            assert [partition.partition_index for partition in everything.partitions] == [0]
            assert (await fetch("missing", None)).topics == []
        if version >= 10:
            assert topic.topic_id == topic_id
            (missing,) = (await fetch("g", [Message(topic_id=UUID(int=5), partition_indexes=[0])])).topics
            assert missing.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    play(tmp_path, scene)


def test_offset_fetch_of_several_groups(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        await broker.create_topic("t")
        for number in range(10):
            await commit(broker, group_id=f"g{number}", offset=number)
        groups = [Message(group_id=f"g{number}", member_id=None, member_epoch=-1, topics=None) for number in range(10)]
        response = await broker.call(ApiKey.OFFSET_FETCH, 9, groups=groups, require_stable=False)
        found = {group.group_id: group.topics[0].partitions[0].committed_offset for group in response.groups}
        assert found == {f"g{number}": number for number in range(10)}

    play(tmp_path, scene)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_describe_groups(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        joined = await stable_member(broker)
        response = await broker.call(
            ApiKey.DESCRIBE_GROUPS, version, groups=["g", "missing"], include_authorized_operations=True
        )
        group, missing = response.groups
        assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
        (member,) = group.members
        assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "test", "/127.0.0.1")
        assert (member.member_metadata, member.member_assignment) == (b"meta", b"work")
        assert (missing.group_state, missing.members) == ("Dead", [])
        assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
        if version >= 6:
            assert missing.error_message == "Group missing not found."
        if version >= 3:
            assert group.authorized_operations > 0

    play(tmp_path, scene)


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_list_groups(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        await broker.create_topic("t")
        await stable_member(broker)
        await commit(broker, group_id="simple")

        async def listed(states: list[str], types: list[str]) -> set[tuple[str, ...]]:
            response = await broker.call(ApiKey.LIST_GROUPS, version, states_filter=states, types_filter=types)
            assert response.error_code == ErrorCode.NONE
            fields = ("group_id", "protocol_type", "group_state", "group_type")
            return {
                tuple(getattr(group, field) for field in fields[: max(2, version - 1)]) for group in response.groups
            }

        consumer, simple = ("g", "consumer", "Stable", "classic"), ("simple", "", "Empty", "classic")
        size = max(2, version - 1)
        assert await listed([], []) == {consumer[:size], simple[:size]}
        if version >= 4:
            assert await listed(["stable", "Dead"], []) == {consumer[:size]}
            assert await listed(["invalid"], []) == set()
        if version >= 5:
            assert await listed([], ["Classic"]) == {consumer, simple}
            assert await listed([], ["consumer"]) == set()

    play(tmp_path, scene)


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
def test_delete_groups(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        await broker.create_topic("t")
        await stable_member(broker)
        await commit(broker, group_id="simple")
        names = ["g", "simple", "missing", "simple"]
        response = await broker.call(ApiKey.DELETE_GROUPS, version, groups_names=names)
        codes = {result.group_id: ErrorCode(result.error_code) for result in response.results}
        assert codes == {
            "g": ErrorCode.NON_EMPTY_GROUP,
            "simple": ErrorCode.NONE,
            "missing": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        assert await committed(broker, "simple") == -1

    play(tmp_path, scene)


def test_offset_delete(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        await broker.create_topic("t")
        await commit(broker)
        topics = [Message(name=name, partitions=[Message(partition_index=0)]) for name in ("t", "missing")]
        response = await broker.call(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=topics)
        assert response.error_code == ErrorCode.NONE
        codes = [topic.partitions[0].error_code for topic in response.topics]
        assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await committed(broker) == -1
        response = await broker.call(ApiKey.OFFSET_DELETE, 0, group_id="missing", topics=topics)
        assert (response.error_code, response.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])

    play(tmp_path, scene)


def test_two_members_wait_for_each_other(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        leader = await stable_member(broker)
        second = asyncio.ensure_future(join_known(broker))
        while await beat(broker, leader) is not ErrorCode.REBALANCE_IN_PROGRESS:
            await asyncio.sleep(0)
        assert not second.done()
        rejoined = await join(broker, member_id=leader.member_id)
        joined = await second
        assert rejoined.generation_id == joined.generation_id == 2
        assert len(rejoined.members) == 2
        assert joined.members == []
        waiting = asyncio.ensure_future(sync(broker, joined, assignments=[]))
        await asyncio.sleep(0)
        assert not waiting.done()
        work = [
            Message(member_id=leader.member_id, assignment=b"one"),
            Message(member_id=joined.member_id, assignment=b"two"),
        ]
        assert (await sync(broker, rejoined, assignments=work)).assignment == b"one"
        assert (await waiting).assignment == b"two"

    play(tmp_path, scene)


def test_an_empty_group_id_is_an_error(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        no_member = Message(member_id="", generation_id=-1)
        assert (await join(broker, group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
        assert (await sync(broker, no_member, group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
        response = await broker.call(ApiKey.LEAVE_GROUP, 5, group_id="", members=[])
        assert response.error_code == ErrorCode.INVALID_GROUP_ID
        response = await broker.call(ApiKey.OFFSET_DELETE, 0, group_id="", topics=[])
        assert response.error_code == ErrorCode.INVALID_GROUP_ID
        response = await broker.call(
            ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[""], include_authorized_operations=False
        )
        assert response.groups[0].error_code == ErrorCode.INVALID_GROUP_ID

    play(tmp_path, scene)


def test_a_deleted_topics_offsets_are_gone(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        await broker.create_topic("t")
        await commit(broker)
        await broker.call(ApiKey.DELETE_TOPICS, 6, topics=[Message(name="t", topic_id=None)], timeout_ms=60_000)
        await broker.create_topic("t")
        assert await committed(broker) == -1

    play(tmp_path, scene)


@pytest.mark.parametrize("codec", ["0", "4"])
def test_members_and_offsets_survive_a_restart(tmp_path: Path, codec: str) -> None:
    async def main() -> None:
        config = CONFIG | {"offsets.topic.compression.codec": codec}
        async with running(tmp_path, config=config) as broker:
            await find_coordinator(broker)
            await broker.create_topic("t")
            joined = await stable_member(broker)
            mine = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
            assert await commit(broker, offset=77, **mine) is ErrorCode.NONE
        async with running(tmp_path, config=CONFIG) as broker:
            await broker.services.groups.runtime.wait_until_loaded()
            assert await beat(broker, joined) is ErrorCode.NONE
            assert (await sync(broker, joined)).assignment == b"work"
            assert await committed(broker) == 77
            assert await commit(broker, offset=78, **mine) is ErrorCode.NONE

    asyncio.run(main())


def test_requests_to_a_loading_coordinator(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, config=CONFIG) as broker:
            await find_coordinator(broker)
            joined = await stable_member(broker)
        async with running(tmp_path, config=CONFIG) as broker:
            runtime = broker.services.groups.runtime
            runtime.apply(EMPTY_IMAGE)
            # The load begins, and the event loop does not run before the requests.
            runtime.apply(broker.services.image)
            loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert broker.call_now(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=[]).error_code == loading
            request = {"group_id": "g", "topics": [], "require_stable": False}
            assert broker.call_now(ApiKey.OFFSET_FETCH, 7, **request).error_code == loading
            refused = broker.call_now(ApiKey.DESCRIBE_GROUPS, 6, groups=["g"], include_authorized_operations=False)
            assert refused.groups[0].error_code == loading
            # No response makes a member leave the group.
            heartbeat = {"group_id": "g", "generation_id": 1, "member_id": "anybody", "group_instance_id": None}
            assert broker.call_now(ApiKey.HEARTBEAT, 4, **heartbeat).error_code == ErrorCode.NONE
            await runtime.wait_until_loaded()
            assert await beat(broker, joined) is ErrorCode.NONE

    asyncio.run(main())


def test_the_session_of_a_silent_member_ends(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        joined = await stable_member(broker, session_timeout_ms=1000, rebalance_timeout_ms=1000)
        while (await describe_state(broker)) != "Empty":
            await asyncio.sleep(0.01)
        assert await beat(broker, joined) is ErrorCode.UNKNOWN_MEMBER_ID

    play(tmp_path, scene, group_min_session_timeout_ms="1000")


async def describe_state(broker: Broker) -> str:
    response = await broker.call(ApiKey.DESCRIBE_GROUPS, 5, groups=["g"], include_authorized_operations=False)
    state: str = response.groups[0].group_state
    return state
