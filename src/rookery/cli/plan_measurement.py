"""`rookery plan --measure`: what one partition of this cluster takes and gives, by a short run of `rookery perf`."""

from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from rookery.cli.client_configs import consumer_config, producer_config
from rookery.cli.errors import CommandError
from rookery.cli.perf_loads import Measured, consume_topic, produce_records, values_of
from rookery.cli.session import with_admin

if TYPE_CHECKING:
    from rookery.client.admin import Admin

MEASURED_BYTES = 64_000_000


class MeasuredRates(NamedTuple):
    """Bytes per second of one producer to one partition, and of one consumer from it."""

    produced_bytes_s: float
    consumed_bytes_s: float


def measure(bootstrap_server: str, timeout_s: float, *, replication: int, record_bytes: int) -> MeasuredRates:
    """Write and read a topic of one partition with `replication` replicas, which is deleted afterwards."""
    topic = f"rookery-plan-{uuid4().hex[:12]}"
    _create(bootstrap_server, timeout_s, topic, replication)
    try:
        records = max(1, MEASURED_BYTES // record_bytes)
        values = values_of(record_bytes, None)
        produced = produce_records(producer_config(bootstrap_server, timeout_s, None), topic, values, records, None)
        consumed = consume_topic(consumer_config(bootstrap_server, timeout_s, None), topic, None, columns=False)
    finally:
        _delete(bootstrap_server, timeout_s, topic)
    return MeasuredRates(_bytes_s(produced), _bytes_s(consumed))


def _create(bootstrap_server: str, timeout_s: float, topic: str, replication: int) -> None:
    from rookery.client.admin import NewTopic

    async def create(admin: "Admin") -> None:
        (outcome,) = await admin.create_topics([NewTopic(topic, 1, replication)])
        outcome.check()

    with_admin(bootstrap_server, timeout_s, create)


def _delete(bootstrap_server: str, timeout_s: float, topic: str) -> None:
    async def delete(admin: "Admin") -> None:
        (outcome,) = await admin.delete_topics([topic])
        outcome.check()

    with_admin(bootstrap_server, timeout_s, delete)


def _bytes_s(measured: Measured) -> float:
    if not measured.elapsed_s:
        raise CommandError("the run was too short to measure")
    return measured.size_bytes / measured.elapsed_s
