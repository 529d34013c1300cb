"""The classic member's state, by transcript: what it says, what it hears, what it does next."""

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.client.membership.classic import ClassicMember, State, Step
from rookery.protocol.messages import JoinGroupResponse, SyncGroupResponse


def member(instance_id: str | None = None) -> ClassicMember:
    return ClassicMember("g", instance_id=instance_id, session_timeout_ms=100, rebalance_timeout_ms=200)


def join_answer(
    code: ErrorCode = ErrorCode.NONE,
    *,
    generation_id: int = 5,
    leader: str = "other",
    member_id: str = "m",
    skip_assignment: bool = False,
) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        generation_id=generation_id,
        protocol_name="range",
        leader=leader,
        member_id=member_id,
        members=[],
        skip_assignment=skip_assignment,
    )


def sync_answer(code: ErrorCode = ErrorCode.NONE, assignment: bytes = b"mine") -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=assignment)


def stable(instance_id: str | None = None) -> ClassicMember:
    it = member(instance_id)
    it.join_request([("range", b"topics")])
    it.joined(join_answer())
    it.sync_request({})
    it.synced(sync_answer())
    return it


def test_a_follower_joins_and_syncs() -> None:
    it = member()
    request = it.join_request([("range", b"topics"), ("sticky", b"more")])
    assert (request.member_id, request.session_timeout_ms, request.get("rebalance_timeout_ms")) == ("", 100, 200)
    assert [(row.name, row.metadata) for row in request.protocols] == [("range", b"topics"), ("sticky", b"more")]
    assert it.joined(join_answer()) == Step.SYNC
    assert (it.state, it.is_leader, it.generation, it.completed_generation) == (
        State.COMPLETING_REBALANCE,
        False,
        5,
        -1,
    )
    to_sync = it.sync_request({})
    assert (to_sync.generation_id, to_sync.member_id, to_sync.get("protocol_name")) == (5, "m", "range")
    assert it.synced(sync_answer()) == Step.SETTLE
    assert (it.state, it.assignment, it.completed_generation, it.rejoin_reason) == (State.STABLE, b"mine", 5, None)


@pytest.mark.parametrize("skips", [False, True])
def test_a_leader_assigns_unless_the_group_keeps_its_assignment(skips: bool) -> None:
    it = member()
    it.join_request([])
    it.joined(join_answer(leader="m", skip_assignment=skips))
    assert (it.is_leader, it.must_assign) == (True, not skips)
    request = it.sync_request({"m": b"1", "n": b"2"})
    assert [(row.member_id, row.assignment) for row in request.assignments] == [("m", b"1"), ("n", b"2")]


def test_a_member_id_is_taken_over_at_once() -> None:
    it = member()
    it.join_request([])
    assert it.joined(join_answer(ErrorCode.MEMBER_ID_REQUIRED, generation_id=-1, member_id="given")) == Step.JOIN_NOW
    assert it.join_request([]).member_id == "given"
    assert it.leave_request("why") is not None


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "m")]
)
def test_who_is_no_member_any_more_has_lost_everything(code: ErrorCode, member_id: str) -> None:
    it = stable()
    assert it.told(code, it.identity) == Step.LOSE
    assert (it.state, it.is_member, it.completed_generation) == (State.UNJOINED, False, -1)
    assert it.join_request([]).member_id == member_id
    it.joined(join_answer())
    assert it.synced(sync_answer(code)) == Step.LOSE


def test_what_is_said_to_someone_we_were_does_not_count() -> None:
    it = stable()
    before = it.identity
    it.request_rejoin("for the test")
    request = it.join_request([])
    assert request.get("reason") == "for the test"
    assert it.told(ErrorCode.ILLEGAL_GENERATION, before) == Step.GO_ON
    it.joined(join_answer(generation_id=6))
    assert it.told(ErrorCode.UNKNOWN_MEMBER_ID, before) == Step.GO_ON
    assert it.is_member


def test_a_rebalance_is_followed() -> None:
    it = stable()
    assert it.told(ErrorCode.NONE, it.identity) == Step.GO_ON
    assert it.rejoin_reason is None
    assert it.told(ErrorCode.REBALANCE_IN_PROGRESS, it.identity) == Step.GO_ON
    assert it.rejoin_reason == "the group is rebalancing"
    it.join_request([])
    it.joined(join_answer(generation_id=6))
    assert it.synced(sync_answer(ErrorCode.REBALANCE_IN_PROGRESS)) == Step.JOIN_NOW
    # What we own was assigned in the generation before.
    assert (it.generation, it.completed_generation) == (6, 5)


def test_static_members_do_not_leave() -> None:
    assert stable("i").leave_request("why") is None
    leaving = stable().leave_request("why")
    assert leaving is not None
    assert [(row.member_id, row.get("reason")) for row in leaving.get("members", ())] == [("m", "why")]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_what_cannot_be_mended_is_raised(code: ErrorCode) -> None:
    it = member("i")
    it.join_request([])
    with pytest.raises(ApiError) as refusal:
        it.joined(join_answer(code))
    assert refusal.value.code == code
    it = stable("i")
    with pytest.raises(ApiError):
        it.told(code, it.identity)
    with pytest.raises(ApiError):
        it.synced(sync_answer(code))
