import asyncio
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from rookery.base.types import TopicPartition
from rookery.client.packed_batches import PackedBatch
from rookery.client.produce.accumulator import GRANT_BYTES, Accumulator, AccumulatorLimits, Drained, PartitionQueue
from rookery.client.produce.batches import Batch
from rookery.client.produce.receipts import PackedGroup
from rookery.client.produce.sequences import ProducerIdentity
from rookery.records.batch import HEADER_SIZE

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
NODE = 1
IDENTITY = ProducerIdentity(7, 0)


def accumulator(
    *,
    batch_size_bytes: int = 1000,
    buffer_size_bytes: int = 10_000,
    request_size_bytes_max: int = 100_000,
    linger_s: float = 0.0,
    in_flight_max: int = 5,
    idempotent: bool = False,
    transactional: bool = False,
) -> Accumulator[int]:
    made: Accumulator[int] = Accumulator(
        AccumulatorLimits(
            batch_size_bytes=batch_size_bytes,
            buffer_size_bytes=buffer_size_bytes,
            request_size_bytes_max=request_size_bytes_max,
            linger_s=linger_s,
            delivery_timeout_s=100.0,
            in_flight_max=in_flight_max,
            idempotent=idempotent,
            transactional=transactional,
        )
    )
    if idempotent:
        made.set_identity(IDENTITY)
    return made


def add(made: Accumulator[int], partition: TopicPartition, token: int, size: int = 100, now_s: float = 0.0) -> bool:
    batch = made.grant(made.queue(partition), size, now_s)
    return batch is not None and batch.append(token, None, b"%d" % token, (), size, token)


def drain(made: Accumulator[int], now_s: float = 0.0) -> list[Batch[int]]:
    """Return the batches of one `drain`; one node leads all partitions."""
    return [batch for _, batches in round_of(made, now_s).requests for batch in batches]


def round_of(made: Accumulator[int], now_s: float = 0.0) -> Drained[int]:
    return made.drain(now_s, lambda _: NODE)


def established(made: Accumulator[int], partition: TopicPartition = A) -> PartitionQueue[int]:
    """Complete a first batch, so that several may be in flight."""
    add(made, partition, -1)
    (batch,) = drain(made)
    made.end_request(NODE)
    made.complete(batch)
    return made.queue(partition)


def test_a_batch_lingers_until_its_time_or_until_it_is_full() -> None:
    made = accumulator(linger_s=5.0)
    add(made, A, 1, now_s=10.0)
    waiting = round_of(made, 11.0)
    assert (waiting.requests, waiting.next_s) == ([], 15.0)
    add(made, A, 2, now_s=12.0)
    assert [batch.tokens for batch in drain(made, 15.0)] == [[1, 2]]
    for token in range(10):
        add(made, B, token, now_s=20.0)
    (full,) = drain(made, 20.0)
    assert full.used_bytes + HEADER_SIZE <= 1000
    assert full.tokens == list(range(9))


def test_batches_do_not_linger_when_it_is_urgent() -> None:
    made = accumulator(linger_s=5.0)
    add(made, A, 1)
    made.is_urgent = True
    assert [batch.tokens for batch in drain(made)] == [[1]]


def test_a_record_larger_than_a_batch_gets_its_own_batch() -> None:
    made = accumulator(batch_size_bytes=100)
    for token, size in ((1, 50), (2, 500), (3, 50)):
        add(made, A, token, size)
    batches = [drain(made)[0] for _ in range(3)]
    assert [batch.tokens for batch in batches] == [[1], [2], [3]]


def test_the_buffer_counts_granted_memory_and_takes_back_the_unused_part() -> None:
    made = accumulator(batch_size_bytes=10 * GRANT_BYTES, buffer_size_bytes=3 * GRANT_BYTES)
    add(made, A, 1)
    assert made.free_bytes == 2 * GRANT_BYTES
    add(made, A, 2, GRANT_BYTES)
    assert made.free_bytes == GRANT_BYTES
    (batch,) = drain(made)
    assert made.free_bytes == 3 * GRANT_BYTES - (100 + GRANT_BYTES)
    made.complete(batch)
    assert made.free_bytes == 3 * GRANT_BYTES


