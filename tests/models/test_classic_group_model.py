"""Any history of a classic group: members join, leave, stall and die, time passes, the coordinator restarts.

Invariants: generations only increase; a group with a generation has exactly one leader, which is a member; when the
group is stable, every member has what the leader of that generation assigned to it, and not the share of another one;
a member that was removed gets an error; no request gets two responses; and a restart restores the stored state. From
any state, a group with live members becomes stable, with a share for each of them.
"""

from typing import Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rookery.base.errors import ErrorCode
from rookery.coordinators.group.classic.group import ClassicGroup
from rookery.coordinators.group.classic.results import (
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from rookery.coordinators.group.classic.states import State
from rookery.coordinators.group.settings import GroupSettings
from rookery.coordinators.result import PARKED
from tests.coordinators.group.stage import Stage

GROUP_ID = "g"
NAMES = ("a", "b", "c", "d")
STATIC = frozenset(("c", "d"))
# Long enough for a session and two rebalances to time out, at a second each.
ROUNDS_MAX = 100
name_of = st.sampled_from(NAMES)


class Client:
    """The state of one member; `token` is set while it waits for a response."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.instance_id = name if name in STATIC else None
        self.member_id = ""
        self.generation = -1
        self.leads: tuple[str, ...] = ()
        self.token: int | None = None
        # Its assignment in this generation.
        self.assignment: bytes | None = None
        self.metadata = b"0"

    def rejoin(self, *, member_id: str) -> None:
        self.member_id, self.generation, self.assignment = member_id, -1, None


class ClassicGroupModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(GroupSettings(initial_rebalance_delay_ms=1000))
        self.clients = {name: Client(name) for name in NAMES}
        self.generation = 0
        # What leaders assigned: by generation, and member.
        self.assigned: dict[int, dict[str, bytes]] = {}

    @property
    def group(self) -> ClassicGroup | None:
        group = self.stage.shard.groups.get(GROUP_ID)
        assert group is None or isinstance(group, ClassicGroup)
        return group

    @rule(name=name_of, changed=st.booleans(), needs_id=st.booleans())
    def join(self, name: str, changed: bool, needs_id: bool) -> None:
        client = self.clients[name]
        if changed:
            client.metadata = str(int(client.metadata) + 1).encode()
        request = JoinRequest(
            group_id=GROUP_ID,
            member_id=client.member_id,
            instance_id=client.instance_id,
            client_id=name,
            client_host="/127.0.0.1",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=(("range", client.metadata), ("sticky", client.metadata)),
            needs_member_id=needs_id,
        )
        self._request(client, lambda shard, token, now_ms: shard.join(request, token, now_ms))

    @rule(name=name_of)
    def sync(self, name: str) -> None:
        client = self.clients[name]
        work = {member_id: f"{client.generation}:{member_id}".encode() for member_id in client.leads}
        request = SyncRequest(
            group_id=GROUP_ID,
            member_id=client.member_id,
            instance_id=client.instance_id,
            generation=client.generation,
            assignments=tuple(work.items()),
        )
        result = self._request(client, lambda shard, token, now_ms: shard.sync(request, token, now_ms))
        if isinstance(result, SyncResult) and result.error_code is ErrorCode.NONE:
            self.assigned.setdefault(client.generation, work)

    @rule(name=name_of)
    def beat(self, name: str) -> None:
        client = self.clients[name]
        request = HeartbeatRequest(
            group_id=GROUP_ID,
            member_id=client.member_id,
            instance_id=client.instance_id,
            generation=client.generation,
        )
        code = self.stage.run(lambda shard, now_ms: shard.heartbeat(request, now_ms))
        self._handle_code(client, code)
        if code is ErrorCode.NONE:
            assert self.group is not None
            assert self.group.generation == client.generation
            assert client.member_id in self.group.members

    @rule(name=name_of)
    def leave(self, name: str) -> None:
        client = self.clients[name]
        leaving = [LeavingMember(client.member_id, client.instance_id)]
        self.stage.run(lambda shard, now_ms: shard.leave(GROUP_ID, leaving, now_ms))
        self.clients[name] = self._replace(client)
        self._receive()

    @rule(name=name_of)
    def crash(self, name: str) -> None:
        """The client dies without leaving the group, and a new one with its name starts."""
        self.clients[name] = self._replace(self.clients[name])

    @rule(duration_ms=st.sampled_from((1, 1000, 5000, 10_000, 30_000)))
    def pass_time(self, duration_ms: int) -> None:
        self.stage.pass_time(duration_ms)
        self._receive()

    @precondition(lambda self: self.stage.log)
    @rule()
    def restart(self) -> None:
        before = self.group
        self.stage.restart()
        self.generation = 0 if self.group is None else self.group.generation
        for client in self.clients.values():
            client.token = None
        if before is not None and before.state is State.STABLE:
            assert self.group is not None
            assert self.group.stored() == before.stored()
            assert self.group.state is State.STABLE

    @rule(name=name_of)
    def sync_while_the_log_fails(self, name: str) -> None:
        self.stage.log_works = False
        self.sync(name)
        self.stage.log_works = True

    @rule(duration_ms=st.sampled_from((1000, 30_000)))
    def pass_time_while_the_log_fails(self, duration_ms: int) -> None:
        self.stage.log_works = False
        self.pass_time(duration_ms)
        self.stage.log_works = True

    @rule(names=st.sets(name_of, min_size=1))
    def converge(self, names: set[str]) -> None:
        """Some members behave as clients should, the others are silent: the group becomes stable with the former."""
        clients = [self.clients[name] for name in sorted(names)]
        for _ in range(ROUNDS_MAX):
            for client in clients:
                self._behave(client)
            if self._is_stable(clients):
                return
            self.pass_time(1000)
        raise AssertionError(f"not stable: {self.group}")

    def _behave(self, client: Client) -> None:
        if client.token is not None:
            return
        if client.generation < 0:
            self.join(client.name, changed=False, needs_id=True)
        elif client.assignment is None:
            self.sync(client.name)
        else:
            self.beat(client.name)

    def _is_stable(self, clients: list[Client]) -> bool:
        group = self.group
        if group is None or group.state is not State.STABLE:
            return False
        shares = {client.assignment for client in clients}
        return len(shares - {None, b""}) == len(clients) and all(
            client.member_id in group.members for client in clients
        )

    @invariant()
    def generations_increase(self) -> None:
        if self.group is not None:
            assert self.group.generation >= self.generation
            self.generation = self.group.generation

    @invariant()
    def the_leader_is_a_member(self) -> None:
        group = self.group
        if group is None:
            return
        assert (group.leader_id is None) == (not group.members)
        assert group.leader_id is None or group.leader_id in group.members
        assert (group.state is State.EMPTY) <= (not group.members)
        assert set(group.instances.values()) <= group.members.keys()
        assert not group.pending_joins.keys() & group.members.keys()

    @invariant()
    def a_stable_group_has_its_leaders_assignment(self) -> None:
        group = self.group
        if group is None or group.state is not State.STABLE:
            return
        work = self.assigned.get(group.generation)
        assert work is not None
        for member in group.members.values():
            # A static member that has rejoined has another id than the one that the leader knew.
            if member.instance_id is None:
                assert member.assignment == work.get(member.member_id, b"")
            else:
                assert member.assignment in (*work.values(), b"")

    @invariant()
    def a_rebalance_waits_for_a_member(self) -> None:
        """A rebalance never waits for members that have all joined."""
        group = self.group
        if group is not None and group.state is State.PREPARING_REBALANCE:
            is_first = group.previous_state is State.EMPTY
            assert is_first or not group.have_all_joined or not group.members

    def _request(self, client: Client, decide: Any) -> Any:
        token = self.stage.new_token()
        result = self.stage.run(lambda shard, now_ms: decide(shard, token, now_ms), token)
        if result is PARKED:
            client.token = token
        else:
            self._handle_result(client, result)
        self._receive()
        return result

    def _receive(self) -> None:
        responses = self.stage.take_responses()
        tokens = [token for token, _ in responses]
        assert len(set(tokens)) == len(tokens)
        for token, result in responses:
            for client in self.clients.values():
                if client.token == token:
                    client.token = None
                    self._handle_result(client, result)

    def _handle_result(self, client: Client, result: Any) -> None:
        code = result if isinstance(result, ErrorCode) else result.error_code
        if isinstance(result, JoinResult) and code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            client.rejoin(member_id=result.member_id)
            client.generation = result.generation
            is_leader = result.leader == result.member_id and not result.skip_assignment
            client.leads = tuple(member.member_id for member in result.members) if is_leader else ()
            assert (result.generation < 0) or (result.leader != "")
        elif isinstance(result, SyncResult) and code is ErrorCode.NONE:
            client.assignment = result.assignment
        else:
            self._handle_code(client, code)

    def _handle_code(self, client: Client, code: ErrorCode) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.rejoin(member_id="")
        elif code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            client.rejoin(member_id=client.member_id)

    def _replace(self, client: Client) -> Client:
        fresh = Client(client.name)
        fresh.metadata = client.metadata
        return fresh


TestClassicGroup = ClassicGroupModel.TestCase
TestClassicGroup.settings = hypothesis_settings(max_examples=150, stateful_step_count=40, deadline=None)
