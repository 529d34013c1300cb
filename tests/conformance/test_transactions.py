"""Transactions, with the same scenarios for every foreign client: committed records are visible, all and once.

The Python clients and librdkafka use the protocol in which they add partitions themselves. The Java client uses that
one too if the feature `transaction.version` is 1 ("java-classic"), else the newer one.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import confluent_kafka
import pytest

from rookery.client.errors import FatalProducerError
from tests.conformance.conftest import SETTINGS
from tests.conformance.interfaces import READ_UNCOMMITTED, FencedError, Transactor
from tests.conformance.java_driver import JavaDriver, JavaError, JavaSource, JavaTransactor
from tests.conformance.java_tools import speak_classic
from tests.conformance.members import fill
from tests.conformance.players import JAVA, JAVA_CLASSIC, Player, create_topic
from tests.conformance.samples import CODECS
from tests.conformance.transactors import PYTHON_CLIENTS, READERS, read_with_confluent
from tests.support.broker import start_broker
from tests.support.waiting import expect

NAMES = [*PYTHON_CLIENTS, *(pytest.param(name, marks=pytest.mark.java) for name in (JAVA, JAVA_CLASSIC))]


@pytest.fixture(scope="session")
def classic_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a broker whose finalized transaction.version is 1."""
    with start_broker(tmp_path_factory.mktemp("classic") / "data", *SETTINGS) as broker:
        speak_classic(broker.address)
        yield broker.address


@pytest.fixture(params=NAMES)
def player(request: pytest.FixtureRequest) -> Iterator[Player]:
    name: str = request.param
    bootstrap = request.getfixturevalue("classic_bootstrap" if name == JAVA_CLASSIC else "bootstrap")
    if name in PYTHON_CLIENTS:
        playing = Player(name, bootstrap, *PYTHON_CLIENTS[name])
    else:
        driver: JavaDriver = request.getfixturevalue("java")
        playing = Player(name, bootstrap, partial(JavaTransactor, driver), partial(JavaSource, driver))
    yield playing
    playing.close()


def seen(bootstrap: str, topic: str, partition: int = 0) -> tuple[list[bytes], list[bytes]]:
    """Return the records for a consumer at read_committed, and for one at read_uncommitted."""
    return (
        read_with_confluent(bootstrap, topic, partition),
        read_with_confluent(bootstrap, topic, partition, READ_UNCOMMITTED),
    )


def test_a_commit_shows_all_partitions(player: Player, topic: str) -> None:
    topics = [create_topic(player.bootstrap, f"{topic}-{name}", 2) for name in "ab"]
    places = [(name, partition) for name in topics for partition in (0, 1)]
    producer = player.transactor(topic)
    producer.begin()
    for place in places:
        producer.send(*place, b"1", b"2")
    assert [seen(player.bootstrap, *place) for place in places] == [([], [b"1", b"2"])] * 4
    producer.commit()
    for place in places:
        expect(partial(seen, player.bootstrap, *place), ([b"1", b"2"],) * 2)


def test_aborted_records_are_skipped(player: Player, topic: str) -> None:
    create_topic(player.bootstrap, topic)
    producer = player.transactor(topic)
    for value, end in ((b"a", producer.commit), (b"b", producer.abort), (b"c", producer.commit)):
        producer.begin()
        producer.send(topic, 0, value, value)
        end()
    for read in READERS:
        expect(partial(read, player.bootstrap, topic), [b"a", b"a", b"c", b"c"])
        assert read(player.bootstrap, topic, isolation=READ_UNCOMMITTED) == [b"a", b"a", b"b", b"b", b"c", b"c"]


def test_transactions_without_records(player: Player, topic: str) -> None:
    create_topic(player.bootstrap, topic)
    producer = player.transactor(topic)
    for end in (producer.commit, producer.abort, producer.commit):
        producer.begin()
        end()
    write(producer, topic, b"a")
    expect(partial(read_with_confluent, player.bootstrap, topic), [b"a"])


def test_interleaved_producers(player: Player, topic: str) -> None:
    """A reader at read_committed waits for the oldest open transaction, even if later ones have ended."""
    create_topic(player.bootstrap, topic)
    first, second, third = (player.transactor(f"{topic}-{number}") for number in range(3))
    for producer, value in ((first, b"1"), (second, b"2"), (third, b"3")):
        producer.begin()
        producer.send(topic, 0, value)
    plain = confluent_kafka.Producer({"bootstrap.servers": player.bootstrap, "enable.idempotence": True})
    plain.produce(topic, b"plain", partition=0)
    assert plain.flush(30) == 0
    second.abort()
    third.commit()
    assert seen(player.bootstrap, topic) == ([], [b"1", b"2", b"3", b"plain"])
    first.commit()
    for read in READERS:
        expect(partial(read, player.bootstrap, topic), [b"1", b"3", b"plain"])


def test_a_newer_instance_fences_the_older(player: Player, topic: str) -> None:
    create_topic(player.bootstrap, topic)
    older = player.transactor(topic)
    older.begin()
    older.send(topic, 0, b"older")
    newer = player.transactor(topic)
    assert seen(player.bootstrap, topic) == ([], [b"older"])
    newer.begin()
    newer.send(topic, 0, b"newer")
    with pytest.raises(FencedError):
        older.commit()
    newer.commit()
    expect(partial(seen, player.bootstrap, topic), ([b"newer"], [b"older", b"newer"]))


