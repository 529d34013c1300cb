"""Many groups in few requests: against a scripted broker."""

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.admin import Admin, GroupDescription, OffsetAndMetadata
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.client.admin.scripted import in_turn, run_with
from tests.client.fake_broker import NODE_ID, Responder

TP = TopicPartition("t", 0)


def coordinators(version: int, request: Message) -> Message:
    keys = request.get("coordinator_keys", None) or [request.get("key")]
    found = {"node_id": NODE_ID, "host": "127.0.0.1", "port": 1, "error_code": 0, "error_message": None}
    rows = [Message(key=key, **found) for key in keys]
    return Message(throttle_time_ms=0, coordinators=rows, **found)


def offsets(codes: dict[str, ErrorCode]) -> Responder:
    """Answer OffsetFetch: each group has committed the number in its name, or has an error."""

    def row(group_id: str) -> Message:
        partition = Message(
            partition_index=0,
            committed_offset=int(group_id.removeprefix("g")),
            committed_leader_epoch=-1,
            metadata="",
            error_code=0,
        )
        topics = [] if codes.get(group_id) else [Message(name="t", partitions=[partition])]
        return Message(group_id=group_id, topics=topics, error_code=codes.get(group_id, ErrorCode.NONE))

    def one(version: int, request: Message) -> Message:
        if version >= 8:
            return Message(throttle_time_ms=0, groups=[row(group.group_id) for group in request.groups])
        found = row(request.group_id)
        return Message(throttle_time_ms=0, topics=found.topics, error_code=found.error_code)

    return one


def apis(requests: list[tuple[ApiKey, int, Message]]) -> list[ApiKey]:
    return [key for key, _, _ in requests if key not in (ApiKey.API_VERSIONS, ApiKey.METADATA)]


def test_offsets_of_250_groups_take_three_requests_and_one_look_up() -> None:
    names = [f"g{number}" for number in range(250)]
    answers = {ApiKey.FIND_COORDINATOR: coordinators, ApiKey.OFFSET_FETCH: offsets({})}
    found, broker = run_with(answers, lambda admin: admin.committed_offset_batch(names))
    assert found == {f"g{number}": {TP: OffsetAndMetadata(number)} for number in range(250)}
    assert apis(broker.requests) == [ApiKey.FIND_COORDINATOR, *[ApiKey.OFFSET_FETCH] * 3]


@pytest.mark.parametrize("find_version", [3, 4])
@pytest.mark.parametrize("version", [7, 8])
def test_old_brokers_are_asked_for_each_group(version: int, find_version: int) -> None:
    answers = {ApiKey.FIND_COORDINATOR: coordinators, ApiKey.OFFSET_FETCH: offsets({})}
    found, _ = run_with(
        answers,
        lambda admin: admin.committed_offset_batch(["g1", "g2"]),
        OFFSET_FETCH=version,
        FIND_COORDINATOR=find_version,
    )
    assert found == {"g1": {TP: OffsetAndMetadata(1)}, "g2": {TP: OffsetAndMetadata(2)}}


def test_an_error_of_one_group_leaves_the_others() -> None:
    codes = {"g2": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    answers = {ApiKey.FIND_COORDINATOR: coordinators, ApiKey.OFFSET_FETCH: offsets(codes)}
    found, _ = run_with(answers, lambda admin: admin.committed_offset_batch(["g1", "g2"]))
    assert found["g1"] == {TP: OffsetAndMetadata(1)}
    failed = found["g2"]
    assert isinstance(failed, ApiError)
    assert failed.code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_only_groups_whose_coordinator_moved_are_asked_again() -> None:
    answers = {
        ApiKey.FIND_COORDINATOR: coordinators,
        ApiKey.OFFSET_FETCH: in_turn(offsets({"g2": ErrorCode.NOT_COORDINATOR}), offsets({})),
    }
    found, broker = run_with(answers, lambda admin: admin.committed_offset_batch(["g1", "g2"]))
    assert found == {"g1": {TP: OffsetAndMetadata(1)}, "g2": {TP: OffsetAndMetadata(2)}}
    looked_up = [request.coordinator_keys for key, _, request in broker.requests if key == ApiKey.FIND_COORDINATOR]
    assert looked_up == [["g1", "g2"], ["g2"]]


def consumer_described(version: int, request: Message) -> Message:
    def row(group_id: str) -> Message:
        is_consumer = group_id.startswith("new")
        return Message(
            error_code=ErrorCode.NONE if is_consumer else ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=None,
            group_id=group_id,
            group_state="Stable" if is_consumer else "",
            group_epoch=3,
            assignment_epoch=3,
            assignor_name="uniform",
            members=[],
            authorized_operations=-(2**31),
        )

    return Message(throttle_time_ms=0, groups=[row(group_id) for group_id in request.group_ids])


def classic_described(version: int, request: Message) -> Message:
    def row(group_id: str) -> Message:
        return Message(
            error_code=0,
            error_message=None,
            group_id=group_id,
            group_state="Dead" if group_id == "absent" else "Empty",
            protocol_type="consumer",
            protocol_data="",
            members=[],
            authorized_operations=-(2**31),
        )

    return Message(throttle_time_ms=0, groups=[row(group_id) for group_id in request.groups])


def test_groups_of_both_protocols_are_described_together() -> None:
    answers = {
        ApiKey.FIND_COORDINATOR: coordinators,
        ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_described,
        ApiKey.DESCRIBE_GROUPS: classic_described,
    }

    async def work(admin: Admin) -> list[GroupDescription]:
        return await admin.describe_group_batch(["old", "new", "absent"])

    found, broker = run_with(answers, work)
    assert [(each.group_id, each.group_type, each.state, each.error) for each in found] == [
        ("old", "classic", "Empty", ErrorCode.NONE),
        ("new", "consumer", "Stable", ErrorCode.NONE),
        ("absent", "", "", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert apis(broker.requests) == [ApiKey.FIND_COORDINATOR, ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.DESCRIBE_GROUPS]
