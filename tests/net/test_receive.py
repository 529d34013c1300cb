"""Frames from bytes that arrive in any pieces, and the memory that they use."""

import random
import struct

import pytest

from rookery.base.errors import ProtocolError
from rookery.net.receive import FrameBuffer, PartialFrames
from tests.support.memory import NEEDS_RESIDENT_BYTES, resident_bytes

SCRATCH_SIZE = 1024


def _frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _buffer(frame_size_max: int = 1_000_000) -> FrameBuffer:
    return FrameBuffer(memoryview(bytearray(SCRATCH_SIZE)), frame_size_max)


def _feed(buffer: FrameBuffer, data: bytes, piece_size: int) -> list[bytes]:
    """Feed `data` in pieces of at most `piece_size`, as from a socket; return all frames."""
    frames = []
    while data:
        space = buffer.writable()
        assert space
        count = min(len(space), piece_size, len(data))
        space[:count] = data[:count]
        data = data[count:]
        buffer.received(count)
        while (frame := buffer.next_frame()) is not None:
            frames.append(bytes(frame))
        buffer.end_turn()
    return frames


@pytest.mark.parametrize("piece_size", [1, 2, 3, 5, 1000, 10_000])
def test_frames_are_complete_for_any_pieces(piece_size: int) -> None:
    chance = random.Random(piece_size)
    sizes = [0, 1, 4, 1019, 1020, 1021, 1024, 4096, 20_000, *(chance.randint(0, 3000) for _ in range(40))]
    bodies = [chance.randbytes(size) for size in sizes]
    assert _feed(_buffer(), b"".join(map(_frame, bodies)), piece_size) == bodies


def test_frames_are_writable() -> None:
    buffer = _buffer()
    space = buffer.writable()
    space[:7] = _frame(b"abc")
    buffer.received(7)
    frame = buffer.next_frame()
    assert frame is not None
    frame[0] = ord("A")
    assert bytes(frame) == b"Abc"


@NEEDS_RESIDENT_BYTES
def test_memory_is_proportional_to_the_bytes_that_arrived() -> None:
    buffer = _buffer(frame_size_max=100_000_000)
    _feed(buffer, struct.pack(">i", 100_000_000) + b"x", 1024)
    assert buffer.own_size <= 4096
    before = resident_bytes()
    _feed(buffer, bytes(2_000_000), 1024)
    # The frame's whole size is mapped by now, but only the pages that have arrived exist.
    assert buffer.partial_size == 2_000_005
    assert resident_bytes() - before < 30_000_000


def test_a_connection_between_frames_has_no_buffer() -> None:
    buffer = _buffer()
    assert buffer.own_size == 0
    _feed(buffer, _frame(bytes(100)) + _frame(bytes(1000)), 1024)
    assert buffer.own_size == 0


def test_large_frames_keep_their_buffer_until_trimmed() -> None:
    buffer = _buffer()
    _feed(buffer, _frame(bytes(200_000)), 100_000)
    kept = buffer.own_size
    assert kept >= 200_004
    buffer.trim()
    assert buffer.own_size == kept
    buffer.trim()
    assert buffer.own_size == 0
    assert _feed(buffer, _frame(b"still works"), 3) == [b"still works"]


def test_a_partial_frame_survives_trimming() -> None:
    buffer = _buffer()
    data = _frame(b"a" * 5000)
    assert _feed(buffer, data[:100], 1024) == []
    for _ in range(3):
        buffer.trim()
    assert _feed(buffer, data[100:], 1024) == [b"a" * 5000]


def test_frames_that_wait_for_another_turn_are_kept() -> None:
    buffer = _buffer()
    data = b"".join(_frame(bytes([index]) * 10) for index in range(20))
    space = buffer.writable()
    space[: len(data)] = data
    buffer.received(len(data))
    assert bytes(buffer.next_frame() or b"") == bytes(10)
    buffer.end_turn()
    assert [bytes(buffer.next_frame() or b"") for _ in range(19)] == [bytes([index]) * 10 for index in range(1, 20)]
    assert buffer.next_frame() is None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff\xff\xff\xff", "negative size -1"),
        (b"\x00\x00\x03\xe9", "1001 bytes is larger than socket.request.max.bytes=1000"),
        (b"GET / HTTP/1.1\r\n", "an HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01", "a TLS handshake"),
    ],
)
def test_invalid_frames_are_rejected(data: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        _feed(_buffer(frame_size_max=1000), data, 1024)


class Peer:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def drop(self, reason: str) -> None:
        self.reasons.append(reason)


def test_the_peer_whose_frame_has_been_incomplete_for_longest_is_dropped() -> None:
    partial: PartialFrames[Peer] = PartialFrames(100)
    slow, quick, late = Peer(), Peer(), Peer()
    partial.update(slow, 40)
    partial.update(quick, 40)
    partial.update(late, 15)
    # A complete frame no longer counts, whenever it began.
    partial.update(quick, 0)
    partial.update(quick, 40)
    partial.update(late, 25)
    assert (len(slow.reasons), quick.reasons, late.reasons) == (1, [], [])
    assert "queued.max.request.bytes" in slow.reasons[0]
    assert partial.size == 65
    # A single peer that holds too much is dropped.
    for peer in (quick, late):
        partial.update(peer, 0)
    partial.update(late, 101)
    assert late.reasons
    assert partial.size == 0
