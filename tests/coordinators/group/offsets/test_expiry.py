"""Expiry of unused offsets, and of groups with them."""

import struct

import pytest

from rookery.base.bounds import ITEMS_PER_SLICE
from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.coordinators.group.classic.results import JoinRequest, JoinResult, LeavingMember, SyncRequest
from rookery.coordinators.group.offsets.commit import CommitRequest, FetchRequest, OffsetToCommit
from rookery.coordinators.group.settings import GroupSettings
from rookery.protocol.consumer_protocol import read_topics
from tests.coordinators.group.stage import Stage

MINUTE_MS = 60_000
RETENTION_MS = 100 * MINUTE_MS
CHECK_MS = 10 * MINUTE_MS
LONG_SESSION_MS = 1_000 * MINUTE_MS


def stage() -> Stage:
    return Stage(
        GroupSettings(
            offsets_retention_ms=RETENTION_MS,
            offsets_check_interval_ms=CHECK_MS,
            session_timeout_max_ms=LONG_SESSION_MS,
        )
    )


def commit(
    on: Stage,
    *topics: str,
    group_id: str = "g",
    member_id: str = "",
    generation: int = -1,
    retention_ms: int | None = None,
    metadata: str = "",
) -> list[ErrorCode]:
    request = CommitRequest(
        group_id=group_id,
        member_id=member_id,
        generation=generation,
        retention_ms=retention_ms,
        offsets=tuple(OffsetToCommit(TopicPartition(topic, 0), 5, metadata=metadata) for topic in topics),
    )
    return [item.error_code for item in on.run(lambda shard, now_ms: shard.commit(request, now_ms))]


def topics_of(on: Stage, group_id: str = "g") -> list[str]:
    fetched = on.shard.fetch(FetchRequest(group_id=group_id))
    return sorted(offset.partition.topic for offset in fetched.offsets)


