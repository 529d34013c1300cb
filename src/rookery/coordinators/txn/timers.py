"""The keys of a transaction shard's timers."""

from rookery.base.types import ProducerEpoch, ProducerId
from rookery.base.values import value_class


@value_class
class AbortTimer:
    """Timed-out transactions are due to be found."""


@value_class
class TimeoutTimer:
    """One transaction has timed out. Each is aborted by a separate decision, so that none waits for another."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


@value_class
class ExpiryTimer:
    """Expired transactional ids are due to be removed."""
