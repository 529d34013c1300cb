"""Idempotence: a producer's identity and a partition's sequence numbers (KIP-98, KIP-360).

Theory of operation. The leader of a partition accepts a batch of an idempotent producer only if its first sequence
number follows the last one that it wrote, and it recognizes the last five batches when they are repeated. So a batch
keeps its numbers in all attempts, and a batch gets numbers only if it is at most four batches after the lowest
unsettled one: otherwise the leader might not recognize a repetition of that one, and write it twice.

When a number will never be written (its batch was rejected or dropped), the leader would reject all later numbers: a
gap. The partition then restarts: its epoch increases by one, its numbers begin at zero, and the unsent batches get new
numbers. Leaders store epochs by partition, so the other partitions are not affected. When the epoch cannot increase any
more, the producer obtains a new identity. The epoch of a transactional producer belongs to its coordinator: there, a
gap fails the transaction instead.

Pure. `accumulator` owns one `PartitionSequence` for each partition.
"""

from typing import NamedTuple

from rookery.base.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId

SEQUENCE_MASK = 0x7FFFFFFF
# The number of a producer's last batches that a leader remembers, and recognizes when they are repeated.
NUMBERED_BATCHES_MAX = 5
_EPOCH_MAX = 0x7FFF


class ProducerIdentity(NamedTuple):
    """The producer id and epoch that InitProducerId returned."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch

    @property
    def is_known(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    def bumped(self) -> "ProducerIdentity":
        """Return the identity with the next epoch, or NO_IDENTITY if the epochs are used up."""
        if self.producer_epoch >= _EPOCH_MAX - 1:
            return NO_IDENTITY
        return ProducerIdentity(self.producer_id, self.producer_epoch + 1)


NO_IDENTITY = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def sequence_after(sequence: int, record_count: int) -> int:
    """Return the number `record_count` after `sequence`. Sequence numbers wrap from 2**31 - 1 to 0."""
    return (sequence + record_count) & SEQUENCE_MASK


class PartitionSequence:
    """The identity and the next number of one partition."""

    __slots__ = ("identity", "next_sequence")

    def __init__(self) -> None:
        self.identity = NO_IDENTITY
        self.next_sequence = 0

    def take(self, record_count: int) -> int:
        """Take the numbers for a batch of `record_count` records, and return the first of them."""
        sequence = self.next_sequence
        self.next_sequence = sequence_after(sequence, record_count)
        return sequence

    def restart(self, identity: ProducerIdentity) -> None:
        self.identity = identity
        self.next_sequence = 0
