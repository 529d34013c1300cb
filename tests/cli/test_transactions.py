"""`rookery transactions` against a running broker.

The broker does not verify that a batch belongs to a transaction of its coordinator, so that a test can leave a
transaction hanging, as brokers before KIP-890 could.
"""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import confluent_kafka
import pytest

from rookery.base.clock import SystemClock
from rookery.cli.transaction_tables import duration_text
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.records.record import Record, build_batch
from tests.cli.test_end_to_end import rookery
from tests.support.broker import BrokerProcess, start_broker
from tests.support.waiting import expect
from tests.support.wire import WireClient

HOUR_MS = 3_600_000
# The newest version in which clients themselves add partitions to transactions.
CLASSIC_PRODUCE = 11


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("broker") / "data"
    settings = ("transaction.state.log.num.partitions=3", "transaction.partition.verification.enable=false")
    with start_broker(data, *settings) as running:
        yield running


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions; it and transactional ids are named after the test."""
    name: str = request.node.originalname.removeprefix("test_")
    rookery(broker, "topics", "create", name, "--partitions", "2")
    return name


@contextmanager
def open_transaction(broker: BrokerProcess, topic: str, *partitions: int) -> Iterator[confluent_kafka.Producer]:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in partitions:
        producer.produce(topic, b"value", partition=partition)
    producer.flush(30)
    yield producer


def is_fenced(producer: confluent_kafka.Producer) -> bool:
    try:
        producer.commit_transaction(30)
    except confluent_kafka.KafkaException as error:
        fatal: bool = error.args[0].fatal()
        return fatal
    return False


def leave_hanging(broker: BrokerProcess, topic: str, *, age_ms: int = HOUR_MS) -> int:
    """Write a transactional batch to partition 0 that no coordinator has; return the producer id."""
    written = Record(0, SystemClock().now_ms() - age_ms, None, b"hanging")
    with WireClient(broker.address) as wire:
        found = wire.call(ApiKey.INIT_PRODUCER_ID, 2, transactional_id=None, transaction_timeout_ms=1000)
        batch = build_batch(
            [written], producer_id=found.producer_id, producer_epoch=0, base_sequence=0, transactional=True
        )
        partition = Message(index=0, records=bytes(batch))
        response = wire.call(
            ApiKey.PRODUCE,
            CLASSIC_PRODUCE,
            transactional_id=topic,
            acks=-1,
            timeout_ms=1000,
            topic_data=[Message(name=topic, partition_data=[partition])],
        )
        assert response.responses[0].partition_responses[0].error_code == 0
    producer_id: int = found.producer_id
    return producer_id


def json_rows(broker: BrokerProcess, *arguments: str) -> list[dict[str, Any]]:
    found = json.loads(rookery(broker, "transactions", *arguments, "--json").stdout)
    assert isinstance(found, list)
    return found


def listed(broker: BrokerProcess, *arguments: str) -> set[str]:
    return {row["transactional_id"] for row in json_rows(broker, "list", *arguments)}


def committed(broker: BrokerProcess, topic: str) -> list[bytes | None]:
    """Return the values that a read_committed consumer gets from partition 0, up to the last stable offset."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values: list[bytes | None] = []
    with closing(consumer):
        while True:
            message = consumer.poll(30)
            assert message is not None, f"nothing more after {values}"
            error = message.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                return values
            values.append(message.value())


def test_a_transaction_from_beginning_to_end(broker: BrokerProcess, topic: str) -> None:
    with open_transaction(broker, topic, 0, 1) as producer:
        (row,) = (row for row in json_rows(broker, "list") if row["transactional_id"] == topic)
        assert (row["state"], row["coordinator"]) == ("Ongoing", 1)
        (described,) = json_rows(broker, "describe", topic)
        assert (described["state"], described["producer_id"]) == ("Ongoing", row["producer_id"])
        assert described["partitions"] == {topic: [0, 1]}
        assert described["duration_ms"] >= 0
        producers = json_rows(broker, "describe-producers", "--topic", topic)
        assert [(p["partition"], p["producer_id"], p["transaction_start"]) for p in producers] == [
            (0, row["producer_id"], 0),
            (1, row["producer_id"], 0),
        ]
        producer.commit_transaction(30)
    # The markers may not be written yet.
    expect(lambda: json_rows(broker, "describe", topic)[0]["state"], "CompleteCommit")
    (described,) = json_rows(broker, "describe", topic)
    assert (described["partitions"], described["duration_ms"]) == ({}, None)
    (one,) = json_rows(broker, "describe-producers", "--topic", topic, "--partition", "1", "--broker-id", "1")
    assert (one["partition"], one["transaction_start"], one["coordinator_epoch"]) == (1, None, 0)


def test_list_filters(broker: BrokerProcess, topic: str) -> None:
    with open_transaction(broker, topic, 0) as producer:
        producer_id = next(r["producer_id"] for r in json_rows(broker, "list") if r["transactional_id"] == topic)
        assert topic in listed(broker, "--state", "ongoing")
        assert topic not in listed(broker, "--state", "empty", "--state", "complete-commit")
        assert listed(broker, "--producer-id", str(producer_id)) == {topic}
        assert topic not in listed(broker, "--producer-id", "123456")
        assert topic in listed(broker, "--running-longer-than-ms", "0")
        assert topic not in listed(broker, "--running-longer-than-ms", str(HOUR_MS))
        assert listed(broker, "--id-pattern", "list_f.*s") == {topic}
        assert topic not in listed(broker, "--id-pattern", "list_f")
        assert "REGULAR_EXPRESSION" in rookery(broker, "transactions", "list", "--id-pattern", "(", exit_code=1).stderr
        producer.abort_transaction(30)
    assert topic not in listed(broker, "--state", "ongoing")