def test_a_full_buffer_grants_nothing_until_memory_is_released() -> None:
    made = accumulator(buffer_size_bytes=250)
    assert add(made, A, 1)
    assert not add(made, B, 2), "granted memory counts, used or not"
    assert add(made, A, 3)
    assert not add(made, A, 4)
    (batch,) = drain(made)
    assert made.free_bytes == 50
    made.complete(batch)
    assert add(made, B, 2)


def test_requests_in_flight_are_limited_by_node() -> None:
    made = accumulator(in_flight_max=2, batch_size_bytes=HEADER_SIZE + 100)
    for token in range(4):
        add(made, A, token)
    batches = drain(made) + drain(made)
    assert (len(batches), drain(made)) == (2, [])
    made.end_request(NODE)
    made.complete(batches[0])
    assert len(drain(made)) == 1


def test_with_one_request_in_flight_a_partition_waits_even_for_another_leader() -> None:
    made = accumulator(in_flight_max=1, batch_size_bytes=HEADER_SIZE + 100)
    add(made, A, 1)
    add(made, A, 2)
    (first,) = drain(made)
    assert made.drain(0.0, lambda _: NODE + 1).requests == []
    made.end_request(NODE)
    made.retry(first, at_s=5.0, may_be_written=True)
    assert drain(made, 4.0) == []
    assert drain(made, 5.0) == [first]


def test_a_request_stays_within_its_size_and_the_next_has_the_other_partitions() -> None:
    made = accumulator(request_size_bytes_max=500)
    for index in range(5):
        add(made, TopicPartition("t", index), index)
    rounds = [[batch.tokens[0] for batch in drain(made)] for _ in range(3)]
    assert rounds == [[0, 1, 2], [3, 4], []]


def test_a_partition_without_a_leader_is_returned_and_delays_no_other() -> None:
    made = accumulator()
    add(made, A, 1)
    add(made, B, 2)
    drained = made.drain(0.0, lambda partition: None if partition == A else NODE)
    assert drained.leaderless == {"t"}
    assert [batch.partition for _, batches in drained.requests for batch in batches] == [B]


def test_sequence_numbers_count_records_and_are_kept_in_retries() -> None:
    made = accumulator(idempotent=True, batch_size_bytes=HEADER_SIZE + 200)
    established(made)
    for token in range(4):
        add(made, A, token)
    first, second = drain(made)[0], drain(made)[0]
    assert [(each.identity, each.base_sequence) for each in (first, second)] == [(IDENTITY, 1), (IDENTITY, 3)]
    made.retry(second, at_s=0.0, may_be_written=True)
    assert drain(made) == [], "the first one is not settled"
    made.retry(first, at_s=0.0, may_be_written=True)
    assert drain(made) == [first]
    assert drain(made) == []
    made.complete(first)
    assert drain(made) == [second]
    assert second.base_sequence == 3


def test_nothing_is_sent_without_an_identity() -> None:
    made = accumulator(idempotent=True)
    made.set_identity(ProducerIdentity(-1, -1))
    add(made, A, 1)
    assert made.needs_identity
    assert drain(made) == []
    made.set_identity(IDENTITY)
    assert len(drain(made)) == 1


def test_the_first_batch_under_new_numbers_is_sent_alone() -> None:
    made = accumulator(idempotent=True, batch_size_bytes=HEADER_SIZE + 100)
    add(made, A, 1)
    add(made, A, 2)
    (first,) = drain(made)
    assert drain(made) == []
    made.complete(first)
    assert len(drain(made)) == 1


def test_out_of_order_waits_for_an_unsettled_batch_and_restarts_without_one() -> None:
    made = accumulator(idempotent=True, batch_size_bytes=HEADER_SIZE + 100)
    established(made)
    add(made, A, 1)
    add(made, A, 2)
    first, second = drain(made)[0], drain(made)[0]
    made.retry_out_of_order(second, at_s=9.0, now_s=0.0)
    made.retry(first, at_s=0.0, may_be_written=False)
    assert drain(made) == [first]
    made.retry_out_of_order(first, at_s=9.0, now_s=0.0)
    assert drain(made, 8.0) == []
    assert drain(made, 9.0) == [first]
    assert (first.identity, first.base_sequence) == (ProducerIdentity(7, 1), 0)
    assert (second.identity, second.base_sequence) == (ProducerIdentity(7, 1), 1)


