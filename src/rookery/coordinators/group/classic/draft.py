"""A classic group while a request or timer is decided: a copy of the group, and the parts of the decision's result."""

from dataclasses import replace
from typing import Any

from rookery.base.errors import ErrorCode
from rookery.base.types import TimestampMs
from rookery.coordinators.group.classic.group import ClassicGroup, Member
from rookery.coordinators.group.classic.results import JoinResult, SyncResult
from rookery.coordinators.group.records import GroupMetadataKey, GroupRecord
from rookery.coordinators.group.settings import GroupSettings
from rookery.coordinators.group.timers import SessionTimer
from rookery.coordinators.result import Completion, CoordinatorResult, Parked, Timer, TimerKey


class ClassicDraft:
    """`group` is a copy that may be changed until `result` is called."""

    def __init__(self, group: ClassicGroup, settings: GroupSettings, now_ms: TimestampMs) -> None:
        self.group = group.copy()
        self.settings = settings
        self.now_ms = now_ms
        self._records: list[GroupRecord] = []
        self._completions: list[Completion] = []
        self._timers: dict[TimerKey, Timer] = {}

    def result(self, response: Any | Parked) -> CoordinatorResult[Any]:
        return CoordinatorResult(
            response=response,
            records=self._records,
            completions=self._completions,
            timers=tuple(self._timers.values()),
            volatile_changes=(self.group,),
        )

    def store(self) -> None:
        """Add the record of the group as it is now, which must be stable or empty (see `from_stored`)."""
        self._records.append(GroupRecord(GroupMetadataKey(self.group.group_id), self.group.stored()))

    def set_timer(self, key: TimerKey, delay_ms: int | None) -> None:
        self._timers[key] = Timer(key, delay_ms)

    def restart_session(self, member: Member) -> None:
        self.set_timer(SessionTimer(self.group.group_id, member.member_id), member.session_timeout_ms)

    def respond_to_join(self, member: Member, result: JoinResult) -> Member:
        """Complete the JoinGroup for which a member waits, if any. Return the member, which then no longer waits."""
        if member.join_token is None:
            return member
        self._completions.append(Completion(member.join_token, result))
        responded = replace(member, join_token=None)
        self.group.update(responded)
        return responded

    def respond_to_sync(self, member: Member, result: SyncResult) -> Member:
        if member.sync_token is None:
            return member
        self._completions.append(Completion(member.sync_token, result))
        responded = replace(member, sync_token=None)
        self.group.update(responded)
        return responded

    def remove_member(self, member: Member) -> None:
        """Remove a member; its waiting requests fail with UNKNOWN_MEMBER_ID, upon which a live client joins again."""
        member = self.respond_to_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, ""))
        self.respond_to_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self.group.remove(member.member_id)
        self.set_timer(SessionTimer(self.group.group_id, member.member_id), None)
