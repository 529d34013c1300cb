from rookery.client.frame_buffers import FrameBuffers


def test_a_buffer_comes_again_when_nobody_looks_at_it_any_more() -> None:
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


def test_what_somebody_looks_at_is_not_overwritten() -> None:
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
