from rookery.storage.checkpoints import EpochStart
from rookery.storage.epochs import LeaderEpochs


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(EpochStart(*entry) for entry in entries)


def test_assign_grows_and_drops_what_contradicts() -> None:
    history = epochs((1, 0), (3, 10), (5, 20))
    assert not history.assign(5, 25)
    assert history.assign(6, 20)
    assert history.entries() == [(1, 0), (3, 10), (6, 20)]
    assert history.assign(4, 12)
    assert history.entries() == [(1, 0), (3, 10), (4, 12)]
    assert history.version == 2


def test_end_offset_of_an_epoch() -> None:
    history = epochs((2, 5), (4, 10), (7, 30))
    asked = {epoch: history.end_offset_for(epoch, 42) for epoch in (-1, 0, 2, 3, 4, 6, 7, 8)}
    assert asked == {
        -1: (-1, -1),
        0: (0, 5),
        2: (2, 10),
        3: (2, 10),
        4: (4, 30),
        6: (4, 30),
        7: (7, 42),
        8: (-1, -1),
    }
    assert epochs().end_offset_for(0, 42) == (-1, -1)


def test_epoch_at_an_offset() -> None:
    history = epochs((2, 5), (4, 10))
    assert [history.epoch_at(offset) for offset in (4, 5, 9, 10, 99)] == [-1, 2, 2, 4, 4]


def test_truncation_at_both_ends() -> None:
    history = epochs((2, 5), (4, 10), (7, 30))
    history.truncate_from_end(30)
    history.truncate_from_start(10)
    assert history.entries() == [(4, 10)]
    history.truncate_from_start(12)
    assert history.entries() == [(4, 12)]
    history.truncate_from_end(12)
    assert (history.entries(), history.latest, history.earliest) == ([], -1, None)
