"""The state of a classic member: requests, responses, and the next step."""

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.client.membership.classic import ClassicMember, State, Step
from rookery.protocol.messages import JoinGroupResponse, SyncGroupResponse


def member(instance_id: str | None = None) -> ClassicMember:
    return ClassicMember("g", instance_id=instance_id, session_timeout_ms=100, rebalance_timeout_ms=200)


def join_response(
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


def sync_response(code: ErrorCode = ErrorCode.NONE, assignment: bytes = b"mine") -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=assignment)


def stable(instance_id: str | None = None) -> ClassicMember:
    it = member(instance_id)
    it.join_request([("range", b"topics")])
    it.joined(join_response())
    it.sync_request({})
    it.synced(sync_response())
    return it


def test_a_follower_joins_and_syncs() -> None:
    it = member()
    request = it.join_request([("range", b"topics"), ("sticky", b"more")])
    assert (request.member_id, request.session_timeout_ms, request.get("rebalance_timeout_ms")) == ("", 100, 200)
    assert [(row.name, row.metadata) for row in request.protocols] == [("range", b"topics"), ("sticky", b"more")]
    assert it.joined(join_response()) == Step.SYNC
    assert (it.state, it.is_leader, it.generation, it.completed_generation) == (
        State.COMPLETING_REBALANCE,
        False,
        5,
        -1,
    )
    to_sync = it.sync_request({})
    assert (to_sync.generation_id, to_sync.member_id, to_sync.get("protocol_name")) == (5, "m", "range")
    assert it.synced(sync_response()) == Step.ADOPT
    assert (it.state, it.assignment, it.completed_generation, it.rejoin_reason) == (State.STABLE, b"mine", 5, None)


@pytest.mark.parametrize("skips", [False, True])
def test_a_leader_assigns_unless_the_group_keeps_its_assignment(skips: bool) -> None:
    it = member()
    it.join_request([])
    it.joined(join_response(leader="m", skip_assignment=skips))
    assert (it.is_leader, it.must_assign) == (True, not skips)
    request = it.sync_request({"m": b"1", "n": b"2"})
    assert [(row.member_id, row.assignment) for row in request.assignments] == [("m", b"1"), ("n", b"2")]


def test_a_required_member_id_leads_to_an_immediate_join() -> None:
    it = member()
    it.join_request([])
    assert it.joined(join_response(ErrorCode.MEMBER_ID_REQUIRED, generation_id=-1, member_id="given")) == Step.JOIN_NOW
    assert it.join_request([]).member_id == "given"
    assert it.leave_request("why") is not None


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "m")]
)
def test_a_removed_member_loses_everything(code: ErrorCode, member_id: str) -> None:
    it = stable()
    assert it.on_error_code(code, it.identity) == Step.LOSE
    assert (it.state, it.is_member, it.completed_generation) == (State.UNJOINED, False, -1)
    assert it.join_request([]).member_id == member_id
    it.joined(join_response())
    assert it.synced(sync_response(code)) == Step.LOSE


def test_replies_to_an_earlier_identity_are_ignored() -> None:
    it = stable()
    before = it.identity
    it.request_rejoin("for the test")
    request = it.join_request([])
    assert request.get("reason") == "for the test"
    assert it.on_error_code(ErrorCode.ILLEGAL_GENERATION, before) == Step.CONTINUE
    it.joined(join_response(generation_id=6))
    assert it.on_error_code(ErrorCode.UNKNOWN_MEMBER_ID, before) == Step.CONTINUE
    assert it.is_member


def test_a_rebalance_leads_to_a_join() -> None:
    it = stable()
    assert it.on_error_code(ErrorCode.NONE, it.identity) == Step.CONTINUE
    assert it.rejoin_reason is None
    assert it.on_error_code(ErrorCode.REBALANCE_IN_PROGRESS, it.identity) == Step.CONTINUE
    assert it.rejoin_reason == "the group is rebalancing"
    it.join_request([])
    it.joined(join_response(generation_id=6))
    assert it.synced(sync_response(ErrorCode.REBALANCE_IN_PROGRESS)) == Step.JOIN_NOW
    # The owned partitions were assigned in the generation before.
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
def test_final_errors_are_raised(code: ErrorCode) -> None:
    it = member("i")
    it.join_request([])
    with pytest.raises(ApiError) as raised:
        it.joined(join_response(code))
    assert raised.value.code == code
    it = stable("i")
    with pytest.raises(ApiError):
        it.on_error_code(code, it.identity)
    with pytest.raises(ApiError):
        it.synced(sync_response(code))
