"""The scenes of the tour. A scene does one thing through clients, checks it, and returns a line about the result."""

import threading
import time
from collections.abc import Callable

import confluent_kafka
from confluent_kafka.admin import OffsetSpec

from demo.broker import Broker
from demo.tour import clients, columns, customers
from demo.tour.members import AioKafkaMember, ConfluentMember, KafkaPythonMember, Member
from demo.tour.transfers import ACCOUNTS, Bank, read_transfers

RECORDS = 10_000
KILLS = 3
GROUP_PARTITIONS = 6
SALES = 500_000
SALES_PARTITIONS = 3
CUSTOMERS = 500
TIMEOUT_S = 30


class SceneError(Exception):
    """An expectation of a scene was not met."""


def expect(condition: bool, expectation: str) -> None:
    if not condition:
        raise SceneError(expectation)


def wait_until(condition: Callable[[], bool], expectation: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        expect(time.monotonic() < deadline, expectation)
        time.sleep(0.05)


def start(broker: Broker) -> str:
    """Start a broker with its schema registry"""
    seconds = broker.start()
    return f"ready on {broker.address} after {seconds:.1f} s, in an empty directory"


def produce_and_consume(broker: Broker) -> str:
    """Three clients write, each with a different codec, and each reads what another one wrote"""
    clients.create_topic(broker.address, "orders", 3)
    values = [b"order %d " % index + b"-" * 80 for index in range(RECORDS)]
    clients.produce_with_confluent(broker.address, "orders", values, "zstd")
    clients.produce_with_aiokafka(broker.address, "orders", values, "lz4")
    clients.produce_with_kafka_python(broker.address, "orders", values, "gzip")
    read = {
        "aiokafka": clients.read_with_aiokafka(broker.address, "orders", 0, RECORDS),
        "kafka-python": clients.read_with_kafka_python(broker.address, "orders", 1, RECORDS),
        "confluent-kafka": [value for _, value in clients.read_with_confluent(broker.address, "orders", 2)],
    }
    for name, found in read.items():
        expect(found == values, f"{name} reads what the other client wrote")
    return f"{3 * RECORDS:,} records: confluent-kafka zstd, aiokafka lz4, kafka-python gzip; all read alike"


class SteadyProducer:
    """An idempotent producer that keeps writing while its broker is killed."""

    def __init__(self, address: str) -> None:
        self.acknowledged: dict[bytes, int] = {}
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        index = 0
        while not self._stop.wait(0.0005):
            self._producer.produce("survivors", b"%d" % index, partition=0, on_delivery=self._delivered)
            self._producer.poll(0)
            index += 1
        if self._producer.flush(TIMEOUT_S):
            self.failures.append("some records were never acknowledged")

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged[message.value() or b""] = message.offset() or 0

    def wait_for_more(self, count: int) -> None:
        goal = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= goal, "the producer makes progress")

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def kill_and_restart(broker: Broker) -> str:
    """Kill the broker with SIGKILL while a producer writes, and start it again"""
    clients.create_topic(broker.address, "survivors")
    producer = SteadyProducer(broker.address)
    try:
        for _ in range(KILLS):
            producer.wait_for_more(500)
            broker.kill()
            broker.start()
    finally:
        producer.stop()
    expect(not producer.failures, f"no delivery fails, not: {producer.failures[:1]}")
    stored = [(value, offset) for offset, value in clients.read_with_confluent(broker.address, "survivors")]
    expect(dict(stored) == producer.acknowledged, "every acknowledged record is at its offset")
    indexes = [int(value) for value, _ in stored]
    expect(indexes == list(range(len(indexes))), "the records are in order, and none is duplicated")
    return f"{KILLS} kills; {len(stored):,} acknowledged records are in order, none lost, none duplicated"


