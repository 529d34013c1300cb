"""The inputs of decisions about consumer groups, in addition to the group: the cluster's topics, settings and time."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias

from rookery.base.config import BrokerLayers
from rookery.base.errors import ConfigError, ErrorCode
from rookery.base.types import TimestampMs, TopicName
from rookery.base.values import value_class
from rookery.coordinators import regex
from rookery.coordinators.group.consumer.assignors import ASSIGNORS
from rookery.coordinators.group.settings import GroupSettings
from rookery.coordinators.result import Timer
from rookery.metadata.image import TopicImage


class MigrationPolicy(Enum):
    """Whether a group that has members may be converted to the other kind."""

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


@value_class(kw_only=True)
class ConsumerSettings:
    heartbeat_interval_ms: int = 5000
    session_timeout_ms: int = 45_000
    size_max: int = 2**31 - 1
    # Names; the first one is the default.
    assignors: tuple[str, ...] = ("uniform", "range")
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL

    @staticmethod
    def of(config: BrokerLayers) -> "ConsumerSettings":
        settings = ConsumerSettings(
            heartbeat_interval_ms=_within_limits(config, "heartbeat.interval.ms"),
            session_timeout_ms=_within_limits(config, "session.timeout.ms"),
            size_max=config.integer("group.consumer.max.size"),
            assignors=_assignors(config.items("group.consumer.assignors") or ()),
            migration_policy=MigrationPolicy((config.text("group.consumer.migration.policy") or "").lower()),
        )
        if settings.session_timeout_ms <= settings.heartbeat_interval_ms:
            raise ConfigError(
                "group.consumer.session.timeout.ms must be greater than group.consumer.heartbeat.interval.ms"
            )
        return settings


def _within_limits(config: BrokerLayers, name: str) -> int:
    """Return a setting, which must lie between two others."""
    value = config.integer(f"group.consumer.{name}")
    least, most = config.integer(f"group.consumer.min.{name}"), config.integer(f"group.consumer.max.{name}")
    if not least <= value <= most:
        raise ConfigError(
            f"group.consumer.{name} is {value}, but must be between group.consumer.min.{name} ({least}) and "
            f"group.consumer.max.{name} ({most})"
        )
    return value


def _assignors(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the assignors' names. As in Kafka, a class name such as org.apache.kafka...UniformAssignor is accepted."""
    names = tuple(text.rpartition(".")[2].removesuffix("Assignor").lower() for text in texts)
    unknown = [text for text, name in zip(texts, names, strict=True) if name not in ASSIGNORS]
    if unknown or not names:
        raise ConfigError(f"group.consumer.assignors must be one or more of {', '.join(ASSIGNORS)}, not {unknown}")
    return names


class VisibleTopics(NamedTuple):
    """The topics that the client of a request may see. `version` changes when others may be visible."""

    version: int
    includes: Callable[[TopicName], bool]


Match: TypeAlias = Callable[[str, Mapping[TopicName, TopicImage]], frozenset[TopicName] | None]


class Environment(NamedTuple):
    topics: Mapping[TopicName, TopicImage]
    settings: ConsumerSettings
    # For members of the classic protocol, and for groups that are converted back to it.
    classic_settings: GroupSettings
    now_ms: TimestampMs
    # Returns the topics that match a pattern, or None while they are being matched.
    match: Match = regex.matching
    # The version of `VisibleTopics` that `match` was restricted to, None if there is no such restriction.
    visible_version: int | None = None


class ErrorResponse(NamedTuple):
    """The response to a rejected request: an error code and its explanation."""

    code: ErrorCode
    message: str


class TimerKind(Enum):
    # No heartbeat arrived within the session's time-out.
    SESSION = "session"
    # The member did not acknowledge the revocation of partitions within its rebalance time-out.
    REVOCATION = "revocation"
    # A classic member did not send JoinGroup within its rebalance time-out.
    REJOIN = "rejoin"
    # A classic member did not send SyncGroup within its rebalance time-out.
    SYNC = "sync"


class MemberTimer(NamedTuple):
    kind: TimerKind
    group_id: str
    member_id: str


def cancel_timers(group_id: str, member_id: str) -> list[Timer]:
    return [Timer(MemberTimer(kind, group_id, member_id), None) for kind in TimerKind]
