"""The settings of one log: the effective topic configuration, parsed once, so that the hot path reads attributes."""

from typing import NamedTuple

from rookery.base.values import value_class

UNLIMITED = -1
FOREVER_MS = 2**63 - 1


class SchemaRules(NamedTuple):
    """The parts of a record that must carry a registered schema id: a subject strategy each, None if not checked."""

    key: str | None
    value: str | None


@value_class(kw_only=True)
class LogConfig:
    """Field names are Kafka's topic configs with underscores; the defaults are Kafka's."""

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_type: str = "producer"
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = FOREVER_MS
    flush_ms: int = FOREVER_MS
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = FOREVER_MS
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = FOREVER_MS
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    retention_bytes: int = UNLIMITED
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    # Combined from several topic configs that Kafka does not have; None if no schema id is checked.
    schema_rules: SchemaRules | None = None

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """The age at which a segment is sealed.

        Compaction skips the active segment: without this limit, records could wait there longer than
        `max.compaction.lag.ms`.
        """
        if self.compacts and self.max_compaction_lag_ms > 0:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms
