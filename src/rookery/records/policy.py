"""The requirements of a topic's configuration for produced batches."""

from typing import Protocol

from rookery.base.values import value_class
from rookery.records.batch import Codec
from rookery.records.compression import DECOMPRESSED_SIZE_MAX

FOREVER_MS = 2**63 - 1
_CODECS = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class TopicSettings(Protocol):
    """The topic configs from which a `ProducePolicy` is made; a log's configuration has them."""

    @property
    def compacts(self) -> bool: ...
    @property
    def max_message_bytes(self) -> int: ...
    @property
    def message_timestamp_type(self) -> str: ...
    @property
    def message_timestamp_before_max_ms(self) -> int: ...
    @property
    def message_timestamp_after_max_ms(self) -> int: ...
    @property
    def compression_type(self) -> str: ...
    @property
    def compression_gzip_level(self) -> int: ...
    @property
    def compression_lz4_level(self) -> int: ...
    @property
    def compression_zstd_level(self) -> int: ...


@value_class(kw_only=True)
class ProducePolicy:
    """The requirements of a topic's configuration for produced batches; made once per configuration, not per batch."""

    batch_size_max: int = 1_048_588
    compacted: bool = False
    # Whether the records must also pass a check outside of the policy: that of schema ids.
    has_record_check: bool = False
    log_append_time: bool = False
    timestamp_before_max_ms: int = FOREVER_MS
    timestamp_after_max_ms: int = 3_600_000
    # None keeps the producer's codec.
    codec: Codec | None = None
    level: int | None = None
    decompressed_size_max: int = DECOMPRESSED_SIZE_MAX

    @classmethod
    def of(cls, settings: TopicSettings, *, has_record_check: bool = False) -> "ProducePolicy":
        codec = _CODECS[settings.compression_type]
        levels = {
            Codec.GZIP: settings.compression_gzip_level,
            Codec.LZ4: settings.compression_lz4_level,
            Codec.ZSTD: settings.compression_zstd_level,
        }
        return cls(
            batch_size_max=settings.max_message_bytes,
            compacted=settings.compacts,
            has_record_check=has_record_check,
            log_append_time=settings.message_timestamp_type == "LogAppendTime",
            timestamp_before_max_ms=settings.message_timestamp_before_max_ms,
            timestamp_after_max_ms=settings.message_timestamp_after_max_ms,
            codec=codec,
            level=None if codec is None else levels.get(codec),
        )
