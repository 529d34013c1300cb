"""A member of a consumer group, as stored in the log.

A member's epoch is that of the target assignment to which it has been moved. It joins with epoch 0 and leaves with -1;
a static member that will return leaves with -2. Its partitions move towards its target through three states (see
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
    """A member's progress towards its target; the numbers are those of Kafka's records."""

    # It owns all partitions of its target.
    STABLE = 0
    # It must revoke partitions and has not acknowledged that yet.
    UNREVOKED_PARTITIONS = 1
    # It waits for partitions that other members still own.
    UNRELEASED_PARTITIONS = 2


@value_class
class ClassicProtocol:
    """One of the protocols that a classic member offered, with its subscription as encoded by the client."""

    name: str
    metadata: bytes


@value_class
class ClassicMembership:
    """The additional state of a member that uses the classic protocol in a consumer group."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]

    @property
    def protocol_name(self) -> str:
        """The member's first choice: since the server assigns, members need not agree on one."""
        return self.protocols[0].name


@value_class(kw_only=True)
class Member:
    member_id: str
    member_epoch: int = JOIN_EPOCH
    # If the response with the present epoch was lost, the member's next request has this one.
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
        """Whether this static member left temporarily: its partitions are kept until its session ends."""
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
