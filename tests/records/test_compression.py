import gzip
import random
import struct
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.base.errors import ErrorCode, InvalidBatchError
from rookery.records import compression
from rookery.records.batch import Codec
from rookery.records.compression import DECOMPRESSED_SIZE_MAX, compress, decompress

_COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
_SIZE_MAX = 1 << 20


def _text(size: int) -> bytes:
    source = random.Random(1)
    words = [bytes(source.choices(b"abcdefghij", k=source.randint(3, 9))) for _ in range(500)]
    return b" ".join(source.choices(words, k=size // 5))[:size]


@pytest.mark.parametrize("codec", list(Codec))
@given(data=st.binary(max_size=2000), repeat=st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_round_trip(codec: Codec, data: bytes, repeat: int) -> None:
    assert decompress(codec, compress(codec, data * repeat), size_max=_SIZE_MAX) == data * repeat


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_accepts_any_buffer(codec: Codec, wrap: type) -> None:
    data = _text(100_000)
    assert decompress(codec, wrap(compress(codec, wrap(data))), size_max=len(data)) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_output_at_the_limit_passes_and_one_byte_more_does_not(codec: Codec) -> None:
    data = _text(70_000)
    compressed = compress(codec, data)
    assert decompress(codec, compressed, size_max=70_000) == data
    with pytest.raises(InvalidBatchError) as caught:
        decompress(codec, compressed, size_max=69_999)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", _COMPRESSING)
@pytest.mark.parametrize("cut", [0.0, 0.1, 0.5, 0.99])
def test_truncated_input_is_rejected(codec: Codec, cut: float) -> None:
    compressed = compress(codec, _text(50_000))
    with pytest.raises(InvalidBatchError):
        decompress(codec, compressed[: int(len(compressed) * cut)], size_max=_SIZE_MAX)


@pytest.mark.parametrize("codec", _COMPRESSING)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_input_raises_only_invalid_batch(codec: Codec, data: st.DataObject) -> None:
    compressed = bytearray(compress(codec, _text(3000)))
    for _ in range(data.draw(st.integers(1, 4))):
        compressed[data.draw(st.integers(0, len(compressed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(InvalidBatchError):
        assert len(decompress(codec, compressed, size_max=10_000)) <= 10_000


def _zstd_streamed(data: bytes) -> bytes:
    """Return a frame without the size of its content."""
    compressor = cramjam.zstd.Compressor(level=3)
    compressor.compress(data)
    return bytes(compressor.flush()) + bytes(compressor.finish())


def _bombs() -> dict[str, tuple[Codec, bytes]]:
    zeros = bytes(1 << 24)
    zstd = compress(Codec.ZSTD, zeros)
    # A frame of raw and repeated-byte blocks that claims 2**40 bytes.
    oversized_zstd = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 40) + b"\x03\x00\x10\x00"
    return {
        "gzip": (Codec.GZIP, compress(Codec.GZIP, zeros)),
        "gzip of many members": (Codec.GZIP, gzip.compress(bytes(1 << 18)) * 64),
        "zstd": (Codec.ZSTD, zstd),
        "zstd without content size": (Codec.ZSTD, _zstd_streamed(zeros)),
        "zstd of many frames": (Codec.ZSTD, compress(Codec.ZSTD, bytes(1 << 18)) * 64),
        "zstd with an absurd content size": (Codec.ZSTD, oversized_zstd),
        "lz4": (Codec.LZ4, compress(Codec.LZ4, zeros)),
        "lz4 of many frames": (Codec.LZ4, compress(Codec.LZ4, bytes(1 << 18)) * 64),
        "snappy": (Codec.SNAPPY, compress(Codec.SNAPPY, zeros)),
        "snappy raw": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(zeros))),
        "snappy with an absurd size": (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\x00a"),
    }


@pytest.mark.parametrize(("codec", "bomb"), [pytest.param(*case, id=name) for name, case in _bombs().items()])
def test_bombs_stop_at_the_limit(codec: Codec, bomb: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidBatchError) as caught:
            decompress(codec, bomb, size_max=_SIZE_MAX)
        assert tracemalloc.get_traced_memory()[1] < 4 * _SIZE_MAX
    finally:
        tracemalloc.stop()
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_gzip_members_and_zstd_frames_are_joined() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), size_max=100) == b"one two"
    frames = compress(Codec.ZSTD, b"one ") + _zstd_streamed(b"two")
    assert decompress(Codec.ZSTD, frames, size_max=100) == b"one two"


def test_snappy_raw_block_is_read_and_xerial_framing_is_written() -> None:
    data = _text(100_000)
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), size_max=len(data)) == data
    framed = compress(Codec.SNAPPY, data)
    assert framed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    (first_block_size,) = struct.unpack_from(">i", framed, 16)
    assert cramjam.snappy.decompress_raw_len(framed[20 : 20 + first_block_size]) == 32 * 1024


def test_lz4_blocks_are_independent() -> None:
    flags = compress(Codec.LZ4, _text(300_000))[4]
    assert flags & 0x20


@pytest.mark.parametrize(("codec", "fast", "small"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 9, 12), (Codec.ZSTD, 1, 19)])
def test_levels_are_honoured(codec: Codec, fast: int, small: int) -> None:
    data = _text(300_000)
    quick, thorough = compress(codec, data, fast), compress(codec, data, small)
    assert len(thorough) < len(quick)
    assert decompress(codec, thorough, size_max=len(data)) == data


def test_gzip_level_minus_one_is_the_default() -> None:
    assert compress(Codec.GZIP, _text(10_000), -1) == compress(Codec.GZIP, _text(10_000))
    assert zlib.decompress(compress(Codec.GZIP, b"abc", -1), wbits=31) == b"abc"


def test_threads_do_not_share_scratch_memory() -> None:
    texts = [bytes([number]) * 400_000 for number in range(16)]
    packed = [compress(Codec.LZ4, text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            opened = pool.map(lambda data: decompress(Codec.LZ4, data, size_max=500_000), packed)
            assert list(opened) == texts


def test_memory_that_a_large_batch_has_filled_is_not_kept() -> None:
    compression._scratches.clear()
    for size, kept in ((20_000_000, 0), (5, 1), (20_000_000, 0)):
        decompress(Codec.ZSTD, compress(Codec.ZSTD, bytes(size)), size_max=DECOMPRESSED_SIZE_MAX)
        assert len(compression._scratches) == kept
