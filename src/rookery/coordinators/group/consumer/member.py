"""A member of a consumer group, as the log knows it.

A member's epoch says which target assignment it has been moved to. It joins with epoch 0, leaves with -1, and a static
member that will be back leaves with -2. What it owns moves towards its target through three states (see
`reconciliation`).
"""

from dataclasses import field, replace
from enum import IntEnum

from rookery.base.types import TopicName
from rookery.base.values import value_class
from rookery.coordinators.group.consumer.assignment import NO_PARTITIONS, Assignment

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


class MemberState(IntEnum):
    """How far a member is on its way to its target; the numbers are those of Kafka's records."""

    # It owns its target.
    STABLE = 0
    # It was told to give partitions up and has not said yet that it did.
    UNREVOKED_PARTITIONS = 1
    # It waits for partitions that others still own.
    UNRELEASED_PARTITIONS = 2


@value_class
class ClassicProtocol:
    """One of the protocols that a classic member offered, with its subscription as the client wrote it."""

    name: str
    metadata: bytes


@value_class
class ClassicMembership:
    """What is known of a member that uses the classic protocol inside a consumer group."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]

    @property
    def protocol_name(self) -> str:
        """The member's first choice: with the server assigning, members need not agree on one."""
        return self.protocols[0].name


@value_class(kw_only=True)
class Member:
    member_id: str
    member_epoch: int = JOIN_EPOCH
    # The response that told the present epoch may have been lost; a member may then come with this one.
    previous_member_epoch: int = -1
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[TopicName] = frozenset()
    topic_regex: str = ""
    server_assignor: str | None = None
    classic: ClassicMembership | None = None
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=lambda: NO_PARTITIONS)
    pending_revocation: Assignment = field(default_factory=lambda: NO_PARTITIONS)

    @property
    def has_left_for_now(self) -> bool:
        """A static member that said it would be back: its partitions are kept for it until its session ends."""
        return self.member_epoch == STATIC_LEAVE_EPOCH

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def moved(self, *, epoch: int, state: MemberState, assigned: Assignment, pending: Assignment) -> "Member":
        return replace(
            self,
            previous_member_epoch=self.member_epoch,
            member_epoch=epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending,
        )
