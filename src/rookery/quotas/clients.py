"""The quotas of clients: bytes produced and fetched, time of requests, mutations of the cluster.

`ClientQuotas` has one `QuotaTable` for each kind, and follows the image (`configure`). Callers pass user, client id and
time. Clients choose their client ids, so that the buckets of a table are bounded: the one that was not used for longest
is forgotten, and so is each that was not used for an hour, as in Kafka.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, Generic, Protocol, TypeVar

from rookery.base.bounds import QUOTA_BUCKETS_MAX
from rookery.base.quota_entities import QuotaEntity
from rookery.quotas.buckets import DEFAULT_WINDOWS, RateBucket, TokenBucket
from rookery.quotas.limits import BucketKey, Limits
from rookery.telemetry.sensors import SECONDS_PER_HOUR, Windows

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"

_KEPT_S: Final = SECONDS_PER_HOUR


class Bucket(Protocol):
    limit: float
    used_s: float


BucketT = TypeVar("BucketT", bound=Bucket)


class QuotaTable(Generic[BucketT]):
    """The limits and buckets of one kind of quota."""

    def __init__(self, new_bucket: Callable[[float], BucketT], *, buckets_max: int = QUOTA_BUCKETS_MAX) -> None:
        self._new_bucket = new_bucket
        self._buckets_max = buckets_max
        self._limits = Limits({})
        # In the order of their last use.
        self._buckets: OrderedDict[BucketKey, BucketT] = OrderedDict()
        # Whether there is a limit at all.
        self.is_active = False

    def __len__(self) -> int:
        return len(self._buckets)

    def configure(self, limits: Mapping[QuotaEntity, float]) -> None:
        """Apply other limits. The buckets stay: what a client has used counts under its new limit, too."""
        self._limits = Limits(limits)
        self.is_active = bool(self._limits)

    def limit_of(self, user: str, client_id: str) -> float | None:
        found = self._limits.find(user, client_id)
        return None if found is None else found.value

    def find(self, user: str, client_id: str, now_s: float) -> BucketT | None:
        """Return the bucket of a client, None if it has no limit. The call counts as a use."""
        found = self._limits.find(user, client_id)
        if found is None:
            return None
        bucket = self._buckets.get(found.key)
        if bucket is None:
            bucket = self._add(found.key, self._new_bucket(found.value), now_s)
        else:
            self._buckets.move_to_end(found.key)
            bucket.limit = found.value
        bucket.used_s = now_s
        return bucket

    def _add(self, key: BucketKey, bucket: BucketT, now_s: float) -> BucketT:
        buckets = self._buckets
        while buckets:
            oldest = next(iter(buckets))
            if len(buckets) < self._buckets_max and now_s - buckets[oldest].used_s < _KEPT_S:
                break
            del buckets[oldest]
        buckets[key] = bucket
        return bucket


class ClientQuotas:
    """All quotas of clients on one node. `windows` are those of rates, `mutation_windows` those of mutations."""

    def __init__(self, windows: Windows = DEFAULT_WINDOWS, mutation_windows: Windows = DEFAULT_WINDOWS) -> None:
        self.produce = QuotaTable(lambda limit: RateBucket(limit, windows))
        self.fetch = QuotaTable(lambda limit: RateBucket(limit, windows))
        self.request = QuotaTable(lambda limit: RateBucket(limit, windows))
        self.mutation = QuotaTable(lambda limit: TokenBucket(limit, mutation_windows))
        # A fetch of more bytes, for each byte per second of its quota, would exceed the quota on its own.
        self.fetch_span_s = (windows.number - 1) * windows.length_s
        # The request quota throttles for at most one window at a time.
        self.request_throttle_max_ms = round(windows.length_s * 1000)
        # Whether there is a limit for users or client ids: if not, requests are not measured.
        self.is_active = False

    def configure(self, limits: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Apply the quotas of the image."""
        self.produce.configure(_of_key(limits, PRODUCER_BYTE_RATE))
        self.fetch.configure(_of_key(limits, CONSUMER_BYTE_RATE))
        self.request.configure(_of_key(limits, REQUEST_PERCENTAGE))
        self.mutation.configure(_of_key(limits, CONTROLLER_MUTATION_RATE))
        self.is_active = (
            self.produce.is_active or self.fetch.is_active or self.request.is_active or self.mutation.is_active
        )


def _of_key(limits: Mapping[QuotaEntity, Mapping[str, float]], key: str) -> dict[QuotaEntity, float]:
    return {entity: values[key] for entity, values in limits.items() if key in values}
