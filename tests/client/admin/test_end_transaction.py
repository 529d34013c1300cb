"""Transactions that one client prepares and another one ends, in both protocols, with lost responses."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

from rookery.base.codes import UpgradeType
from rookery.base.errors import ApiError, ErrorCode
from rookery.client.admin import EndOutcome, PreparedTransaction
from rookery.client.errors import ClientStateError, TransactionAbortableError
from rookery.client.sync import Admin, Consumer, Producer
from rookery.testing.embedded import EmbeddedBroker
from tests.support.waiting import eventually

_NUMBERS = count(1)
_TIMEOUT_MS = 60_000
_COMMIT_AND_ABORT = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])


class Scenario:
    def __init__(self, broker: EmbeddedBroker, name: str) -> None:
        self.broker = broker
        self.name = name
        self.common = {"bootstrap.servers": broker.bootstrap_servers}

    def producer(self) -> Producer[bytes, bytes]:
        config = {**self.common, "transactional.id": self.name, "transaction.timeout.ms": _TIMEOUT_MS}
        return Producer(config)

    def prepare(self, value: bytes = b"prepared") -> PreparedTransaction:
        """Prepare a transaction with a producer that is closed afterwards."""
        with self.producer() as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(self.name, value)
            return producer.prepare_transaction()

    def end(self, prepared: PreparedTransaction, *, commit: bool) -> EndOutcome:
        with Admin(self.common) as admin:
            return admin.end_transaction(prepared, commit=commit)

    def state(self) -> str:
        with Admin(self.common) as admin:
            return admin.describe_transactions([self.name])[0].check().state

    def committed(self) -> list[bytes]:
        with Consumer[bytes, bytes]({**self.common, "isolation.level": "read_committed"}) as consumer:
            return list(consumer.read_arrow(self.name).column("value").to_pylist())


@pytest.fixture(scope="module", params=[1, 2], ids=["classic", "v2"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "20"}
    with EmbeddedBroker(settings=settings) as broker:
        if request.param == 1:
            with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
                admin.update_features({"transaction.version": 1}, UpgradeType.SAFE_DOWNGRADE)
        yield broker
        broker.faults.clear()


@pytest.fixture
def scenario(broker: EmbeddedBroker) -> Scenario:
    name = f"prepared-{next(_NUMBERS)}"
    broker.create_topic(name)
    return Scenario(broker, name)


def expected(*, commit: bool) -> list[bytes]:
    return [b"prepared"] if commit else []


@_COMMIT_AND_ABORT
def test_another_client_ends_a_prepared_transaction_idempotently(scenario: Scenario, commit: bool) -> None:
    prepared = scenario.prepare()
    assert scenario.state() == "Ongoing"
    assert scenario.committed() == []
    assert [scenario.end(prepared, commit=commit) for _ in range(3)] == [EndOutcome.DONE] * 3
    assert scenario.committed() == expected(commit=commit)


@_COMMIT_AND_ABORT
def test_a_lost_response(scenario: Scenario, commit: bool) -> None:
    prepared = scenario.prepare()
    scenario.broker.faults.drop_connection("EndTxn", carry_out=True)
    assert scenario.end(prepared, commit=commit) is EndOutcome.DONE
    assert scenario.committed() == expected(commit=commit)


@_COMMIT_AND_ABORT
def test_it_was_ended_the_other_way(scenario: Scenario, commit: bool) -> None:
    prepared = scenario.prepare()
    assert scenario.end(prepared, commit=not commit) is EndOutcome.DONE
    assert scenario.end(prepared, commit=commit) is EndOutcome.ENDED_OTHERWISE
    assert scenario.committed() == expected(commit=not commit)


def test_after_a_restart_of_the_broker(scenario: Scenario) -> None:
    prepared = scenario.prepare()
    scenario.broker.restart()
    assert scenario.end(prepared, commit=True) is EndOutcome.DONE
    scenario.broker.restart()
    assert scenario.end(prepared, commit=True) is EndOutcome.DONE
    assert scenario.committed() == expected(commit=True)


def test_it_timed_out(scenario: Scenario) -> None:
    prepared = scenario.prepare()
    scenario.broker.advance_time(_TIMEOUT_MS / 1000 + 1)
    eventually(lambda: scenario.state() == "CompleteAbort", "the time-out")
    assert scenario.end(prepared, commit=True) in (EndOutcome.FENCED, EndOutcome.ENDED_OTHERWISE)
    # A broker may report that it is aborted, or that the producer is fenced.
    assert scenario.end(prepared, commit=False) in (EndOutcome.DONE, EndOutcome.FENCED)
    assert scenario.committed() == []


def test_a_newer_producer_of_the_id_aborts_it(scenario: Scenario) -> None:
    older = scenario.prepare(b"older")
    newer = scenario.prepare(b"newer")
    assert newer.producer_epoch > older.producer_epoch
    assert [scenario.end(older, commit=commit) for commit in (True, False)] == [EndOutcome.FENCED] * 2
    assert scenario.end(newer, commit=True) is EndOutcome.DONE
    assert scenario.committed() == [b"newer"]


def test_an_unknown_transactional_id(scenario: Scenario) -> None:
    unknown = PreparedTransaction(f"{scenario.name}-unknown", 1, 0)
    assert scenario.end(unknown, commit=True) is EndOutcome.UNKNOWN
    prepared = scenario.prepare()
    assert scenario.end(replace(prepared, producer_id=4711), commit=True) is EndOutcome.UNKNOWN
    assert scenario.end(prepared, commit=False) is EndOutcome.DONE


def test_an_end_that_is_rejected(scenario: Scenario) -> None:
    prepared = scenario.prepare()
    scenario.broker.faults.fail("EndTxn", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(ApiError, match=scenario.name) as caught:
        scenario.end(prepared, commit=True)
    assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert scenario.end(prepared, commit=True) is EndOutcome.DONE


@_COMMIT_AND_ABORT
def test_the_producer_itself_may_end_it(scenario: Scenario, commit: bool) -> None:
    with scenario.producer() as producer:
        producer.init_transactions()
        for _ in range(2):
            producer.begin_transaction()
            producer.send(scenario.name, b"prepared")
            prepared = producer.prepare_transaction()
            with pytest.raises(ClientStateError, match="prepared: end it"):
                producer.begin_transaction()
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    assert scenario.end(prepared, commit=commit) is EndOutcome.DONE
    assert scenario.committed() == expected(commit=commit) * 2


def test_a_prepared_transaction_accepts_no_more_records(scenario: Scenario) -> None:
    with scenario.producer() as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(scenario.name, b"prepared")
        prepared = producer.prepare_transaction()
        with pytest.raises(ApiError, match="prepared: end it"):
            producer.send(scenario.name, b"late").result()
    assert scenario.end(prepared, commit=True) is EndOutcome.DONE
    assert scenario.committed() == [b"prepared"]


def test_nothing_was_sent(scenario: Scenario) -> None:
    with scenario.producer() as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(ClientStateError, match="nothing was sent"):
            producer.prepare_transaction()
        producer.abort_transaction()


def test_a_transaction_with_a_failed_record_is_not_prepared_and_can_be_aborted(scenario: Scenario) -> None:
    with scenario.producer() as producer:
        producer.init_transactions()
        producer.begin_transaction()
        scenario.broker.faults.fail("Produce", ErrorCode.INVALID_RECORD)
        producer.send(scenario.name, b"rejected")
        with pytest.raises(TransactionAbortableError):
            producer.prepare_transaction()
        producer.abort_transaction()
    assert scenario.committed() == []
