"""The numbers that make retries harmless: a producer's identity and a partition's sequence numbers (KIP-98, KIP-360).

Theory of operation. The leader of a partition accepts a batch of an idempotent producer only if its first sequence
number follows the last one that it wrote, and knows the last five batches again if they are repeated. So a batch keeps
its numbers over all its attempts, and no batch is numbered more than four behind one that is not settled yet: else
its repetition might not be recognized.

When a number will never be written (its batch was refused or given up), everything behind it would be refused for
ever: a gap. The partition then restarts: its epoch goes up by one, its numbers begin again at zero, and what is still
to be sent is numbered anew. Leaders keep epochs by partition, so that the other partitions need not know. When the
epoch can go no higher, the producer takes a new identity. A transactional producer's epoch belongs to its
coordinator: there a gap ends the transaction instead.

Pure. `accumulator` owns one `PartitionSequence` for each partition.
"""

from typing import NamedTuple

from rookery.base.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId

SEQUENCE_MASK = 0x7FFFFFFF
# How many of a producer's last batches a leader remembers, and so recognizes when they are repeated.
NUMBERED_BATCHES_MAX = 5
_EPOCH_MAX = 0x7FFF


class ProducerIdentity(NamedTuple):
    """What InitProducerId gave us."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch

    @property
    def is_known(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    def bumped(self) -> "ProducerIdentity":
        """The next epoch, or no identity where there is none."""
        if self.producer_epoch >= _EPOCH_MAX - 1:
            return NO_IDENTITY
        return ProducerIdentity(self.producer_id, self.producer_epoch + 1)


NO_IDENTITY = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def sequence_after(sequence: int, record_count: int) -> int:
    """Sequence numbers wrap from 2**31 - 1 to 0."""
    return (sequence + record_count) & SEQUENCE_MASK


class PartitionSequence:
    """The identity and the next number of one partition."""

    __slots__ = ("identity", "next_sequence")

    def __init__(self) -> None:
        self.identity = NO_IDENTITY
        self.next_sequence = 0

    def take(self, record_count: int) -> int:
        """Numbers for a batch of that many records; the first of them."""
        sequence = self.next_sequence
        self.next_sequence = sequence_after(sequence, record_count)
        return sequence

    def restart(self, identity: ProducerIdentity) -> None:
        self.identity = identity
        self.next_sequence = 0