def test_no_more_batches_are_sent_than_the_leader_remembers() -> None:
    """The leader moved; the old one does not answer. The new one has written four later batches and remembers five."""
    made = accumulator(idempotent=True, batch_size_bytes=200)
    established(made)
    for token in range(8):
        add(made, A, token)
    lost, *others = [drain(made)[0] for _ in range(5)]
    # The order of the responses does not matter.
    for batch in (others[2], others[0], others[1], others[3]):
        made.complete(batch)
    for _ in range(5):
        made.end_request(NODE)
    assert drain(made) == []
    made.retry(lost, at_s=0.0, may_be_written=True)
    assert drain(made) == [lost]
    assert drain(made) == []
    made.complete(lost)
    assert [drain(made)[0].tokens for _ in range(3)] == [[5], [6], [7]]


def test_a_failed_batch_restarts_only_its_partition() -> None:
    made = accumulator(idempotent=True, batch_size_bytes=HEADER_SIZE + 100)
    established(made, A)
    established(made, B)
    for token in (1, 2):
        add(made, A, token)
    first, second = drain(made)[0], drain(made)[0]
    made.fail(first)
    add(made, A, 3)
    add(made, B, 4)
    assert [batch.partition for batch in drain(made)] == [B], "A waits for the batch on the wire"
    made.retry_out_of_order(second, at_s=0.0, now_s=0.0)
    assert drain(made) == [second]
    assert (second.identity, second.base_sequence) == (ProducerIdentity(7, 1), 0)


def test_a_doubt_is_resolved_by_the_next_batch() -> None:
    made = accumulator(idempotent=True, batch_size_bytes=HEADER_SIZE + 100)
    queue = established(made)
    add(made, A, 1)
    add(made, A, 2, now_s=1.0)
    first, second = drain(made, 1.0)[0], drain(made, 1.0)[0]
    made.retry(first, at_s=0.0, may_be_written=True)
    add(made, A, 3, now_s=2.0)
    assert made.expire(100.0) == [first]
    assert queue.in_doubt
    assert drain(made, 100.0) == [], "no new numbers while there is a doubt"
    made.complete(second)
    (third,) = drain(made, 100.0)
    assert (third.identity, third.base_sequence) == (IDENTITY, 3)


def test_a_batch_that_expires_on_the_wire_keeps_its_position_until_the_response() -> None:
    made = accumulator(idempotent=True)
    established(made)
    add(made, A, 1)
    (batch,) = drain(made)
    assert made.expire(99.0) == []
    assert made.expire(100.0) == [batch]
    assert made.expire(200.0) == []
    assert made.unsettled_count == 0
    made.complete(batch)
    add(made, A, 2, now_s=200.0)
    (following,) = drain(made, 200.0)
    assert (following.identity, following.base_sequence) == (IDENTITY, 2)
    made.complete(following)
    assert made.free_bytes == 10_000


def test_a_lost_response_after_the_expiry_is_a_doubt_for_the_next_batch() -> None:
    made = accumulator(idempotent=True, batch_size_bytes=HEADER_SIZE + 100)
    established(made)
    add(made, A, 1)
    add(made, A, 2, now_s=50.0)
    first, second = drain(made, 50.0)[0], drain(made, 50.0)[0]
    assert made.expire(100.0) == [first]
    made.fail(first)
    made.retry(second, at_s=100.0, may_be_written=True)
    assert drain(made, 100.0) == [second]
    assert (second.identity, second.base_sequence) == (IDENTITY, 2), "both may have been written"
    made.complete(second)
    add(made, A, 3, now_s=100.0)
    assert [batch.base_sequence for batch in drain(made, 100.0)] == [3]


def test_retried_batches_are_sent_in_the_order_of_their_numbers() -> None:
    made = accumulator(idempotent=True, batch_size_bytes=HEADER_SIZE + 100)
    established(made)
    for token in range(3):
        add(made, A, token)
    batches = [drain(made)[0] for _ in range(3)]
    for index in (1, 0, 2):
        made.end_request(NODE)
        made.retry(batches[index], at_s=0.0, may_be_written=True)
    for batch in batches:
        assert drain(made) == [batch]
        made.complete(batch)


def test_a_new_identity_is_needed_when_the_epochs_are_used_up() -> None:
    made = accumulator(idempotent=True)
    made.set_identity(ProducerIdentity(7, 0x7FFE))
    established(made)
    add(made, A, 1)
    (batch,) = drain(made)
    made.fail(batch)
    add(made, A, 2)
    assert drain(made) == []
    assert made.needs_identity
    made.set_identity(ProducerIdentity(8, 0))
    (following,) = drain(made)
    assert (following.identity, following.base_sequence) == (ProducerIdentity(8, 0), 0)


