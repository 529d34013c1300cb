"""The settings of transaction coordinators, read once at the start: Kafka cannot change them at run time either."""

from rookery.base.config import BrokerLayers
from rookery.base.values import value_class


@value_class(kw_only=True)
class TransactionSettings:
    timeout_max_ms: int = 900_000
    timeout_check_interval_ms: int = 10_000
    expiration_ms: int = 604_800_000
    expiration_check_interval_ms: int = 3_600_000

    def allows_timeout(self, timeout_ms: int) -> bool:
        return 0 < timeout_ms <= self.timeout_max_ms

    @staticmethod
    def of(config: BrokerLayers) -> "TransactionSettings":
        return TransactionSettings(
            timeout_max_ms=config.integer("transaction.max.timeout.ms"),
            timeout_check_interval_ms=config.integer("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expiration_ms=config.integer("transactional.id.expiration.ms"),
            expiration_check_interval_ms=config.integer("transaction.remove.expired.transaction.cleanup.interval.ms"),
        )
