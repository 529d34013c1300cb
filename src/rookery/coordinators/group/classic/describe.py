"""DescribeGroups of a classic group."""

from rookery.base.errors import ErrorCode
from rookery.coordinators.group.classic.group import ClassicGroup
from rookery.coordinators.group.classic.results import DescribedGroup, DescribedMember
from rookery.coordinators.group.classic.states import State


def describe(group: ClassicGroup) -> DescribedGroup:
    """Describe a group, with metadata and assignments only while it is stable: else they are about to change."""
    is_stable = group.state is State.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_name=(group.protocol_name or "") if is_stable else "",
        members=tuple(
            DescribedMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(group.protocol_name) if is_stable else b"",
                member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ),
    )


def describe_missing(group_id: str, *, is_consumer: bool) -> DescribedGroup:
    """Describe an id that names no classic group; `is_consumer` if it names a consumer group.

    This is the response since v6. Before v6 the handler reports such a group as Dead, without the error.
    """
    reason = "is not a classic group" if is_consumer else "not found"
    return DescribedGroup(
        group_id,
        ErrorCode.GROUP_ID_NOT_FOUND,
        message=f"Group {group_id} {reason}.",
        state=State.DEAD.value,
    )
