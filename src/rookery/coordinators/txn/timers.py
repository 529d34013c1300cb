"""The names of a transaction shard's timers."""

from rookery.base.types import ProducerEpoch, ProducerId
from rookery.base.values import value_class


@value_class
class AbortTimer:
    """It is time to look for transactions whose time is over."""


@value_class
class TimeoutTimer:
    """This transaction's time is over. Each is aborted by a decision of its own, so that none waits for another."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


@value_class
class ExpiryTimer:
    """It is time to look for transactional ids that nobody uses any more."""
