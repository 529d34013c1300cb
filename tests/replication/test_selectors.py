"""Which replica a consumer is referred to."""

from rookery.replication.selectors import ReadableReplica, select_in_rack

_NEAR = ReadableReplica(2, "a", 10, 5.0)
_NEARER = ReadableReplica(3, "a", 12, 1.0)
_FAR = ReadableReplica(4, "b", 99, 9.0)


def test_the_most_complete_follower_in_the_consumers_rack() -> None:
    assert select_in_rack("a", "c", [_NEAR, _NEARER, _FAR]) == 3
    assert select_in_rack("b", "c", [_NEAR, _FAR]) == 4


def test_the_leader_if_it_is_in_the_rack_or_no_follower_is() -> None:
    assert select_in_rack("a", "a", [_NEAR]) is None
    assert select_in_rack("z", "c", [_NEAR, _FAR]) is None
