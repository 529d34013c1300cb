"""The keys of a group shard's timers. They are separate classes, so that keys with equal fields differ."""

from rookery.base.values import value_class


@value_class
class SessionTimer:
    """A member of a classic group, or a pending member id, sent nothing for the session's time-out."""

    group_id: str
    member_id: str


@value_class
class JoinTimer:
    """A classic group's time for its members to join has expired."""

    group_id: str


@value_class
class SyncTimer:
    """A classic group's time for its members to send SyncGroup has expired."""

    group_id: str


@value_class
class ExpiryTimer:
    """Expired offsets are due to be removed."""
