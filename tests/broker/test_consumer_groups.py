"""ConsumerGroupHeartbeat and ConsumerGroupDescribe through the dispatcher, as frames, in every version."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from rookery.base.codes import AclResourceType
from rookery.base.errors import ErrorCode
from rookery.broker.visibility import ALL_OPERATIONS, NO_OPERATIONS
from rookery.coordinators import regex
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.broker import harness
from tests.broker.harness import Broker, running, settle, versions

HEARTBEATS = versions(ApiKey.CONSUMER_GROUP_HEARTBEAT)
DESCRIPTIONS = versions(ApiKey.CONSUMER_GROUP_DESCRIBE)


def play(path: Path, scene: Callable[[Broker, UUID], Coroutine[Any, Any, None]], **config: str) -> None:
    """Run `scene` with an active coordinator and the id of the topic `orders`, which has two partitions."""

    async def main(broker: Broker) -> None:
        await find_coordinator(broker)
        await scene(broker, await broker.create_topic("orders", 2))

    harness.play(path, main, {"offsets.topic.num.partitions": "3"}, **config)


async def find_coordinator(broker: Broker) -> None:
    response = await broker.call(ApiKey.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=["g"])
    assert response.coordinators[0].error_code == ErrorCode.NONE


async def beat(broker: Broker, version: int = 1, **fields: Any) -> Message:
    request = {
        "group_id": "g",
        "member_id": "a",
        "member_epoch": 1,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": -1,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": None,
    }
    return await broker.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **(request | fields))


async def join(broker: Broker, version: int = 1, **fields: Any) -> Message:
    request = {
        "member_epoch": 0,
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": ["orders"],
        "topic_partitions": [],
    }
    return await beat(broker, version, **(request | fields))


async def describe(broker: Broker, *group_ids: str, version: int = 1, operations: bool = False) -> list[Message]:
    response = await broker.call(
        ApiKey.CONSUMER_GROUP_DESCRIBE, version, group_ids=list(group_ids), include_authorized_operations=operations
    )
    groups: list[Message] = response.groups
    return groups


def owned(response: Message) -> list[tuple[UUID, list[int]]]:
    return [(topic.topic_id, topic.partitions) for topic in response.assignment.topic_partitions]


@pytest.mark.parametrize("version", HEARTBEATS)
def test_a_member_joins_heartbeats_and_leaves(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker, topic_id: UUID) -> None:
        joined = await join(broker, version)
        assert (joined.error_code, joined.error_message) == (ErrorCode.NONE, None)
        assert (joined.member_id, joined.member_epoch, joined.heartbeat_interval_ms) == ("a", 1, 5000)
        assert owned(joined) == [(topic_id, [0, 1])]
        quiet = await beat(broker, version)
        assert (quiet.error_code, quiet.assignment) == (ErrorCode.NONE, None)
        answered = await beat(broker, version, topic_partitions=[Message(topic_id=topic_id, partitions=[0, 1])])
        assert (answered.error_code, answered.assignment) == (ErrorCode.NONE, None)
        left = await beat(broker, version, member_epoch=-1)
        assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -1)
        gone = await beat(broker, version)
        assert gone.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert gone.error_message == "Member a is not a member of group g."

    play(tmp_path, scene)


def test_only_v0_accepts_an_empty_member_id(tmp_path: Path) -> None:
    async def scene(broker: Broker, _: UUID) -> None:
        given = await join(broker, 0, member_id="")
        assert given.error_code == ErrorCode.NONE
        assert len(given.member_id) == 22
        again = await beat(broker, 0, member_id=given.member_id, member_epoch=given.member_epoch)
        assert again.error_code == ErrorCode.NONE
        refused = await join(broker, 1, member_id="")
        assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
        assert refused.member_id is None

    play(tmp_path, scene)


def test_a_pattern_matches_topics_that_are_created_later(tmp_path: Path) -> None:
    async def scene(broker: Broker, topic_id: UUID) -> None:
        joined = await join(broker, subscribed_topic_names=None, subscribed_topic_regex="or.*")
        assert owned(joined) == [(topic_id, [0, 1])]
        other_id = await broker.create_topic("oranges", 1)
        assert sorted(owned(await beat(broker))) == sorted([(topic_id, [0, 1]), (other_id, [0])])
        bad = await beat(broker, member_epoch=2, subscribed_topic_regex="(or")
        assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION

    play(tmp_path, scene)


def test_a_pattern_with_many_topics_is_matched_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The member gets its partitions with a later heartbeat, as in Kafka."""
    monkeypatch.setattr(regex, "NAMES_PER_SLICE", 10)

    async def scene(broker: Broker, topic_id: UUID) -> None:
        for number in range(30):
            await broker.create_topic(f"other-{number}")
        joined = await join(broker, subscribed_topic_names=None, subscribed_topic_regex="or.*")
        assert (joined.error_code, owned(joined)) == (ErrorCode.NONE, [])
        await settle()
        answered = await beat(broker, member_epoch=joined.member_epoch)
        assert owned(answered) == [(topic_id, [0, 1])]
        quiet = await beat(broker, member_epoch=answered.member_epoch)
        assert (quiet.error_code, quiet.assignment) == (ErrorCode.NONE, None)
        bad = await beat(broker, member_epoch=answered.member_epoch, subscribed_topic_regex="(t)?" * 3000)
        assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION

    play(tmp_path, scene)


