"""A bounded table of buckets. Clients choose their client ids and addresses, and must not fill the memory with them.

The bucket that was not used for longest is forgotten, and so is each that was not used for an hour, as in Kafka.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, Protocol, TypeVar

from rookery.base.bounds import QUOTA_BUCKETS_MAX
from rookery.telemetry.sensors import SECONDS_PER_HOUR

_KEPT_S: Final = SECONDS_PER_HOUR


class Bucket(Protocol):
    limit: float
    used_s: float


BucketT = TypeVar("BucketT", bound=Bucket)


class BucketTable(Generic[BucketT]):
    """`new_bucket` returns an empty bucket with a limit."""

    def __init__(self, new_bucket: Callable[[float], BucketT], *, buckets_max: int = QUOTA_BUCKETS_MAX) -> None:
        self._new_bucket = new_bucket
        self._buckets_max = buckets_max
        # In the order of their last use.
        self._buckets: OrderedDict[Hashable, BucketT] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def get(self, key: Hashable, limit: float, now_s: float) -> BucketT:
        """Return a bucket, a new one if it is not known, with its present limit. The call counts as a use."""
        buckets = self._buckets
        bucket = buckets.get(key)
        if bucket is None:
            self._make_room(now_s)
            bucket = buckets[key] = self._new_bucket(limit)
        else:
            buckets.move_to_end(key)
            bucket.limit = limit
        bucket.used_s = now_s
        return bucket

    def _make_room(self, now_s: float) -> None:
        buckets = self._buckets
        while buckets:
            oldest = next(iter(buckets))
            if len(buckets) < self._buckets_max and now_s - buckets[oldest].used_s < _KEPT_S:
                break
            del buckets[oldest]
