"""Transactions with Java's clients and tools: isolation levels, kafka-transactions, kafka-features, Kafka's dump tool.

The scenarios for all clients are in `test_transactions`.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.conformance.interfaces import READ_COMMITTED, READ_UNCOMMITTED, FencedError
from tests.conformance.java_driver import JavaDriver, JavaError, JavaSource, JavaTransactor, read_with_java
from tests.conformance.java_tools import run_tool, speak_classic
from tests.conformance.members import fill
from tests.conformance.players import create_topic
from tests.conformance.transactors import ConfluentTransactor, read_with_confluent
from tests.support.broker import start_broker
from tests.support.waiting import expect

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


def transactions(bootstrap: str, *arguments: str, fails: bool = False) -> str:
    return run_tool("transactions", "--bootstrap-server", bootstrap, *arguments, fails=fails)


def row(table: str, name: str) -> list[str]:
    """Return the cells of the line that contains the name."""
    (found,) = [line for line in table.splitlines() if re.search(rf"(^|\t){re.escape(name)}\s*\t", line)]
    return [cell.strip() for cell in found.split("\t")]


@pytest.fixture
def open_producer(java: JavaDriver, bootstrap: str, topic: str) -> Iterator[JavaTransactor]:
    """Run a producer that has written to both of the topic's partitions, in a transaction that is open."""
    create_topic(bootstrap, topic, 2)
    producer = JavaTransactor(java, bootstrap, topic)
    producer.begin()
    producer.send(topic, 0, b"value")
    producer.send(topic, 1, b"value")
    yield producer
    producer.close()


