"""Creates the parts of a producer from its settings. `base` is the only caller."""

from collections.abc import Callable

from rookery.client import arrow
from rookery.client.cluster import Cluster
from rookery.client.metrics.producer import ProducerMetrics
from rookery.client.produce.accumulator import Accumulator, AccumulatorLimits
from rookery.client.produce.receipts import RecordFuture
from rookery.client.produce.transaction_calls import Transactions
from rookery.client.settings.producer import ProducerSettings
from rookery.telemetry.sensors import Windows

# The rows of a table are all present, so batches of them are larger, unless batch.size is set.
_ARROW_BATCH_BYTES = 512 * 1024
# Several of them fit into the buffer: otherwise each would wait for the memory of the one before it.
_ARROW_BATCHES_IN_BUFFER = 4


def make_limits(settings: ProducerSettings) -> AccumulatorLimits:
    return AccumulatorLimits(
        # A batch that exceeds the size of a request could never be sent.
        batch_size_bytes=min(settings.batch_size, settings.max_request_size),
        buffer_size_bytes=settings.buffer_memory,
        request_size_bytes_max=settings.max_request_size,
        linger_s=settings.linger_ms / 1000,
        delivery_timeout_s=settings.delivery_timeout_ms / 1000,
        in_flight_max=settings.max_in_flight_requests_per_connection,
        idempotent=settings.enable_idempotence,
        transactional=settings.transactional_id is not None,
    )


def make_metrics(settings: ProducerSettings, clock_s: Callable[[], float]) -> ProducerMetrics:
    common = settings.common
    windows = Windows(common.metrics_num_samples, common.metrics_sample_window_ms / 1000)
    return ProducerMetrics(clock_s, common.client_id, windows=windows)


def make_transactions(
    cluster: Cluster, settings: ProducerSettings, accumulator: Accumulator[RecordFuture]
) -> Transactions | None:
    if settings.transactional_id is None:
        return None
    return Transactions(
        cluster,
        settings.transactional_id,
        transaction_timeout_ms=settings.transaction_timeout_ms,
        max_block_ms=settings.max_block_ms,
        delivery_timeout_ms=settings.delivery_timeout_ms,
        on_identity_changed=accumulator.set_identity,
    )


def make_split_settings(settings: ProducerSettings, *, is_batch_size_given: bool) -> arrow.SplitSettings:
    batch_size = settings.batch_size if is_batch_size_given else max(settings.batch_size, _ARROW_BATCH_BYTES)
    return arrow.SplitSettings(
        batch_size=min(batch_size, settings.buffer_memory // _ARROW_BATCHES_IN_BUFFER),
        max_request_size=settings.max_request_size,
        codec=settings.compression_codec,
        compression_level=settings.compression_level,
        partitioner_ignore_keys=settings.partitioner_ignore_keys,
    )
