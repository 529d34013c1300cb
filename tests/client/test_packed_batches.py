"""Memory that batches share: what stays moves out."""

from rookery.client.packed_batches import Slab


class Tenant:
    def __init__(self, slab: Slab) -> None:
        self.is_on_wire = False
        self.has_moved = False
        self._slab = slab
        slab.grow(100)
        slab.enter(self, 100)

    def move_out(self) -> None:
        self.has_moved = True
        self._slab.leave(self)


def test_what_is_left_of_a_slab_moves_out() -> None:
    slab = Slab()
    tenants = [Tenant(slab) for _ in range(8)]
    for settled in tenants[2:]:
        slab.leave(settled)
    assert not tenants[0].has_moved, "more may be packed into it"
    tenants[1].is_on_wire = True
    slab.complete()
    assert [tenant.has_moved for tenant in tenants[:2]] == [True, False]


def test_while_much_of_a_slab_is_in_use_nothing_moves() -> None:
    slab = Slab()
    tenants = [Tenant(slab) for _ in range(8)]
    slab.complete()
    for settled in tenants[3:]:
        slab.leave(settled)
    assert not any(tenant.has_moved for tenant in tenants)
    slab.leave(tenants[2])
    assert all(tenant.has_moved for tenant in tenants[:2])
