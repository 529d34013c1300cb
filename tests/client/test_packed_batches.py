"""The memory that packed batches share: batches that stay copy their payloads out of it."""

from rookery.client.packed_batches import SharedBuffer


class FakeBatch:
    def __init__(self, shared_buffer: SharedBuffer) -> None:
        self.is_on_wire = False
        self.has_copied = False
        self._shared_buffer = shared_buffer
        shared_buffer.grow(100)
        shared_buffer.add(self, 100)

    def copy_payload(self) -> None:
        self.has_copied = True
        self._shared_buffer.remove(self)


def test_the_last_waiting_batches_copy_their_payloads() -> None:
    shared_buffer = SharedBuffer()
    batches = [FakeBatch(shared_buffer) for _ in range(8)]
    for settled in batches[2:]:
        shared_buffer.remove(settled)
    assert not batches[0].has_copied, "more may be packed into the buffer"
    batches[1].is_on_wire = True
    shared_buffer.complete()
    assert [batch.has_copied for batch in batches[:2]] == [True, False]


def test_no_batch_copies_its_payload_while_much_of_the_buffer_is_in_use() -> None:
    shared_buffer = SharedBuffer()
    batches = [FakeBatch(shared_buffer) for _ in range(8)]
    shared_buffer.complete()
    for settled in batches[3:]:
        shared_buffer.remove(settled)
    assert not any(batch.has_copied for batch in batches)
    shared_buffer.remove(batches[2])
    assert all(batch.has_copied for batch in batches[:2])