def test_a_fenced_instance_cannot_write(player: Player, topic: str) -> None:
    create_topic(player.bootstrap, topic)
    older = player.transactor(topic)
    newer = player.transactor(topic)
    with pytest.raises(FencedError):
        write(older, topic, b"older")
    write(newer, topic, b"newer")
    expect(partial(seen, player.bootstrap, topic), ([b"newer"],) * 2)


def write(producer: Transactor, topic: str, value: bytes) -> None:
    producer.begin()
    producer.send(topic, 0, value)
    producer.commit()


def test_a_transaction_times_out(player: Player, topic: str) -> None:
    create_topic(player.bootstrap, topic)
    slow = player.transactor(topic, timeout_ms=3000)
    slow.begin()
    slow.send(topic, 0, b"late")
    plain = confluent_kafka.Producer({"bootstrap.servers": player.bootstrap})
    plain.produce(topic, b"plain", partition=0)
    assert plain.flush(30) == 0
    expect(partial(seen, player.bootstrap, topic), ([b"plain"], [b"late", b"plain"]))
    # In the newer protocol the coordinator treats it as a repeated commit of a transaction that was aborted.
    with pytest.raises({JAVA: JavaError, "rookery": FatalProducerError}.get(player.name, FencedError)):
        slow.commit()


def test_codecs(player: Player, topic: str) -> None:
    create_topic(player.bootstrap, topic)
    values = [b"%d" % number * 50 for number in range(20)]
    for codec in CODECS:
        producer = player.transactor(f"{topic}-{codec}", codec=codec)
        for end in (producer.abort, producer.commit):
            producer.begin()
            producer.send(topic, 0, *values)
            end()
        player.drop(producer)
    for read in READERS:
        expect(partial(read, player.bootstrap, topic), values * len(CODECS))


def test_offsets_are_committed_with_the_transaction(player: Player, topic: str) -> None:
    fill(player.bootstrap, topic, partitions=1, count=1)
    producer = player.transactor(topic)
    source = player.source(topic, topic)
    assert source.take(1) == [b"0"]
    for offset, end, expected in ((3, producer.commit, 3), (5, producer.abort, 3), (7, producer.commit, 7)):
        producer.begin()
        producer.send_offsets({(topic, 0): offset}, source)
        end()
        expect(partial(committed, player.bootstrap, topic, topic), expected)


def committed(bootstrap: str, group_id: str, topic: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group_id, "log_level": 0})
    found = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], 30)
    consumer.close()
    return found[0].offset


class Worker:
    """Copies every record of `<name>-in` once to `<name>-out`, in transactions."""

    def __init__(self, player: Player, name: str) -> None:
        self._player = player
        self._name = name
        self._producer = player.transactor(name)
        self._source = player.source(name, f"{name}-in")

    def work(self, count: int) -> Transactor:
        """Run one transaction without ending it."""
        self._producer.begin()
        for value in self._source.take(count):
            self._producer.send(f"{self._name}-out", 0, value)
        self._producer.send_offsets(self._source.positions(), self._source)
        return self._producer

    def die(self) -> None:
        self._player.drop(self._producer, self._source)


def test_exactly_once_over_crashes(player: Player, topic: str, tmp_path: Path) -> None:
    """A worker dies during a transaction; later the broker dies during another one."""
    with start_broker(tmp_path / "data") as broker:
        player.move_to(broker.address)
        fill(broker.address, f"{topic}-in", partitions=1, count=9)
        create_topic(broker.address, f"{topic}-out")
        first = Worker(player, topic)
        first.work(3).commit()
        first.work(3)
        first.die()
        second = Worker(player, topic)
        second.work(3).commit()
        pending = second.work(3)
        broker.kill()
    with start_broker(tmp_path / "data", port=broker.port):
        pending.commit()
        for read in READERS:
            expect(partial(read, player.bootstrap, f"{topic}-out"), [b"%d" % number for number in range(9)])
        expect(partial(committed, player.bootstrap, topic, f"{topic}-in"), 9)
        player.close()


def test_transactions_continue_after_restarts(player: Player, tmp_path: Path) -> None:
    """The broker is stopped cleanly, then with SIGKILL, while two transactions are open."""
    with start_broker(tmp_path / "data") as broker:
        player.move_to(broker.address)
        for topic in ("kept", "given-up"):
            create_topic(broker.address, topic)
        keeps, gives_up = player.transactor("keeps"), player.transactor("gives-up")
        for producer, topic in ((keeps, "kept"), (gives_up, "given-up")):
            producer.begin()
            producer.send(topic, 0, b"1")
        broker.stop()
    with start_broker(tmp_path / "data", port=broker.port) as broker:
        keeps.send("kept", 0, b"2")
        broker.kill()
    with start_broker(tmp_path / "data", port=broker.port) as broker:
        assert seen(broker.address, "kept") == ([], [b"1", b"2"])
        keeps.send("kept", 0, b"3")
        keeps.commit()
        gives_up.abort()
        write(keeps, "kept", b"4")
        expect(partial(seen, broker.address, "kept"), ([b"1", b"2", b"3", b"4"],) * 2)
        assert read_with_confluent(broker.address, "given-up") == []
        player.close()


def test_transactions_over_segments(player: Player, topic: str) -> None:
    """Segments of one mebibyte, Kafka's minimum: each transaction covers several."""
    create_topic(player.bootstrap, topic, segment_bytes=str(1 << 20))
    values = [b"%d" % number * 250_000 for number in range(10)]
    producer = player.transactor(topic)
    for end in (producer.commit, producer.abort, producer.commit, producer.abort):
        producer.begin()
        producer.send(topic, 0, *values)
        end()
    for read in READERS:
        expect(partial(read, player.bootstrap, topic), values * 2)
