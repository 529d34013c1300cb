"""Memory that batches share: what stays moves out."""

from rookery.client.packed_batches import SharedBuffer


class SharingBatch:
    def __init__(self, shared_buffer: SharedBuffer) -> None:
        self.is_on_wire = False
        self.has_moved = False
        self._slab = shared_buffer
        shared_buffer.grow(100)
        shared_buffer.add(self, 100)

    def copy_payload(self) -> None:
        self.has_moved = True
        self._slab.remove(self)


def test_what_is_left_of_a_slab_moves_out() -> None:
    shared_buffer = SharedBuffer()
    batches = [SharingBatch(shared_buffer) for _ in range(8)]
    for settled in batches[2:]:
        shared_buffer.remove(settled)
    assert not batches[0].has_moved, "more may be packed into it"
    batches[1].is_on_wire = True
    shared_buffer.complete()
    assert [batch.has_moved for batch in batches[:2]] == [True, False]


def test_while_much_of_a_slab_is_in_use_nothing_moves() -> None:
    shared_buffer = SharedBuffer()
    batches = [SharingBatch(shared_buffer) for _ in range(8)]
    shared_buffer.complete()
    for settled in batches[3:]:
        shared_buffer.remove(settled)
    assert not any(batch.has_moved for batch in batches)
    shared_buffer.remove(batches[2])
    assert all(batch.has_moved for batch in batches[:2])
