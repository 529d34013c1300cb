"""The codecs of record batches, with a limit on the size to which untrusted bytes may expand.

The only module that imports cramjam. Whatever is wrong with compressed bytes, `decompress` raises `InvalidBatchError`
and nothing else, and it never holds more than `size_max` bytes of output: the output goes into a private anonymous
mapping of at least that size, of which the kernel backs only the pages that are actually written. So valid input takes
one pass, and a decompression bomb stops at the limit.

Requirements of other clients:
- lz4 frames must have independent blocks: the Java client rejects linked ones.
- snappy data has the framing of xerial's snappy-java; librdkafka also writes one raw block without framing. Both are
  read, the framing is written.
"""

import mmap
import struct
from collections.abc import Callable
from typing import TypeAlias

import cramjam

from rookery.base.errors import ErrorCode, InvalidBatchError
from rookery.base.types import Buffer
from rookery.records.batch import Codec

# The decompressed size limit for the records of one batch if the caller has no better one.
DECOMPRESSED_SIZE_MAX = 64 * 1024 * 1024

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_SIZE = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">I")

# The default, `compression.lz4.level=9`, means lz4-java's fast compressor and not its high compression at level 9.
_LZ4_DEFAULT_LEVEL = 9
_LZ4_FAST_LEVEL = 1
_ZSTD_DEFAULT_LEVEL = 3

_Inflate: TypeAlias = Callable[[Buffer, memoryview], int]

# Unused scratch memory. A mapping that a bomb has filled is returned to the system.
_scratches: list[mmap.mmap] = []
_KEPT_MAX = 2
_KEPT_BYTES_MAX = 8 * 1024 * 1024


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data`; `level` is that of `compression.<codec>.level`, None means Kafka's default."""
    match codec:
        case Codec.GZIP:
            # Kafka's -1 means zlib's own default.
            return bytes(cramjam.gzip.compress(data, level=None if level == -1 else level))
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            return _compress_lz4(data, level)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=_ZSTD_DEFAULT_LEVEL if level is None else level))
        case Codec.NONE:
            return bytes(data)


def decompress(codec: Codec, data: Buffer, *, size_max: int) -> bytes:
    """Return the original bytes; raises `InvalidBatchError` if they exceed `size_max` or the data is malformed."""
    try:
        if codec == Codec.SNAPPY:
            return _decompress_snappy(data, size_max)
        if codec == Codec.NONE:
            return _within(bytes(data), size_max)
        return _inflate(_INFLATE[codec], data, size_max)
    except cramjam.DecompressionError as error:
        raise _corrupt(f"the {codec.name.lower()} data does not decompress: {error}") from None


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    fast = level is None or level == _LZ4_DEFAULT_LEVEL
    compressor = cramjam.lz4.Compressor(
        level=_LZ4_FAST_LEVEL if fast else level, content_checksum=False, block_linked=False
    )
    # The compressor accepts only bytes.
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _compress_xerial(data: Buffer) -> bytes:
    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _inflate(into: _Inflate, data: Buffer, size_max: int) -> bytes:
    # One byte beyond the limit distinguishes output that just fits from output that does not.
    scratch = _take_scratch(size_max + 1)
    with memoryview(scratch) as whole, whole[: size_max + 1] as output:
        size = into(data, output)
        inflated = bytes(output[:size])
    if size <= _KEPT_BYTES_MAX and len(_scratches) < _KEPT_MAX:
        _scratches.append(scratch)
    return _within(inflated, size_max)


def _take_scratch(size: int) -> mmap.mmap:
    """Return memory that no other thread uses.

    It is reused, because the page faults of new memory take longer than the decompression.
    """
    try:
        scratch = _scratches.pop()
    except IndexError:
        scratch = None
    if scratch is None or len(scratch) < size:
        return mmap.mmap(-1, max(size, DECOMPRESSED_SIZE_MAX + 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return scratch


_INFLATE: dict[Codec, _Inflate] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def _decompress_snappy(data: Buffer, size_max: int) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_block(data, size_max)
    parts: list[bytes] = []
    view = memoryview(data)
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if position + _BLOCK_LENGTH.size > len(view):
            raise _corrupt("the snappy framing ends within a block's length")
        (size,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += _BLOCK_LENGTH.size
        if size > len(view) - position:
            raise _corrupt(f"a snappy block of {size} bytes goes beyond the data")
        parts.append(_decompress_block(view[position : position + size], size_max))
        size_max -= len(parts[-1])
        position += size
    return b"".join(parts)


def _decompress_block(block: Buffer, size_max: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > size_max:
        raise _too_large(size_max)
    return bytes(cramjam.snappy.decompress_raw(block, output_len=size))


def _within(data: bytes, size_max: int) -> bytes:
    if len(data) > size_max:
        raise _too_large(size_max)
    return data


def _too_large(size_max: int) -> InvalidBatchError:
    return _corrupt(f"the records expand to more than the {size_max} bytes left for them")


def _corrupt(message: str) -> InvalidBatchError:
    return InvalidBatchError(ErrorCode.CORRUPT_MESSAGE, message)
