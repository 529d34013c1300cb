"""The coordinator's state of one transactional id: its producer and its newest transaction.

Epochs go up to 32767, which is never given to a producer, so that an instance at 32766 can still be fenced. An id whose
epochs are used up is replaced by a new producer id that begins at epoch 0. The previous id is stored, so that a retried
request of its last instance is recognized.

A Transaction is immutable: a decision returns the record of another one, which replaces it.
"""

from dataclasses import replace
from typing import Any, Final

from rookery.base.types import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from rookery.base.values import value_class
from rookery.coordinators.txn.states import PREPARED, State, can_move

EPOCH_MAX: Final[ProducerEpoch] = 2**15 - 1
# The last epoch that a producer may have.
LAST_EPOCH: Final[ProducerEpoch] = EPOCH_MAX - 1

# The protocol of an EndTxn: the older one keeps the epoch, the newer one (KIP-890) bumps it.
CLASSIC: Final = 0
EPOCH_BUMP: Final = 2


@value_class(kw_only=True)
class Transaction:
    """`last_producer_epoch` is not in the log, as in Kafka: after a reload, a retried InitProducerId is fenced."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    # The id before the present one, whose epochs were used up.
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    # While PREPARE_*: the id that replaces the present one upon completion, because it has no epoch left for a bump.
    next_producer_id: ProducerId = NO_PRODUCER_ID
    # The previous epoch of the same instance, if it has received the present one or may request it by a retry.
    last_producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    timeout_ms: int
    state: State = State.EMPTY
    # Not empty while ONGOING; those that must get markers while PREPARE_*; empty in other states.
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: TimestampMs = NO_TIMESTAMP
    update_ms: TimestampMs
    # The protocol by which it was ended; CLASSIC before that.
    client_version: int = CLASSIC

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left."""
        return self.producer_epoch >= LAST_EPOCH

    @property
    def is_prepared(self) -> bool:
        return self.state in PREPARED

    @property
    def last_producer(self) -> tuple[ProducerId, ProducerEpoch]:
        """The previous id and epoch of the same instance; none if it had no other."""
        if self.last_producer_epoch == NO_PRODUCER_EPOCH:
            return NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        is_rotated = self.last_producer_epoch > self.producer_epoch
        return self.previous_producer_id if is_rotated else self.producer_id, self.last_producer_epoch

    @property
    def next_producer(self) -> tuple[ProducerId, ProducerEpoch]:
        """The id and epoch to use after this transaction."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def moved(self, state: State, now_ms: TimestampMs, **changes: Any) -> "Transaction":
        """Return the transaction after its transition to `state` at `now_ms`."""
        assert can_move(self.state, state), f"{self.transactional_id} cannot go from {self.state.name} to {state.name}"
        return replace(self, state=state, update_ms=now_ms, **changes)
