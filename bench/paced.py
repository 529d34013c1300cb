"""A producer that sends at scheduled times, and a consumer that measures how late the records arrive.

Record number n is due n / rate seconds after the start, even if earlier ones were late. It contains this time of the
monotonic clock, which both processes use. Latency is the time from then until the consumer's poll returns the record.
So a stall counts for every record that was due during it, not only for the first one (coordinated omission), and the
producer's delays count too.

Settings: linger.ms 0 and acks 1; at most 5 requests in flight and Nagle's algorithm off, as in the Java client (with
librdkafka's default, a million in flight, every record would be a separate request however slow the broker is); the
consumer's fetches wait at most 100 ms for one byte. The other settings are librdkafka's defaults.
"""

import ctypes
import struct
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from bench.load import Measurements, await_go, run_action
from bench.payload import event_text

PRODUCER_SETTINGS: dict[str, str | int | float | bool] = {
    "linger.ms": 0,
    "acks": 1,
    "max.in.flight": 5,
    "socket.nagle.disable": True,
    "delivery.report.only.error": True,
}
CONSUMER_SETTINGS: dict[str, str | int | float | bool] = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 100,
    "fetch.min.bytes": 1,
    "socket.nagle.disable": True,
}
# How late the last record may be sent, and the shortest run for which this is checked: shorter runs only test the
# benchmark, and one stall of the machine is longer than their tolerance.
RATE_TOLERANCE = 0.01
_JUDGED_FROM_S = 1.0
_DUE = struct.Struct("<q")
_START_DELAY_NS = 200_000_000
_CONNECT_S = 1.0
_STALL_S = 30.0
_FLUSH_TIMEOUT_S = 30.0
_PR_SET_TIMERSLACK = 29


class PaceError(Exception):
    """Records were sent too late, or were lost."""


def produce(*, bootstrap: str, topic: str, record_bytes: int, rate: int, records: int) -> Measurements:
    """Send every record when it is due, or as soon as possible after that."""
    wake_punctually()
    problems: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER_SETTINGS})
    producer.list_topics(topic, timeout=_STALL_S)
    rest = event_text(record_bytes - _DUE.size)

    def note(error: KafkaError | None, _: Any) -> None:
        if error is not None:
            problems.append(error)

    await_go()
    started_ns = time.monotonic_ns() + _START_DELAY_NS
    for due_ns in due_times(started_ns, records, rate):
        producer.produce(topic, _DUE.pack(due_ns) + rest, partition=0, on_delivery=note)
        producer.poll(0)
    elapsed_s = (time.monotonic_ns() - started_ns) / 1e9
    if producer.flush(_FLUSH_TIMEOUT_S) or problems:
        raise PaceError(f"records were not delivered: {problems[:1]}")
    planned_s = (records - 1) / rate
    if planned_s >= _JUDGED_FROM_S and elapsed_s > planned_s * (1 + RATE_TOLERANCE):
        raise PaceError(f"{records} records took {elapsed_s:.2f} s to send instead of {planned_s:.2f} s")
    return {"elapsed_s": elapsed_s, "records": records}


def consume(*, bootstrap: str, topic: str, records: int, skipped: int) -> Measurements:
    """Return percentiles of the latency in milliseconds, without the first `skipped` records."""
    wake_punctually()
    consumer = Consumer({"bootstrap.servers": bootstrap, **CONSUMER_SETTINGS})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    # The topic is still empty; this connects and starts the long polls.
    consumer.poll(_CONNECT_S)
    await_go()
    late_ns = []
    for number in range(records):
        message = consumer.poll(_STALL_S)
        now_ns = time.monotonic_ns()
        if message is None:
            raise PaceError(f"no record was returned for {_STALL_S} s after {number} of {records} records")
        error = message.error()
        if error is not None:
            raise KafkaException(error)
        value = message.value()
        assert value is not None
        late_ns.append(now_ns - _DUE.unpack_from(value)[0])
    consumer.close()
    return percentiles(late_ns[skipped:])


def due_times(started_ns: int, count: int, rate: int) -> Iterator[int]:
    """Yield the scheduled times of the monotonic clock, each when it is reached, or immediately if it has passed."""
    for number in range(count):
        due_ns = started_ns + number * 1_000_000_000 // rate
        early_ns = due_ns - time.monotonic_ns()
        if early_ns > 0:
            time.sleep(early_ns / 1e9)
        yield due_ns


def percentiles(late_ns: list[int]) -> Measurements:
    ordered = sorted(late_ns)
    last = len(ordered) - 1
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "p99.9_ms": 0.999, "max_ms": 1.0}
    return {name: ordered[round(share * last)] / 1e6 for name, share in shares.items()}


def wake_punctually() -> None:
    """Disable the timer slack: Linux may wake a sleeper 50 us late, which would be half of the measured latency."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


if __name__ == "__main__":
    run_action({"produce": produce, "consume": consume})
