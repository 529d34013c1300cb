"""A decision about one classic group in the making: the group's copy, and what shall happen if it is written."""

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


class Turn:
    """`group` may be changed freely until `decision` is called."""

    def __init__(self, group: ClassicGroup, settings: GroupSettings, now_ms: TimestampMs) -> None:
        self.group = group.copy()
        self.settings = settings
        self.now_ms = now_ms
        self._records: list[GroupRecord] = []
        self._completions: list[Completion] = []
        self._timers: dict[TimerKey, Timer] = {}

    def decision(self, response: Any | Parked) -> CoordinatorResult[Any]:
        return CoordinatorResult(
            response=response,
            records=self._records,
            completions=self._completions,
            timers=tuple(self._timers.values()),
            drafts=(self.group,),
        )

    def store(self) -> None:
        """Write the group as it is now; once per turn, at its end."""
        self._records.append(GroupRecord(GroupMetadataKey(self.group.group_id), self.group.stored()))

    def set_timer(self, key: TimerKey, delay_ms: int | None) -> None:
        self._timers[key] = Timer(key, delay_ms)

    def restart_session(self, member: Member) -> None:
        self.set_timer(SessionTimer(self.group.group_id, member.member_id), member.session_timeout_ms)

    def answer_join(self, member: Member, result: JoinResult) -> Member:
        """Answer the JoinGroup that a member waits for, if it does; the member as it is then."""
        if member.join_token is None:
            return member
        self._completions.append(Completion(member.join_token, result))
        answered = replace(member, join_token=None)
        self.group.update(answered)
        return answered

    def answer_sync(self, member: Member, result: SyncResult) -> Member:
        if member.sync_token is None:
            return member
        self._completions.append(Completion(member.sync_token, result))
        answered = replace(member, sync_token=None)
        self.group.update(answered)
        return answered

    def remove_member(self, member: Member) -> None:
        """One that waits hears of it, and may come again."""
        member = self.answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, ""))
        self.answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self.group.remove(member.member_id)
        self.set_timer(SessionTimer(self.group.group_id, member.member_id), None)
