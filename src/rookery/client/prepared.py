"""A transaction that its producer left open for somebody else to end: two-phase commits (KIP-939's name).

`Producer.prepare_transaction` gives one, `Admin.end_transaction` ends it, from any process. Nothing but these values is
needed for that. The broker still aborts it after its producer's `transaction.timeout.ms`.
"""

from enum import Enum

from rookery.base.types import ProducerEpoch, ProducerId
from rookery.base.values import value_class


@value_class
class PreparedTransaction:
    """`is_v2`: by which protocol it began (KIP-890). It must be ended by the same one, however often that is asked:
    what a broker answers to a repetition depends on it."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    is_v2: bool = True


class EndOutcome(Enum):
    """What has become of a prepared transaction. The first is what was asked for, now or by an earlier request."""

    DONE = "ended as asked"
    # It was committed and an abort was asked for, or the other way round. A time-out is an abort.
    ENDED_OTHERWISE = "ended the other way before"
    # Its producer's epoch is over, by a time-out or a newer producer of the id. Both abort what is open.
    FENCED = "given up by the broker: timed out, or fenced by a newer producer"
    # Brokers forget ids after transactional.id.expiration.ms (7 days) without a transaction.
    UNKNOWN = "not known to the broker, or not any more"
