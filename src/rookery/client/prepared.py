"""A transaction that its producer leaves open for another process to end: two-phase commit (the name is KIP-939's).

`Producer.prepare_transaction` returns one, and `Admin.end_transaction` ends it, from any process, with nothing but
these values. The broker still aborts it after its producer's `transaction.timeout.ms`.
"""

from enum import Enum

from rookery.base.types import ProducerEpoch, ProducerId
from rookery.base.values import value_class


@value_class
class PreparedTransaction:
    """The identity of an open transaction.

    `is_v2` is the version of the protocol by which it began (KIP-890). Every request to end it must use the same one,
    because the broker's response to a repeated request depends on it.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    is_v2: bool = True


class EndOutcome(Enum):
    """The outcome of a request to end a prepared transaction."""

    # By this request or an earlier one.
    DONE = "ended as requested"
    # A commit was requested for an aborted transaction, or an abort for a committed one. A time-out is an abort.
    ENDED_OTHERWISE = "ended the other way before"
    # A time-out or a newer producer of the id raised the epoch. Both abort the open transaction.
    FENCED = "aborted by the broker: timed out, or fenced by a newer producer"
    # Brokers forget ids after transactional.id.expiration.ms (7 days) without a transaction.
    UNKNOWN = "not known to the broker, or forgotten"