def find_by_time(broker: Broker) -> str:
    """Look up an offset by timestamp"""
    moment_ms = 1_700_000_000_000
    clients.create_topic(broker.address, "history", retention_ms="-1")
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address})
    for index in range(1_000):
        producer.produce("history", b"%d" % index, partition=0, timestamp=moment_ms + index * 60_000)
    expect(producer.flush(TIMEOUT_S) == 0, "the records are delivered")
    found = clients.list_offset(broker.address, "history", OffsetSpec.for_timestamp(moment_ms + 700 * 60_000 - 1))
    expect(found == 700, "the offset is exact to the record")
    latest = clients.list_offset(broker.address, "history", OffsetSpec.max_timestamp())
    expect(latest == 999, "the newest timestamp is found")
    return "minute 700: offset 700, exact to the record inside its batch"


def compact(broker: Broker) -> str:
    """Compact a topic to the newest value of each key"""
    clients.create_topic(
        broker.address, "prices", cleanup_policy="compact", segment_ms="500", min_cleanable_dirty_ratio="0.01"
    )
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address})
    for index in range(5_000):
        producer.produce("prices", b"%d" % index, b"article %d" % (index % 10), partition=0)
    expect(producer.flush(TIMEOUT_S) == 0, "the records are delivered")

    def remaining() -> int:
        # The active segment is never cleaned: write a record from time to time, so that it is rolled.
        producer.produce("prices", b"last", b"the end", partition=0)
        producer.flush(TIMEOUT_S)
        return sum(value != b"last" for _, value in clients.read_with_confluent(broker.address, "prices"))

    wait_until(lambda: remaining() == 10, "the cleaner keeps one record for each key")
    return "5,000 updates of 10 articles became 10 records, with their old offsets"


def expire(broker: Broker) -> str:
    """Delete old records by retention"""
    clients.create_topic(broker.address, "events", retention_ms="1000", segment_ms="500")
    clients.produce_with_confluent(broker.address, "events", [b"soon gone"] * 1_000, "none")
    wait_until(
        lambda: clients.list_offset(broker.address, "events", OffsetSpec.earliest()) == 1_000,
        "records older than a second are deleted",
    )
    return "1,000 records, kept for a second: the log now starts at offset 1,000"


class Ticker:
    """A producer that writes continuously to all partitions of a topic."""

    def __init__(self, address: str, topic: str) -> None:
        self.values: list[bytes] = []
        self._topic = topic
        self._stop = threading.Event()
        self._producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 5, "log_level": 0})
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.001):
            value = b"tick %d" % len(self.values)
            self._producer.produce(self._topic, value, partition=len(self.values) % GROUP_PARTITIONS)
            self.values.append(value)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        expect(self._producer.flush(TIMEOUT_S) == 0, "the records are delivered")


def shared_by(members: list[Member]) -> str:
    """Wait until the members share all partitions evenly; return the assignments as text."""

    def is_even() -> bool:
        for member in members:
            if member.failure is not None:
                raise member.failure
        sizes = [len(member.assigned) for member in members]
        assigned = sorted(partition for member in members for partition in member.assigned)
        return assigned == list(range(GROUP_PARTITIONS)) and max(sizes) - min(sizes) <= 1

    wait_until(is_even, "the members share the partitions evenly, and each partition has one member")
    return " | ".join(f"{member.library} {','.join(map(str, member.assigned))}" for member in members)


def rebalance(broker: Broker) -> str:
    """Three clients in one group: two share, a third joins, the first leaves, while records keep coming"""
    clients.create_topic(broker.address, "ticks", GROUP_PARTITIONS)
    ticker = Ticker(broker.address, "ticks")
    first, second = ConfluentMember(broker.address, "ticks"), KafkaPythonMember(broker.address, "ticks")
    members: list[Member] = [first, second]
    try:
        steps = [shared_by(members)]
        third = AioKafkaMember(broker.address, "ticks")
        members.append(third)
        steps.append(shared_by(members))
        first.stop()
        steps.append(shared_by([second, third]))
        ticker.stop()
        wait_until(lambda: sum(len(member.values) for member in members) >= len(ticker.values), "every record is read")
    finally:
        ticker.stop()
        for member in members:
            member.stop()
    read = sorted(value for member in members for value in member.values)
    expect(read == sorted(ticker.values), "every record is read by one member, and by one only")
    return f"{'; then '.join(steps)}. {len(read):,} records, each read exactly once in the group"


