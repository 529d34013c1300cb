import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.errors import CorruptionError
from rookery.storage.index import OffsetIndex, TimeIndex


def offset_index(*entries: tuple[int, int], base_offset: int = 100) -> OffsetIndex:
    index = OffsetIndex(base_offset)
    for offset, position in entries:
        index.append(offset, position)
    return index


def time_index(*entries: tuple[int, int], base_offset: int = 100) -> TimeIndex:
    index = TimeIndex(base_offset)
    for timestamp_ms, offset in entries:
        index.append_if_later(timestamp_ms, offset)
    return index


class TestOffsetIndex:
    def test_kafkas_bytes(self) -> None:
        index = offset_index((105, 4200), (110, 8400))
        assert index.encode() == bytes.fromhex("00000005 00001068 0000000a 000020d0")
        assert OffsetIndex.decode(100, index.encode()).entries() == [(105, 4200), (110, 8400)]

    def test_lookup(self) -> None:
        index = offset_index((105, 4200), (110, 8400))
        found = [index.lookup(offset) for offset in (99, 100, 104, 105, 109, 110, 500)]
        assert found == [0, 0, 0, 4200, 4200, 8400, 8400]

    def test_truncate(self) -> None:
        for offset, left in ((100, 0), (105, 0), (106, 1), (110, 1), (111, 2)):
            index = offset_index((105, 4200), (110, 8400))
            index.truncate_to(offset)
            assert len(index) == left

    @pytest.mark.parametrize(
        "data",
        [b"\0" * 8, b"\0" * 7, bytes.fromhex("0000000500000010 0000000500000020"), b"\xff" * 8],
        ids=["zeros", "half an entry", "not growing", "negative"],
    )
    def test_bad_bytes(self, data: bytes) -> None:
        with pytest.raises(CorruptionError):
            OffsetIndex.decode(0, data)

    @given(st.binary(max_size=64))
    def test_any_bytes(self, data: bytes) -> None:
        try:
            index = OffsetIndex.decode(7, data)
        except CorruptionError:
            return
        assert index.encode() == data
        assert all(index.lookup(offset) == position for offset, position in index.entries())


class TestTimeIndex:
    def test_kafkas_bytes(self) -> None:
        index = time_index((1000, 105), (2000, 110))
        assert index.encode() == bytes.fromhex("00000000000003e8 00000005 00000000000007d0 0000000a")
        assert TimeIndex.decode(100, index.encode()).entries() == [(1000, 105), (2000, 110)]

    def test_only_later_timestamps_get_an_entry(self) -> None:
        assert time_index((5, 101), (5, 102), (4, 103), (6, 104)).entries() == [(5, 101), (6, 104)]

    def test_lookup(self) -> None:
        index = time_index((1000, 105), (2000, 110))
        assert [index.lookup(ms) for ms in (0, 999, 1000, 1999, 2000, 9999)] == [100, 100, 105, 105, 110, 110]
        assert (index.last, time_index().last) == ((2000, 110), (-1, 100))

    def test_truncate(self) -> None:
        index = time_index((1000, 105), (2000, 110))
        index.truncate_to(110)
        assert index.entries() == [(1000, 105)]

    @given(st.binary(max_size=96))
    def test_any_bytes(self, data: bytes) -> None:
        try:
            index = TimeIndex.decode(7, data)
        except CorruptionError:
            return
        assert index.encode() == data