def test_tables(broker: BrokerProcess, topic: str) -> None:
    with open_transaction(broker, topic, 0, 1) as producer:
        lines = rookery(broker, "transactions", "list").stdout.splitlines()
        assert lines[0].split("  ")[0] == "TRANSACTIONAL ID"
        assert any(line.split()[0] == topic and line.endswith("Ongoing") for line in lines)
        (_, row) = rookery(broker, "transactions", "describe", topic).stdout.splitlines()
        assert row.startswith(f"{topic} ")
        assert row.endswith(f"{topic}:0,1")
        (_, first, _) = rookery(broker, "transactions", "describe-producers", "-t", topic).stdout.splitlines()
        assert first.split()[0] == "0"
        producer.commit_transaction(30)


def test_unknown_ids_topics_and_brokers(broker: BrokerProcess) -> None:
    assert "no such transactional id" in rookery(broker, "transactions", "describe", "absent", exit_code=1).stderr
    assert (
        "no such transactional id"
        in rookery(broker, "transactions", "abort", "--transactional-id", "absent", "--yes", exit_code=1).stderr
    )
    assert "absent" not in listed(broker), "describing it did not create it"
    missing = rookery(broker, "transactions", "describe-producers", "--topic", "missing", exit_code=1)
    assert "no such topic" in missing.stderr
    assert "no broker 9" in rookery(broker, "transactions", "find-hanging", "--broker-id", "9", exit_code=1).stderr


def test_aborting_by_transactional_id(broker: BrokerProcess, topic: str) -> None:
    with open_transaction(broker, topic, 0) as producer:
        rookery(broker, "produce", topic, "--partition", "0", stdin="after\n")
        assert committed(broker, topic) == [], "readers stop before it"
        arguments = ("transactions", "abort", "--transactional-id", topic)
        assert "add --yes" in rookery(broker, *arguments, exit_code=1).stderr
        aborted = rookery(broker, *arguments, "--yes")
        assert aborted.stdout.startswith(f"fenced {topic} (producer id ")
        assert "its transaction is aborted" in aborted.stdout
        (described,) = json_rows(broker, "describe", topic)
        assert (described["state"], described["partitions"], described["timeout_ms"]) == ("Empty", {}, 60_000)
        assert is_fenced(producer)
    assert committed(broker, topic) == [b"after"]
    assert "no open transaction" in rookery(broker, *arguments, "--yes").stdout


def test_hanging_transactions_are_found_and_aborted(broker: BrokerProcess, topic: str) -> None:
    rookery(broker, "produce", topic, "--partition", "0", stdin="before\n")
    producer_id = leave_hanging(broker, topic)
    rookery(broker, "produce", topic, "--partition", "0", stdin="after\n")
    assert committed(broker, topic) == [b"before"], "readers stop before it"
    assert json_rows(broker, "find-hanging", "--topic", topic, "--max-transaction-timeout", "120") == []
    assert json_rows(broker, "find-hanging", "--topic", topic, "--partition", "1") == []
    (found,) = json_rows(broker, "find-hanging", "--broker-id", "1", "--topic", topic)
    assert (found["topic"], found["partition"], found["producer_id"]) == (topic, 0, producer_id)
    assert (found["transaction_start"], found["coordinator_epoch"]) == (1, None)
    assert found["duration_ms"] >= HOUR_MS
    assert topic in rookery(broker, "transactions", "find-hanging").stdout

    arguments = ("abort", "--topic", topic, "--partition", "0", "--yes", "--start-offset")
    assert (
        "the open transactions there begin at 1" in rookery(broker, "transactions", *arguments, "0", exit_code=1).stderr
    )
    aborted = rookery(broker, "transactions", *arguments, "1")
    assert aborted.stdout == f"aborted on {topic}-0 (producer id {producer_id}, epoch 0)\n"
    assert committed(broker, topic) == [b"before", b"after"]
    assert json_rows(broker, "find-hanging", "--topic", topic) == []


def test_aborting_by_producer(broker: BrokerProcess, topic: str) -> None:
    producer_id = leave_hanging(broker, topic)
    rookery(broker, "produce", topic, "--partition", "0", stdin="after\n")
    arguments = ("--topic", topic, "--partition", "0", "--producer-id", str(producer_id), "--coordinator-epoch", "-1")
    rookery(broker, "transactions", "abort", *arguments, "--producer-epoch", "0", "--yes")
    assert committed(broker, topic) == [b"after"]
    refused = rookery(broker, "transactions", "abort", *arguments, "--producer-epoch", "0", "-y", "--timeout", "30")
    assert refused.stdout.startswith("aborted on"), "a repeated marker is harmless"


def test_a_transaction_of_a_coordinator_does_not_hang(broker: BrokerProcess, topic: str) -> None:
    with open_transaction(broker, topic, 0) as producer:
        arguments = ("--topic", topic, "--max-transaction-timeout", "0")
        assert json_rows(broker, "find-hanging", *arguments) == []
        producer.commit_transaction(30)


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0s"),
        (1500, "1.5s"),
        (59_999, "59.999s"),
        (60_000, "1m 00s"),
        (900_000, "15m 00s"),
        (3_600_000, "1h 00m"),
        (86_399_000, "23h 59m"),
        (90_000_000, "1d 01h"),
    ],
)
def test_durations(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text
