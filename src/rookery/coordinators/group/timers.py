"""The names of a group shard's timers. They are classes of their own, so that equal fields do not make equal timers."""

from rookery.base.values import value_class


@value_class
class SessionTimer:
    """A member of a classic group, or one that was given its id, has not been heard of for its session's time-out."""

    group_id: str
    member_id: str


@value_class
class JoinTimer:
    """A classic group has waited long enough for its members to join."""

    group_id: str


@value_class
class SyncTimer:
    """A classic group has waited long enough for its members to fetch their assignments."""

    group_id: str


@value_class
class ExpiryTimer:
    """It is time to look for expired offsets."""
