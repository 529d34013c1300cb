"""A classic group and its members: the data, and the queries that need nothing else.

A decision works on a copy of the group (`copy`), which replaces the original only after its records are written. A
`Member` is therefore never modified but replaced, so that the original group stays as it was if the write fails. The
transitions of groups are in `join`, `rebalance`, `sync` and `membership`.

Invariants: the leader is a member; every instance id belongs to a member that has it; a member waits for at most one
JoinGroup or SyncGroup; all members have the group's protocol type and have a protocol in common.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from rookery.base.errors import ErrorCode
from rookery.base.types import TimestampMs, TopicName
from rookery.base.values import value_class
from rookery.coordinators.group.classic.states import State, can_move
from rookery.coordinators.group.records import GroupMetadataValue, StoredMember
from rookery.coordinators.result import Token
from rookery.protocol.consumer_protocol import read_topics

CONSUMER_PROTOCOL_TYPE = "consumer"

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]


@value_class(kw_only=True)
class Member:
    """`is_new` until its first generation begins: until then it may wait longer than its session's time-out."""

    member_id: str
    instance_id: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    join_token: Token | None = None
    sync_token: Token | None = None

    @property
    def is_waiting(self) -> bool:
        return self.join_token is not None or self.sync_token is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        return dict(self.protocols).get(protocol_name or "", b"")


@dataclass(slots=True, kw_only=True)
class ClassicGroup:
    group_id: str
    state: State = State.EMPTY
    previous_state: State = State.DEAD
    state_timestamp_ms: TimestampMs = -1
    # None: a simple group, which has offsets but never had members.
    protocol_type: str | None = None
    protocol_name: str | None = None
    generation: int = 0
    leader_id: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    # The member id of each instance id.
    instances: dict[str, str] = field(default_factory=dict)
    # Member ids that were assigned with MEMBER_ID_REQUIRED and have not joined with them yet (KIP-394).
    pending_joins: dict[str, None] = field(default_factory=dict)
    # Members of the present generation that have not sent SyncGroup yet.
    pending_syncs: dict[str, None] = field(default_factory=dict)
    # The group's first rebalance is extended by `initial_delay_ms` while new members join (`has_new_member`), until
    # `initial_remaining_ms` is used up.
    initial_delay_ms: int = 0
    initial_remaining_ms: int = 0
    has_new_member: bool = False

    def copy(self) -> "ClassicGroup":
        return replace(
            self,
            members=dict(self.members),
            instances=dict(self.instances),
            pending_joins=dict(self.pending_joins),
            pending_syncs=dict(self.pending_syncs),
        )

    def move_to(self, state: State, now_ms: TimestampMs) -> None:
        assert can_move(self.state, state), f"{self.group_id}: {self.state.value} -> {state.value}"
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now_ms

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def have_all_joined(self) -> bool:
        return not self.pending_joins and all(member.join_token is not None for member in self.members.values())

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        assert protocol_type == self.protocol_type
        self.members[member.member_id] = member
        self.pending_joins.pop(member.member_id, None)
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def update(self, member: Member) -> None:
        assert member.member_id in self.members
        self.members[member.member_id] = member

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self.pending_syncs.pop(member_id, None)
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def rename(self, member: Member, member_id: str) -> Member:
        """Give a static member's position, and its leadership, to its successor `member_id`."""
        assert member.instance_id is not None
        renamed = replace(member, member_id=member_id, join_token=None, sync_token=None)
        self.members = {
            (member_id if key == member.member_id else key): (renamed if key == member.member_id else value)
            for key, value in self.members.items()
        }
        self.instances[member.instance_id] = member_id
        self.pending_syncs.pop(member.member_id, None)
        if self.leader_id == member.member_id:
            self.leader_id = member_id
        return renamed

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined, otherwise elect a member that has. Return False if no member has joined.

        A leader that has not joined would never send the assignments, and the whole generation would wait for its
        SyncGroup until the sync timer fires.
        """
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.join_token is not None:
            return True
        joined = next((member for member in self.members.values() if member.join_token is not None), None)
        if joined is not None:
            self.leader_id = joined.member_id
        return joined is not None

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return an error unless the request comes from a present member."""
        if instance_id is not None:
            known = self.instances.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                # A newer process has joined with the same instance id. If the older one were still accepted, both
                # would read the same partitions and overwrite each other's offsets.
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols can be in the group."""
        if not self.members:
            return bool(protocol_type and protocols)
        shared = self._shared_protocols()
        return protocol_type == self.protocol_type and any(name in shared for name, _ in protocols)

    def select_protocol(self) -> str:
        """Return the protocol with the most votes: each member votes for its first one that all members support."""
        shared = self._shared_protocols()
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if name in shared)] += 1
        return votes.most_common(1)[0][0]

    def _shared_protocols(self) -> set[str]:
        counts = Counter(name for member in self.members.values() for name in {name for name, _ in member.protocols})
        return {name for name, count in counts.items() if count == len(self.members)}

    def subscribed_topics(self) -> frozenset[TopicName] | None:
        """The topics to which the members of the present generation subscribe; None if they are unknown."""
        if self.is_empty:
            return frozenset()
        if not self.uses_consumer_protocol or self.protocol_name is None:
            return None
        topics: set[TopicName] = set()
        for member in self.members.values():
            subscribed = read_topics(member.metadata(self.protocol_name))
            if subscribed is None:
                # Unreadable metadata may name any topic. Counting it as none would let the offsets of a topic that the
                # member reads expire or be deleted.
                return None
            topics |= subscribed
        return frozenset(topics)

    def stored(self) -> GroupMetadataValue:
        """Return the group's record for the log."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader_id,
            state_timestamp_ms=self.state_timestamp_ms,
            members=tuple(self._stored_members()),
        )

    def _stored_members(self) -> Iterable[StoredMember]:
        for member in self.members.values():
            yield StoredMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                subscription=member.metadata(self.protocol_name),
                assignment=member.assignment,
            )


def from_stored(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Return the group as of its newest record, which is written only when the group is stable or empty.

    A rebalance that was under way is lost; the members that took part in it join again. Only the chosen one of a
    member's protocols is stored.
    """
    members = {member.member_id: _member_from(member, value.protocol or "") for member in value.members}
    return ClassicGroup(
        group_id=group_id,
        state=State.STABLE if members else State.EMPTY,
        previous_state=State.COMPLETING_REBALANCE if members else State.PREPARING_REBALANCE,
        state_timestamp_ms=value.state_timestamp_ms,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol,
        generation=value.generation,
        leader_id=value.leader,
        members=members,
        instances=_instances(members),
    )


def _instances(members: Mapping[str, Member]) -> dict[str, str]:
    return {member.instance_id: member.member_id for member in members.values() if member.instance_id is not None}


def _member_from(stored: StoredMember, protocol: str) -> Member:
    rebalance_timeout_ms = stored.rebalance_timeout_ms
    return Member(
        member_id=stored.member_id,
        instance_id=stored.instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=stored.session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
        session_timeout_ms=stored.session_timeout_ms,
        protocols=((protocol, stored.subscription),),
        assignment=stored.assignment,
    )
