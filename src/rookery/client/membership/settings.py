"""The settings of a group membership, taken from a consumer's."""

from rookery.base.values import value_class
from rookery.client.settings.consumer import ConsumerSettings


@value_class(kw_only=True)
class GroupSettings:
    """Settings with Kafka's names and defaults. `strategies` are the names of assignors, the preferred one first."""

    group_id: str
    group_instance_id: str | None = None
    group_remote_assignor: str | None = None
    client_id: str = "rookery"
    client_rack: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    strategies: tuple[str, ...] = ("range", "cooperative-sticky")

    @property
    def api_timeout_s(self) -> float:
        return self.default_api_timeout_ms / 1000


def group_settings(settings: ConsumerSettings) -> GroupSettings:
    """Return the group settings of a consumer, which must have a group.id."""
    assert settings.group_id is not None, "without group.id there is no group"
    common = settings.common
    return GroupSettings(
        group_id=settings.group_id,
        group_instance_id=settings.group_instance_id,
        group_remote_assignor=settings.group_remote_assignor,
        client_id=common.client_id,
        client_rack=common.client_rack or None,
        session_timeout_ms=settings.session_timeout_ms,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        max_poll_interval_ms=settings.max_poll_interval_ms,
        enable_auto_commit=settings.enable_auto_commit,
        auto_commit_interval_ms=settings.auto_commit_interval_ms,
        request_timeout_ms=common.request_timeout_ms,
        default_api_timeout_ms=common.default_api_timeout_ms,
        strategies=settings.partition_assignment_strategy,
    )
