"""The settings of group coordinators, read once at the start: Kafka cannot change them at run time either."""

from rookery.base.config import BrokerLayers
from rookery.base.values import value_class

_MS_PER_MINUTE = 60_000


@value_class(kw_only=True)
class GroupSettings:
    session_timeout_min_ms: int = 6000
    session_timeout_max_ms: int = 1_800_000
    size_max: int = 2**31 - 1
    initial_rebalance_delay_ms: int = 0
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 10_080 * _MS_PER_MINUTE
    offsets_check_interval_ms: int = 600_000

    def allows_session(self, timeout_ms: int) -> bool:
        return self.session_timeout_min_ms <= timeout_ms <= self.session_timeout_max_ms

    @staticmethod
    def of(config: BrokerLayers) -> "GroupSettings":
        return GroupSettings(
            session_timeout_min_ms=config.integer("group.min.session.timeout.ms"),
            session_timeout_max_ms=config.integer("group.max.session.timeout.ms"),
            size_max=config.integer("group.max.size"),
            initial_rebalance_delay_ms=config.integer("group.initial.rebalance.delay.ms"),
            offset_metadata_max_bytes=config.integer("offset.metadata.max.bytes"),
            offsets_retention_ms=config.integer("offsets.retention.minutes") * _MS_PER_MINUTE,
            offsets_check_interval_ms=config.integer("offsets.retention.check.interval.ms"),
        )
