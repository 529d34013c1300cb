"""The reaction of every client to the error for a batch whose sequence number belongs to an ended transaction.

docs/transactions.md describes the error. The client must not treat the batch as written; it must be able to abort, or
abort by itself, and its next transaction must be complete. Most clients get the error only if an operator aborts their
transaction on a partition while an acknowledgement is lost; librdkafka can cause it by itself.
"""

import threading
from collections.abc import Callable, Iterator
from functools import partial

import kafka.errors
import pytest

from rookery.client import TopicPartition
from rookery.client.admin.transactions import AbortTarget
from rookery.client.sync import Admin
from rookery.testing import EmbeddedBroker
from tests.conformance.interfaces import Transactor
from tests.conformance.java_driver import JavaDriver, JavaSource, JavaTransactor
from tests.conformance.players import JAVA, JAVA_CLASSIC, Player
from tests.conformance.transactors import PYTHON_CLIENTS, ConfluentTransactor, read_with_confluent
from tests.support.waiting import TIMEOUT_S, eventually, expect

NAMES = [*PYTHON_CLIENTS, *(pytest.param(name, marks=pytest.mark.java) for name in (JAVA, JAVA_CLASSIC))]
TOPIC = "orders"
PLACE = TopicPartition(TOPIC, 0)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        running.create_topic(TOPIC)
        yield running


@pytest.fixture(params=NAMES)
def player(request: pytest.FixtureRequest, broker: EmbeddedBroker) -> Iterator[Player]:
    name: str = request.param
    if name in PYTHON_CLIENTS:
        playing = Player(name, broker.bootstrap_servers, *PYTHON_CLIENTS[name])
    else:
        driver: JavaDriver = request.getfixturevalue("java")
        playing = Player(name, "", partial(JavaTransactor, driver), partial(JavaSource, driver))
        playing.move_to(broker.bootstrap_servers)
    yield playing
    playing.close()


class Sending:
    """A call in a thread: it may block until the test releases it."""

    def __init__(self, producer: Transactor, value: bytes) -> None:
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(producer, value), daemon=True)
        self._thread.start()

    def _run(self, producer: Transactor, value: bytes) -> None:
        try:
            producer.send(TOPIC, 0, value)
        except Exception as error:
            self._error = error

    def error(self) -> Exception | None:
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "the call neither failed nor succeeded"
        return self._error


def abort_on_partition(bootstrap: str) -> None:
    """Abort like `rookery transactions abort`: the transaction ends on the partition without its producer knowing."""
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        (found,) = admin.open_transactions([PLACE])
        admin.abort_transaction(
            AbortTarget(
                partition=PLACE,
                producer_id=found.producer.producer_id,
                producer_epoch=found.producer.producer_epoch,
                coordinator_epoch=found.producer.coordinator_epoch or 0,
            )
        )


def write(producer: Transactor, value: bytes) -> None:
    producer.begin()
    producer.send(TOPIC, 0, value)
    producer.commit()


def lose_acknowledgement(broker: EmbeddedBroker, producer: Transactor, value: bytes) -> Sending:
    """Write a batch, lose its acknowledgement, and return a retriable error for every further attempt."""
    broker.faults.drop_connection("Produce", carry_out=True)
    retried = broker.faults.fail("Produce", "NOT_ENOUGH_REPLICAS", times=None)
    sending = Sending(producer, value)
    eventually(lambda: retried.hits > 0, "the client sends it again")
    return sending


@pytest.mark.parametrize("is_first", [False, True], ids=["later", "first"])
def test_a_client_recovers(player: Player, broker: EmbeddedBroker, is_first: bool) -> None:
    producer = player.transactor("t")
    if not is_first:
        write(producer, b"before")
    producer.begin()
    sending = lose_acknowledgement(broker, producer, b"torn")
    abort_on_partition(player.bootstrap)
    broker.faults.clear()
    assert sending.error() is not None
    if player.name == "kafka-python":
        # It increments its epoch by itself, which ends the transaction; until then every call fails.
        eventually(lambda: succeeds(producer.begin), "it begins the next transaction")
    else:
        producer.abort()
        producer.begin()
    producer.send(TOPIC, 0, b"after")
    producer.commit()
    expect(lambda: read_with_confluent(player.bootstrap, TOPIC), [b"after"] if is_first else [b"before", b"after"])


def succeeds(call: Callable[[], None]) -> bool:
    try:
        call()
    except kafka.errors.KafkaError:
        return False
    return True


@pytest.mark.parametrize("values", [[b"one"], [b"one", b"two"]], ids=["the-same-batch", "a-larger-batch"])
def test_librdkafka_reuses_the_numbers_of_dropped_batches(broker: EmbeddedBroker, values: list[bytes]) -> None:
    producer = ConfluentTransactor(broker.bootstrap_servers, "t")
    try:
        write(producer, b"before")
        producer.begin()
        sending = lose_acknowledgement(broker, producer, b"given up")
        # This purges the queue, in which the batch waits for its next attempt.
        producer.abort()
        assert sending.error() is not None
        broker.faults.clear()
        producer.begin()
        with pytest.raises(Exception, match="UNKNOWN_PRODUCER_ID"):
            producer.send(TOPIC, 0, *values)
        producer.abort()
        producer.begin()
        producer.send(TOPIC, 0, *values)
        producer.commit()
    finally:
        producer.close()
    expect(lambda: read_with_confluent(broker.bootstrap_servers, TOPIC), [b"before", *values])