def test_a_transaction_does_not_restart_by_itself() -> None:
    made = accumulator(idempotent=True, transactional=True)
    add(made, A, 1)
    (batch,) = drain(made)
    made.fail(batch)
    add(made, A, 2)
    assert drain(made) == []
    made.set_identity(ProducerIdentity(7, 1))
    (following,) = drain(made)
    assert (following.identity, following.base_sequence) == (ProducerIdentity(7, 1), 0)


def test_a_split_batch_keeps_its_numbers_and_its_memory() -> None:
    made = accumulator(idempotent=True)
    established(made)
    for token in range(5):
        add(made, A, token)
    (batch,) = drain(made)
    made.split(batch)
    (first,) = drain(made)
    assert (first.tokens, first.base_sequence) == ([0, 1], 1)
    made.complete(first)
    (second,) = drain(made)
    assert (second.tokens, second.base_sequence) == ([2, 3, 4], 3)
    made.complete(second)
    assert (made.free_bytes, made.unsettled_count) == (10_000, 0)


def test_a_packed_batch_is_queued_after_appended_records() -> None:
    made = accumulator()
    add(made, A, 1)
    packed = PackedBatch(b"x" * 300, 3, 5, 9, 400, 140)
    group = PackedGroup(asyncio.new_event_loop().create_future())
    assert made.add_packed(A, packed, group, now_s=0.0) is not None
    add(made, A, 3)
    batches = [drain(made)[0] for _ in range(3)]
    assert [(each.tokens, each.group, each.record_count) for each in batches] == [
        ([1], None, 1),
        ([], group, 3),
        ([3], None, 1),
    ]
    assert made.add_packed(B, PackedBatch(bytes(10_001), 1, 0, 0, 0, 0), group, now_s=0.0) is None


def test_dropping_keeps_batches_with_numbers_unless_requested() -> None:
    made = accumulator(idempotent=True, batch_size_bytes=HEADER_SIZE + 100)
    for token in range(3):
        add(made, A, token)
    (first,) = drain(made)
    made.retry(first, at_s=0.0, may_be_written=True)
    assert [batch.tokens for batch in made.drop_waiting(with_numbers=False)] == [[1], [2]]
    assert [batch.tokens for batch in made.drop_waiting(with_numbers=True)] == [[0]]
    assert (made.free_bytes, made.unsettled_count) == (10_000, 0)


def test_all_batches_can_be_dropped_and_later_ones_do_not_delay_a_flush() -> None:
    made = accumulator()
    add(made, A, 1)
    drain(made)
    add(made, B, 2)
    ordinal = made.last_ordinal
    assert not made.is_settled_up_to(ordinal)
    assert [batch.tokens for batch in made.drop_all()] == [[1], [2]]
    assert made.is_settled_up_to(ordinal)
    add(made, B, 3)
    assert made.is_settled_up_to(ordinal)
    assert not made.is_settled_up_to(made.last_ordinal)


def test_an_empty_accumulator_needs_no_timer() -> None:
    assert round_of(accumulator()).next_s == inf


@given(
    st.lists(st.tuples(st.sampled_from([A, B]), st.integers(1, 300))),
    st.integers(100, 600),
    st.booleans(),
)
def test_all_records_are_drained_once_in_order_and_within_the_size(
    sent: list[tuple[TopicPartition, int]], batch_size_bytes: int, idempotent: bool
) -> None:
    made = accumulator(batch_size_bytes=batch_size_bytes, buffer_size_bytes=10**6, idempotent=idempotent)
    for token, (partition, size) in enumerate(sent):
        assert add(made, partition, token, size)
    taken: dict[TopicPartition, list[int]] = {A: [], B: []}
    while batches := drain(made):
        made.end_request(NODE)
        for batch in batches:
            assert len(batch.tokens) == 1 or batch.used_bytes + HEADER_SIZE <= batch_size_bytes
            taken[batch.partition] += batch.tokens
            made.complete(batch)
    assert (made.unsettled_count, made.free_bytes) == (0, 10**6)
    for partition in (A, B):
        assert taken[partition] == [token for token, (owner, _) in enumerate(sent) if owner == partition]