def test_the_brokers_settings_apply(tmp_path: Path) -> None:
    async def scene(broker: Broker, _: UUID) -> None:
        joined = await join(broker)
        assert joined.heartbeat_interval_ms == 6000
        full = await join(broker, member_id="b")
        assert full.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert (await describe(broker, "g"))[0].assignor_name == "range"
        unknown = await beat(broker, server_assignor="uniform")
        assert unknown.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR

    play(
        tmp_path,
        scene,
        group_consumer_heartbeat_interval_ms="6000",
        group_consumer_max_size="1",
        group_consumer_assignors="org.apache.kafka.coordinator.group.assignor.RangeAssignor",
    )


@pytest.mark.parametrize("version", DESCRIPTIONS)
def test_groups_are_described(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker, topic_id: UUID) -> None:
        await join(broker, rack_id="east", instance_id="one", subscribed_topic_regex="o.*")
        await join(broker, member_id="b")
        group, unknown = await describe(broker, "g", "missing", version=version, operations=True)
        assert (group.error_code, group.group_state, group.assignor_name) == (0, "Reconciling", "uniform")
        assert (group.group_epoch, group.assignment_epoch) == (2, 2)
        assert group.authorized_operations == ALL_OPERATIONS[AclResourceType.GROUP]
        first, second = group.members
        assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch) == ("a", "one", "east", 1)
        assert (first.client_id, first.client_host) == ("test", "/127.0.0.1")
        assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (["orders"], "o.*")
        assert second.subscribed_topic_regex is None
        (topic,) = first.assignment.topic_partitions
        assert (topic.topic_id, topic.topic_name, topic.partitions) == (topic_id, "orders", [0, 1])
        assert [len(topic.partitions) for topic in first.target_assignment.topic_partitions] == [1]
        assert second.assignment.topic_partitions == []
        if version >= 1:
            assert [member.member_type for member in group.members] == [1, 1]
        assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert unknown.error_message == "Group missing not found."

    play(tmp_path, scene)


def test_operations_are_returned_on_request(tmp_path: Path) -> None:
    async def scene(broker: Broker, _: UUID) -> None:
        await join(broker)
        assert (await describe(broker, "g"))[0].authorized_operations == NO_OPERATIONS

    play(tmp_path, scene)


def test_consumer_groups_are_listed_by_their_type(tmp_path: Path) -> None:
    async def scene(broker: Broker, _: UUID) -> None:
        await join(broker)
        for types, found in (([], ["g"]), (["consumer"], ["g"]), (["Consumer"], ["g"]), (["classic"], [])):
            response = await broker.call(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=types)
            assert [group.group_id for group in response.groups] == found
        (group,) = (await broker.call(ApiKey.LIST_GROUPS, 5, states_filter=["stable"], types_filter=[])).groups
        assert (group.group_type, group.protocol_type, group.group_state) == ("consumer", "consumer", "Stable")

    play(tmp_path, scene)