def test_isolation_levels(java: JavaDriver, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    producer = ConfluentTransactor(bootstrap, topic)
    for value, end in ((b"a", producer.commit), (b"b", producer.abort), (b"c", producer.commit)):
        producer.begin()
        producer.send(topic, 0, value)
        end()
    producer.begin()
    producer.send(topic, 0, b"open")
    expect(partial(read_with_java, java, bootstrap, topic, READ_COMMITTED), [b"a", b"c"])
    assert read_with_java(java, bootstrap, topic, READ_UNCOMMITTED) == [b"a", b"b", b"c", b"open"]
    producer.abort()


@pytest.mark.parametrize(("level", "values"), [(READ_COMMITTED, ["a", "c"]), (READ_UNCOMMITTED, ["a", "b", "c"])])
def test_the_console_consumer(java: JavaDriver, bootstrap: str, topic: str, level: str, values: list[str]) -> None:
    create_topic(bootstrap, topic)
    producer = JavaTransactor(java, bootstrap, topic)
    for value, end in (("a", producer.commit), ("b", producer.abort), ("c", producer.commit)):
        producer.begin()
        producer.send(topic, 0, value.encode())
        end()
    place = ("--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0", "--offset", "earliest")
    limits = ("--max-messages", str(len(values)), "--timeout-ms", "30000")
    assert run_tool("console-consumer", *place, *limits, "--isolation-level", level).splitlines()[:-1] == values


def test_transactions_are_listed_and_described(bootstrap: str, topic: str, open_producer: JavaTransactor) -> None:
    listed = transactions(bootstrap, "list", "--transactional-id-pattern", f"{topic}.*")
    coordinator, producer_id, state = row(listed, topic)[1:4]
    assert (coordinator, state) == ("1", "Ongoing")
    assert topic not in transactions(bootstrap, "list", "--duration-filter", "600000")
    assert "Failed to list transactions" in transactions(
        bootstrap, "list", "--transactional-id-pattern", "[", fails=True
    )
    described = row(transactions(bootstrap, "describe", "--transactional-id", topic), topic)
    assert described[:6] == ["1", topic, producer_id, "0", "Ongoing", "60000"]
    assert sorted(described[8].split(",")) == [f"{topic}-0", f"{topic}-1"]
    unknown = transactions(bootstrap, "describe", "--transactional-id", f"{topic}-no", fails=True)
    assert "could not be found" in unknown
    producers = transactions(bootstrap, "describe-producers", "--topic", topic, "--partition", "0")
    assert row(producers, producer_id)[:4] == [producer_id, "0", "-1", "0"]
    assert row(producers, producer_id)[5] == "0"


def test_a_transaction_is_terminated_by_force(bootstrap: str, topic: str, open_producer: JavaTransactor) -> None:
    transactions(bootstrap, "forceTerminateTransaction", "--transactionalId", topic)
    with pytest.raises(FencedError):
        open_producer.commit()
    assert row(transactions(bootstrap, "describe", "--transactional-id", topic), topic)[4] == "Empty"
    assert read_with_confluent(bootstrap, topic) == []


def test_a_transaction_is_aborted_on_a_partition(bootstrap: str, topic: str, open_producer: JavaTransactor) -> None:
    """The partition is handled as if the coordinator had forgotten it; the other partition is committed."""
    assert topic not in transactions(bootstrap, "find-hanging", "--topic", topic)
    abort = ("abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    transactions(bootstrap, *abort)
    assert "Could not find any open transactions" in transactions(bootstrap, *abort, fails=True)
    open_producer.commit()
    expect(partial(read_with_confluent, bootstrap, topic, 1), [b"value"])
    assert read_with_confluent(bootstrap, topic, 0) == []


def test_the_message_copier(bootstrap: str, topic: str) -> None:
    """Kafka's system tests copy with it, with random aborts and repeated reads; here with both kinds of consumer."""
    fill(bootstrap, topic, partitions=1, count=600)
    create_topic(bootstrap, f"{topic}-copy")
    names = ("--input-topic", topic, "--output-topic", f"{topic}-copy", "--transactional-id", topic)
    common = (*names, "--broker-list", bootstrap, "--consumer-group", topic, "--input-partition", "0")
    sizes = ("--transaction-size", "50", "--enable-random-aborts", "--use-group-metadata")
    run_tool("transactional-message-copier", *common, *sizes, "--max-messages", "300")
    run_tool("transactional-message-copier", *common, *sizes, "--group-mode")
    copied = partial(read_with_confluent, bootstrap, f"{topic}-copy")
    expect(copied, [b"%d" % number for number in range(600)])
    assert len(copied(isolation=READ_UNCOMMITTED)) >= 600


def test_producer_performance(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    sizes = ("--num-records", "3000", "--record-size", "100", "--throughput", "-1")
    names = ("--transactional-id", topic, "--transaction-duration-ms", "100")
    output = run_tool("producer-perf-test", "--bootstrap-server", bootstrap, "--topic", topic, *sizes, *names)
    assert output.startswith("3000 records sent")
    expect(lambda: len(read_with_confluent(bootstrap, topic)), 3000)


def test_a_member_of_another_generation_cannot_commit(java: JavaDriver, bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, partitions=1, count=2)
    producer = JavaTransactor(java, bootstrap, topic)
    source = JavaSource(java, bootstrap, topic, topic)
    producer.begin()
    with pytest.raises(JavaError) as refused:
        producer.send_offsets({(topic, 0): 1}, source, generation=7)
    assert refused.value.names[0] == "CommitFailedException"
    producer.abort()
    assert source.take(1) == [b"0"]
    producer.begin()
    producer.send_offsets(source.positions(), source)
    producer.commit()
    source.close()
    producer.close()


def test_features(tmp_path: Path, java: JavaDriver) -> None:
    """A producer switches to the finalized version, in both directions."""
    with start_broker(tmp_path / "data") as broker:
        address = broker.address
        features = partial(run_tool, "features", "--bootstrap-server", address)

        def level() -> str:
            (line,) = [line for line in features("describe").splitlines() if "transaction.version" in line]
            return line.split("FinalizedVersionLevel: ")[1].split()[0]

        def epoch() -> str:
            return row(transactions(address, "describe", "--transactional-id", "t"), "t")[3]

        create_topic(address, "t")
        assert level() == "2"
        producer = JavaTransactor(java, address, "t")
        commit_two(producer)
        expect(epoch, "2")
        assert "can be downgraded to 1" in features("downgrade", "--feature", "transaction.version=1", "--dry-run")
        assert level() == "2"
        speak_classic(address)
        assert level() == "1"
        classic = JavaTransactor(java, address, "t")
        commit_two(classic)
        expect(epoch, "3")
        assert "3" in features("upgrade", "--feature", "transaction.version=3", fails=True)
        assert "was upgraded to 2" in features("upgrade", "--feature", "transaction.version=2")
        expect(partial(read_with_confluent, address, "t"), [b"1", b"2"] * 2)


def commit_two(producer: JavaTransactor) -> None:
    for value in (b"1", b"2"):
        producer.begin()
        producer.send("t", 0, value)
        producer.commit()


def test_kafkas_dump_tool_reads_the_files(tmp_path: Path, java: JavaDriver) -> None:
    with start_broker(tmp_path / "data", "transaction.state.log.num.partitions=1") as broker:
        create_topic(broker.address, "t")
        producer = JavaTransactor(java, broker.address, "name")
        for end in (producer.commit, producer.abort):
            producer.begin()
            producer.send("t", 0, b"value")
            end()
        producer.close()

    def dump(file: str, *arguments: str) -> str:
        return run_tool("dump-log", "--files", str(tmp_path / "data" / file), *arguments)

    states = dump("__transaction_state-0/00000000000000000000.log", "--transaction-log-decoder")
    # Empty, Ongoing, PrepareCommit, CompleteCommit, Ongoing, PrepareAbort, CompleteAbort.
    assert re.findall(r'"transactionStatus":(\d)', states) == list("0124135"), states
    assert re.findall(r'"producerEpoch":(\d)', states) == list("0011122"), states
    records = dump("t-0/00000000000000000000.log", "--print-data-log")
    assert re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: 0", records) == ["COMMIT", "ABORT"], records
    aborted = dump("t-0/00000000000000000000.txnindex")
    assert re.search(r"firstOffset: 2 lastOffset: 3 lastStableOffset: 4", aborted), aborted
