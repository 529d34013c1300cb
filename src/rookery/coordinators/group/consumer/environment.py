"""What decisions about consumer groups depend on besides the group: the cluster's topics, the settings, the time."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from rookery.base.errors import ErrorCode
from rookery.base.types import TimestampMs, TopicName
from rookery.coordinators.decision import Timer
from rookery.metadata.image import TopicImage


class MigrationPolicy(Enum):
    """Whether a group may become one of the other kind while it has members."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def may_upgrade(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def may_downgrade(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    heartbeat_interval_ms: int = 5000
    session_timeout_ms: int = 45_000
    size_max: int = 2**31 - 1
    # The most members that a group may have when it goes back to the classic protocol.
    classic_size_max: int = 2**31 - 1
    # By name; the first is the default.
    assignors: tuple[str, ...] = ("uniform", "range")
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL


class Environment(NamedTuple):
    topics: Mapping[TopicName, TopicImage]
    settings: ConsumerSettings
    now_ms: TimestampMs


class Refusal(NamedTuple):
    """A request that is answered with an error, and why in words."""

    code: ErrorCode
    message: str


class TimerKind(Enum):
    # No heartbeat for the session's time.
    SESSION = "session"
    # Partitions were not given up in time.
    REVOCATION = "revocation"
    # A classic member did not rejoin in time, or not fetch its assignment.
    REJOIN = "rejoin"
    SYNC = "sync"


class MemberTimer(NamedTuple):
    kind: TimerKind
    group_id: str
    member_id: str


def all_timers_off(group_id: str, member_id: str) -> list[Timer]:
    return [Timer(MemberTimer(kind, group_id, member_id), None) for kind in TimerKind]
