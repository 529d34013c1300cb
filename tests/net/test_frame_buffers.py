from rookery.net.frame_buffers import FrameBuffers
from tests.support.memory import NEEDS_RESIDENT_BYTES, resident_bytes


def test_a_buffer_is_reused_when_no_view_of_it_is_left() -> None:
    buffers = FrameBuffers()
    first = buffers.take(100)
    address = id(first.obj)
    part = first[10:20]
    del first
    second = buffers.take(90)
    assert id(second.obj) != address
    del part
    third = buffers.take(80)
    assert (id(third.obj), len(third)) == (address, 80)


def test_a_buffer_with_a_view_is_not_overwritten() -> None:
    buffers = FrameBuffers()
    held = []
    for number in range(20):
        frame = buffers.take(10)
        frame[:] = bytes([number]) * 10
        held.append(frame)
    assert [bytes(frame) for frame in held] == [bytes([number]) * 10 for number in range(20)]


def test_a_large_buffer_is_not_kept_for_small_frames() -> None:
    buffers = FrameBuffers()
    address = id(buffers.take(1000).obj)
    small = buffers.take(10)
    assert id(small.obj) != address
    assert len(small) == 10


def test_large_buffers_are_reused_too() -> None:
    buffers = FrameBuffers()
    first = buffers.take(2_000_000)
    first[-1] = 7
    second = buffers.take(2_000_000)
    assert second[-1] == 0
    del first
    assert buffers.take(1_900_000).obj is not second.obj
    third = buffers.take(2_000_000)
    assert third[-1] == 7


def test_a_buffer_larger_than_a_fetch_is_not_kept() -> None:
    buffers = FrameBuffers()
    buffers.take(100_000_000)
    assert buffers._kept == []


@NEEDS_RESIDENT_BYTES
def test_memory_grows_with_the_bytes_that_arrive_not_with_the_claimed_size() -> None:
    buffers, before = FrameBuffers(), resident_bytes()
    claimed = buffers.take(500_000_000)
    claimed[:5] = b"bytes"
    assert resident_bytes() - before < 100_000_000