def transact(broker: Broker) -> str:
    """Money moves in transactions, some aborted, while the broker is killed: readers see whole transfers"""
    clients.create_topic(broker.address, "transfers", ACCOUNTS)
    bank = Bank(broker.address, "transfers")
    try:
        for kills in range(1, KILLS):
            wait_until(lambda: len(bank.committed) >= 20 * kills, "transfers are committed")  # noqa: B023
            broker.kill()
            broker.start()
        wait_until(lambda: len(bank.committed) >= 20 * KILLS, "transfers are committed after the last kill")
    finally:
        bank.stop()
    if bank.failure is not None:
        raise bank.failure
    seen = read_transfers(broker.address, "transfers", "read_committed")
    everything = read_transfers(broker.address, "transfers", "read_uncommitted")
    expect(bank.committed <= seen.keys(), "every committed transfer is seen")
    expect(not bank.aborted & seen.keys(), "no aborted transfer is seen")
    expect(all(len(amounts) == 2 and not sum(amounts) for amounts in seen.values()), "every transfer is complete")
    return (
        f"{len(seen)} transfers over {ACCOUNTS} partitions with {KILLS - 1} x kill -9: each seen once and complete, "
        f"the balance is 0; {len(everything.keys() - seen.keys())} aborted ones are in the log, and hidden"
    )


def pass_through_columns(broker: Broker) -> str:
    """A table goes through a topic as Arrow columns, with Rookery's own client"""
    clients.create_topic(broker.address, "sales", SALES_PARTITIONS)
    sales = columns.table_of_sales(SALES)
    started = time.monotonic()
    columns.send(broker.address, "sales", sales)
    sent = time.monotonic()
    found = columns.read(broker.address, "sales", SALES_PARTITIONS, SALES)
    elapsed = time.monotonic() - sent
    expect(found.num_rows == SALES, "every row is read once")
    expect(columns.turnover(found) == columns.turnover(sales), "every shop's turnover is the same")
    spread = len(set(zip(found.column("key").to_pylist(), found.column("partition").to_pylist(), strict=True)))
    expect(spread == len(columns.turnover(sales)), "a shop's records are in one partition")
    return (
        f"{SALES:,} rows in {sent - started:.1f} s and out in {elapsed:.1f} s, including the start of the libraries; "
        f"the turnover of {spread:,} shops agrees"
    )


def stop(broker: Broker) -> str:
    """Stop the broker"""
    started = time.monotonic()
    expect(broker.stop() == 0, "the broker stops cleanly")
    return f"SIGTERM, exit code 0 after {time.monotonic() - started:.1f} s"


def evolve_schemas(broker: Broker) -> str:
    """Customers get e-mail instead of fax: old and new programs work together through the schema registry"""
    target = (broker.address, broker.registry, "customers")
    clients.create_topic(broker.address, "customers", confluent_value_schema_validation="true")
    customers.write_old(*target, CUSTOMERS)
    customers.write_new(*target, CUSTOMERS)
    for schema, field, absent in ((customers.OLD, "faxNumber", "email"), (customers.NEW, "email", "faxNumber")):
        found = customers.read(*target, schema, 2 * CUSTOMERS)
        expect(sorted(each["id"] for each in found) == list(range(2 * CUSTOMERS)), "each customer is read once")
        expect(sum(each[field] is not None for each in found) == CUSTOMERS, f"half of them have a value in {field}")
        expect(not any(absent in each for each in found), f"a reader without {absent} does not see it")
    expect("incompatible" in customers.refusal(broker.registry, "customers"), "a schema that breaks readers is refused")
    refused = customers.write_without_schema(broker.address, "customers")
    expect(refused == "INVALID_RECORD", "the broker refuses a record without a schema")
    return (
        f"{2 * CUSTOMERS:,} customers by Confluent's serializer and ours, read by old and new readers; an incompatible "
        "schema and a record without one were refused"
    )


SCENES = (
    start,
    produce_and_consume,
    kill_and_restart,
    rebalance,
    transact,
    pass_through_columns,
    evolve_schemas,
    find_by_time,
    compact,
    expire,
    stop,
)