async def commit(broker: Broker, version: int, member_epoch: int, member_id: str = "a", *, group_id: str = "g") -> int:
    response = await broker.call(
        ApiKey.OFFSET_COMMIT,
        version,
        group_id=group_id,
        generation_id_or_member_epoch=member_epoch,
        member_id=member_id,
        group_instance_id=None,
        topics=[
            Message(
                name="orders",
                partitions=[
                    Message(partition_index=0, committed_offset=7, committed_leader_epoch=-1, committed_metadata="m")
                ],
            )
        ],
    )
    code: int = response.topics[0].partitions[0].error_code
    return code


def test_a_group_of_the_other_protocol_has_its_own_message(tmp_path: Path) -> None:
    async def scene(broker: Broker, _: UUID) -> None:
        await join(broker)
        assert await commit(broker, 8, -1, "", group_id="classic") == 0
        (found,) = await describe(broker, "classic")
        assert found.error_message == "Group classic is not a consumer group."
        response = await broker.call(ApiKey.DESCRIBE_GROUPS, 6, groups=["g"], include_authorized_operations=False)
        assert response.groups[0].error_message == "Group g is not a classic group."

    play(tmp_path, scene)


async def fetch(broker: Broker, member_epoch: int, member_id: str | None = "a") -> tuple[int, list[int]]:
    response = await broker.call(
        ApiKey.OFFSET_FETCH,
        9,
        groups=[
            Message(
                group_id="g",
                member_id=member_id,
                member_epoch=member_epoch,
                topics=[Message(name="orders", partition_indexes=[0])],
            )
        ],
        require_stable=True,
    )
    (group,) = response.groups
    offsets = [partition.committed_offset for topic in group.topics for partition in topic.partitions]
    return group.error_code, offsets


def test_offsets_are_fenced_by_the_member_epoch(tmp_path: Path) -> None:
    async def scene(broker: Broker, _: UUID) -> None:
        await join(broker)
        assert await commit(broker, 9, 1) == ErrorCode.NONE
        assert await commit(broker, 9, 0) == ErrorCode.STALE_MEMBER_EPOCH
        assert await commit(broker, 9, 1, "stranger") == ErrorCode.UNKNOWN_MEMBER_ID
        assert await commit(broker, 8, 1) == ErrorCode.UNSUPPORTED_VERSION
        assert await fetch(broker, 1) == (ErrorCode.NONE, [7])
        assert await fetch(broker, -1, None) == (ErrorCode.NONE, [7])
        assert (await fetch(broker, 0))[0] == ErrorCode.STALE_MEMBER_EPOCH
        assert (await fetch(broker, 1, "stranger"))[0] == ErrorCode.UNKNOWN_MEMBER_ID

    play(tmp_path, scene)


def test_members_keep_their_assignment_over_a_restart(tmp_path: Path) -> None:
    async def before(broker: Broker, _: UUID) -> None:
        await join(broker)
        await join(broker, member_id="b")

    async def after(broker: Broker) -> None:
        await find_coordinator(broker)
        await broker.services.groups.runtime.wait_until_loaded()
        (group,) = await describe(broker, "g")
        assert (group.group_state, group.group_epoch, len(group.members)) == ("Reconciling", 2, 2)
        assert (await beat(broker)).member_epoch == 1

    async def again() -> None:
        async with running(tmp_path, config={"offsets.topic.num.partitions": "3"}) as broker:
            await after(broker)

    play(tmp_path, before)
    asyncio.run(again())


def test_the_feature_is_finalized(tmp_path: Path) -> None:
    async def scene(broker: Broker, _: UUID) -> None:
        response = broker.call_now(ApiKey.API_VERSIONS, 4, client_software_name="test", client_software_version="1")
        assert {feature.name: feature.max_version_level for feature in response.finalized_features}[
            "group.version"
        ] == 1
        supported = {feature.name: feature for feature in response.supported_features}["group.version"]
        assert (supported.min_version, supported.max_version) == (0, 1)

    play(tmp_path, scene)
