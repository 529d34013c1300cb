"""Sequence numbers and epochs."""

from rookery.client.produce.sequences import NO_IDENTITY, PartitionSequence, ProducerIdentity


def test_sequences_count_records_and_wrap() -> None:
    sequence = PartitionSequence()
    sequence.restart(ProducerIdentity(5, 1))
    assert [sequence.take(3), sequence.take(1), sequence.take(1)] == [0, 3, 4]
    sequence.next_sequence = 0x7FFFFFFF
    assert [sequence.take(2), sequence.take(1)] == [0x7FFFFFFF, 1]


def test_a_new_identity_starts_at_zero() -> None:
    sequence = PartitionSequence()
    sequence.restart(ProducerIdentity(5, 0))
    sequence.take(7)
    sequence.restart(ProducerIdentity(6, 0))
    assert (sequence.identity.producer_id, sequence.take(1)) == (6, 0)


def test_the_last_epoch_has_no_successor() -> None:
    assert ProducerIdentity(5, 0x7FFD).bumped() == ProducerIdentity(5, 0x7FFE)
    assert ProducerIdentity(5, 0x7FFE).bumped() == NO_IDENTITY
