"""The quotas of clients: bytes produced and fetched, time of requests, mutations of the cluster.

`ClientQuotas` has one `QuotaTable` for each kind, and follows the image (`configure`). Callers pass user, client id and
time.
"""

from collections.abc import Callable, Mapping
from typing import Final, Generic

from rookery.base.bounds import QUOTA_BUCKETS_MAX
from rookery.base.quota_entities import QuotaEntity
from rookery.quotas.buckets import DEFAULT_WINDOWS, RateBucket, TokenBucket
from rookery.quotas.limits import Limits
from rookery.quotas.table import BucketT, BucketTable
from rookery.telemetry.sensors import Windows

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"


class QuotaTable(Generic[BucketT]):
    """The limits and buckets of one kind of quota."""

    def __init__(self, new_bucket: Callable[[float], BucketT], *, buckets_max: int = QUOTA_BUCKETS_MAX) -> None:
        self._limits = Limits({})
        self._buckets = BucketTable(new_bucket, buckets_max=buckets_max)
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
        return None if found is None else self._buckets.get(*found, now_s)


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
