"""The value that `Admin.first_records` returns: the first record at or after an offset that a consumer would get."""

from typing import Final

from rookery.base.errors import ErrorCode
from rookery.base.types import Offset, TimestampMs
from rookery.base.values import value_class

# A partition with so much data that consumers skip, such as a long aborted transaction, is not searched further.
SEARCHED_BYTES_MAX: Final = 64 * 1024 * 1024


@value_class(kw_only=True)
class FirstRecord:
    """`offset` is None if there is no record up to the end of the log, or if there is an `error`.

    `error` is REQUEST_TIMED_OUT if the search ended after `SEARCHED_BYTES_MAX` bytes without a record.
    """

    offset: Offset | None = None
    timestamp_ms: TimestampMs | None = None
    error: ErrorCode = ErrorCode.NONE
