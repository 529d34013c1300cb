"""What the tour shows. A scene does one thing through clients, checks it, and says in a line what happened."""

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
PATIENCE_S = 30


class SceneError(Exception):
    """What a scene promised did not happen."""


def expect(condition: bool, promise: str) -> None:
    if not condition:
        raise SceneError(promise)


def wait_until(condition: Callable[[], bool], promise: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        expect(time.monotonic() < deadline, promise)
        time.sleep(0.05)


def start(broker: Broker) -> str:
    """Start a broker with its schema registry"""
    seconds = broker.start()
    return f"serving on {broker.address} after {seconds:.1f} s, in an empty directory"


def produce_and_consume(broker: Broker) -> str:
    """Three clients write, each with another codec, and each reads what another wrote"""
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


class Survivors:
    """An idempotent producer that keeps on writing while its broker dies under it."""

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
        if self._producer.flush(PATIENCE_S):
            self.failures.append("some records were never acknowledged")

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged[message.value() or b""] = message.offset() or 0

    def wait_for_more(self, count: int) -> None:
        goal = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= goal, "the producer gets on")

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def kill_and_restart(broker: Broker) -> str:
    """Kill the broker with SIGKILL while a producer writes, and start it again"""
    clients.create_topic(broker.address, "survivors")
    producer = Survivors(broker.address)
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
    expect(indexes == list(range(len(indexes))), "the records are in order, and none is there twice")
    return f"{KILLS} kills; {len(stored):,} acknowledged records are there, in order, none lost, none twice"


def find_by_time(broker: Broker) -> str:
    """Ask for the offset of a moment"""
    moment_ms = 1_700_000_000_000
    clients.create_topic(broker.address, "history", retention_ms="-1")
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address})
    for index in range(1_000):
        producer.produce("history", b"%d" % index, partition=0, timestamp=moment_ms + index * 60_000)
    expect(producer.flush(PATIENCE_S) == 0, "the records are delivered")
    found = clients.list_offset(broker.address, "history", OffsetSpec.for_timestamp(moment_ms + 700 * 60_000 - 1))
    expect(found == 700, "the offset is exact to the record")
    latest = clients.list_offset(broker.address, "history", OffsetSpec.max_timestamp())
    expect(latest == 999, "the newest timestamp is found")
    return "700 minutes in: offset 700, exact to the record inside its batch"


def compact(broker: Broker) -> str:
    """Let the cleaner keep the newest value of each key"""
    clients.create_topic(
        broker.address, "prices", cleanup_policy="compact", segment_ms="500", min_cleanable_dirty_ratio="0.01"
    )
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address})
    for index in range(5_000):
        producer.produce("prices", b"%d" % index, b"article %d" % (index % 10), partition=0)
    expect(producer.flush(PATIENCE_S) == 0, "the records are delivered")

    def remaining() -> int:
        # The active segment is never cleaned; a record every now and then rolls it.
        producer.produce("prices", b"last", b"the end", partition=0)
        producer.flush(PATIENCE_S)
        return sum(value != b"last" for _, value in clients.read_with_confluent(broker.address, "prices"))

    wait_until(lambda: remaining() == 10, "the cleaner keeps one record for each key")
    return "5,000 updates of 10 articles became 10 records, with their old offsets"


def expire(broker: Broker) -> str:
    """Let retention delete what is old"""
    clients.create_topic(broker.address, "events", retention_ms="1000", segment_ms="500")
    clients.produce_with_confluent(broker.address, "events", [b"soon gone"] * 1_000, "none")
    wait_until(
        lambda: clients.list_offset(broker.address, "events", OffsetSpec.earliest()) == 1_000,
        "records older than a second are deleted",
    )
    return "1,000 records, kept for a second: the log now starts at offset 1,000"


class Ticker:
    """A producer that writes all the time, to all partitions of a topic."""

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
        expect(self._producer.flush(PATIENCE_S) == 0, "the records are delivered")


def shared_by(members: list[Member]) -> str:
    """Wait until the members share all partitions fairly; who has which."""

    def is_fair() -> bool:
        for member in members:
            if member.failure is not None:
                raise member.failure
        sizes = [len(member.assigned) for member in members]
        every = sorted(partition for member in members for partition in member.assigned)
        return every == list(range(GROUP_PARTITIONS)) and max(sizes) - min(sizes) <= 1

    wait_until(is_fair, "the members share the partitions fairly, each partition with one of them")
    return " | ".join(f"{member.library} {','.join(map(str, member.assigned))}" for member in members)


def rebalance(broker: Broker) -> str:
    """Three clients in one group: two share, a third joins, the first leaves, while records keep coming"""
    clients.create_topic(broker.address, "ticks", GROUP_PARTITIONS)
    ticker = Ticker(broker.address, "ticks")
    first, second = ConfluentMember(broker.address, "ticks"), KafkaPythonMember(broker.address, "ticks")
    everyone: list[Member] = [first, second]
    try:
        steps = [shared_by(everyone)]
        third = AioKafkaMember(broker.address, "ticks")
        everyone.append(third)
        steps.append(shared_by(everyone))
        first.stop()
        steps.append(shared_by([second, third]))
        ticker.stop()
        wait_until(lambda: sum(len(member.values) for member in everyone) >= len(ticker.values), "every record is read")
    finally:
        ticker.stop()
        for member in everyone:
            member.stop()
    read = sorted(value for member in everyone for value in member.values)
    expect(read == sorted(ticker.values), "every record is read by one member, and by one only")
    return f"{'; then '.join(steps)}. {len(read):,} records, each read exactly once in the group"


def transact(broker: Broker) -> str:
    """Money moves in transactions, some given up, while the broker is killed: readers see whole transfers"""
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
    expect(not bank.aborted & seen.keys(), "no transfer is seen that was given up")
    expect(all(len(amounts) == 2 and not sum(amounts) for amounts in seen.values()), "no transfer is torn")
    return (
        f"{len(seen)} transfers over {ACCOUNTS} partitions with {KILLS - 1} x kill -9: each seen once and whole, the "
        f"balance is 0; {len(everything.keys() - seen.keys())} more are in the log, and hidden"
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
    expect(found.num_rows == SALES, "every row comes back, once")
    expect(columns.turnover(found) == columns.turnover(sales), "every shop's turnover is the same")
    spread = len(set(zip(found.column("key").to_pylist(), found.column("partition").to_pylist(), strict=True)))
    expect(spread == len(columns.turnover(sales)), "a shop's records are in one partition")
    return (
        f"{SALES:,} rows in {sent - started:.1f} s and out in {elapsed:.1f} s, the libraries' start included; "
        f"the turnover of {spread:,} shops agrees"
    )


def stop(broker: Broker) -> str:
    """Stop the broker"""
    started = time.monotonic()
    expect(broker.stop() == 0, "the broker stops cleanly")
    return f"SIGTERM, exit code 0 after {time.monotonic() - started:.1f} s"


def agree_on_schemas(broker: Broker) -> str:
    """Customers lose their fax numbers and get e-mail: old and new programs agree through the schema registry"""
    place = (broker.address, broker.registry, "customers")
    clients.create_topic(broker.address, "customers", confluent_value_schema_validation="true")
    customers.write_old(*place, CUSTOMERS)
    customers.write_new(*place, CUSTOMERS)
    for schema, field, absent in ((customers.OLD, "faxNumber", "email"), (customers.NEW, "email", "faxNumber")):
        found = customers.read(*place, schema, 2 * CUSTOMERS)
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
    agree_on_schemas,
    find_by_time,
    compact,
    expire,
    stop,
)