def join(on: Stage, *topics: str, protocol_type: str = "consumer", rebalance_timeout_ms: int = 1000) -> None:
    """Send the JoinGroup of a new member that subscribes to `topics`; it waits for its generation."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    metadata = struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", -1)
    request = JoinRequest(
        group_id="g",
        client_id="a",
        client_host="/h",
        session_timeout_ms=LONG_SESSION_MS,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=protocol_type,
        protocols=(("range", metadata),),
        needs_member_id=False,
    )
    token = on.new_token()
    on.run(lambda shard, now_ms: shard.join(request, token, now_ms), token)


def join_alone(on: Stage, *topics: str, protocol_type: str = "consumer", rebalance_timeout_ms: int = 1000) -> str:
    """Make a stable group of one member that subscribes to `topics`; return its id."""
    join(on, *topics, protocol_type=protocol_type, rebalance_timeout_ms=rebalance_timeout_ms)
    on.pass_time(0)
    ((_, joined),) = on.take_responses()
    assert isinstance(joined, JoinResult)
    sync = SyncRequest(group_id="g", member_id=joined.member_id, generation=joined.generation)
    on.run(lambda shard, now_ms: shard.sync(sync, 0, now_ms))
    return joined.member_id


def test_the_retention_of_a_simple_group_runs_from_the_commit() -> None:
    on = stage()
    commit(on, "old")
    on.pass_time(50 * MINUTE_MS)
    commit(on, "new")
    on.pass_time(49 * MINUTE_MS)
    assert topics_of(on) == ["new", "old"]
    on.pass_time(10 * MINUTE_MS)
    assert topics_of(on) == ["new"]
    on.pass_time(RETENTION_MS)
    assert on.shard.list() == []
    on.restart()
    assert topics_of(on) == []
    assert on.shard.list() == []


def test_a_commit_may_have_its_own_retention() -> None:
    on = stage()
    commit(on, "short", retention_ms=15 * MINUTE_MS)
    commit(on, "long", retention_ms=500 * MINUTE_MS)
    on.pass_time(20 * MINUTE_MS)
    assert topics_of(on) == ["long"]
    on.restart()
    on.pass_time(200 * MINUTE_MS)
    assert topics_of(on) == ["long"]
    on.pass_time(300 * MINUTE_MS)
    assert topics_of(on) == []


def test_a_group_with_members_keeps_the_offsets_of_its_subscriptions() -> None:
    on = stage()
    member_id = join_alone(on, "used")
    commit(on, "used", "unused", member_id=member_id, generation=1)
    on.pass_time(RETENTION_MS + CHECK_MS)
    assert topics_of(on) == ["used"]
    # The retention runs from the time when the group became empty.
    on.run(lambda shard, now_ms: shard.leave("g", [LeavingMember(member_id)], now_ms))
    on.pass_time(RETENTION_MS - CHECK_MS)
    assert topics_of(on) == ["used"]
    on.pass_time(2 * CHECK_MS)
    assert topics_of(on) == []
    assert on.shard.list() == []


def test_nothing_expires_while_the_group_rebalances() -> None:
    on = stage()
    member_id = join_alone(on, "used", rebalance_timeout_ms=LONG_SESSION_MS)
    commit(on, "used", "unused", member_id=member_id, generation=1)
    on.pass_time(RETENTION_MS - 1)
    join(on, "used")
    on.pass_time(CHECK_MS)
    assert topics_of(on) == ["unused", "used"]


def test_subscriptions_are_read_once_per_group(monkeypatch: pytest.MonkeyPatch) -> None:
    on = stage()
    member_id = join_alone(on, "used")
    commit(on, *(f"unused-{number}" for number in range(50)), member_id=member_id, generation=1)
    reads = 0

    def count_reads(data: bytes) -> frozenset[str] | None:
        nonlocal reads
        reads += 1
        return read_topics(data)

    monkeypatch.setattr("rookery.coordinators.group.classic.group.read_topics", count_reads)
    on.pass_time(CHECK_MS)
    assert reads == 1


def test_subscriptions_of_other_protocols_are_unknown() -> None:
    on = stage()
    member_id = join_alone(on, "a", protocol_type="connect")
    commit(on, "b", member_id=member_id, generation=1)
    on.pass_time(2 * RETENTION_MS)
    assert topics_of(on) == ["b"]


def test_an_administrators_commit_to_an_empty_group_has_the_full_retention() -> None:
    on = stage()
    member_id = join_alone(on, "t")
    on.run(lambda shard, now_ms: shard.leave("g", [LeavingMember(member_id)], now_ms))
    on.pass_time(5 * MINUTE_MS)
    commit(on, "t")
    on.pass_time(90 * MINUTE_MS)
    assert topics_of(on) == ["t"]


def test_subscribed_offsets_are_not_deleted() -> None:
    on = stage()
    member_id = join_alone(on, "used")
    commit(on, "used", "unused", member_id=member_id, generation=1)
    partitions = [TopicPartition("used", 0), TopicPartition("unused", 0)]
    result = on.run(lambda shard, _: shard.delete_offsets("g", partitions))
    assert [item.error_code for item in result] == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert topics_of(on) == ["used"]


def test_groups_of_other_protocols_delete_offsets_only_without_members() -> None:
    on = stage()
    join_alone(on, "a", protocol_type="connect")
    assert on.run(lambda shard, _: shard.delete_offsets("g", [TopicPartition("b", 0)])) is ErrorCode.NON_EMPTY_GROUP
    assert on.run(lambda shard, _: shard.delete_offsets("x", [])) is ErrorCode.GROUP_ID_NOT_FOUND


def test_the_offsets_of_a_deleted_topic_are_deleted() -> None:
    on = stage()
    commit(on, "gone", "kept")
    commit(on, "gone", group_id="other")
    on.delete_topic_offsets({"gone", "never seen"})
    assert topics_of(on) == ["kept"]
    assert topics_of(on, "other") == []
    on.restart()
    assert topics_of(on) == ["kept"]


def test_metadata_has_a_limit_in_bytes() -> None:
    on = stage()
    assert commit(on, "t", metadata="x" * 4096) == [ErrorCode.NONE]
    assert commit(on, "t", metadata="ü" * 2049) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]


def test_a_group_that_is_being_joined_does_not_expire() -> None:
    on = stage()
    request = JoinRequest(
        group_id="g",
        client_id="a",
        client_host="/h",
        session_timeout_ms=3 * CHECK_MS,
        rebalance_timeout_ms=1000,
        protocol_type="consumer",
        protocols=(("range", b""),),
    )
    on.run(lambda shard, now_ms: shard.join(request, 0, now_ms))
    on.pass_time(2 * CHECK_MS)
    assert len(on.shard.list()) == 1
    on.pass_time(2 * CHECK_MS)
    assert on.shard.list() == []


def test_many_offsets_of_a_deleted_topic_are_deleted_in_steps() -> None:
    on = stage()
    gone = {f"gone-{number}" for number in range(ITEMS_PER_SLICE + 1)}
    commit(on, "kept", *gone)
    steps = on.shard.steps_to_delete_topic_offsets(gone)
    assert len(next(steps).records) == ITEMS_PER_SLICE
    on.delete_topic_offsets(gone)
    assert topics_of(on) == ["kept"]
