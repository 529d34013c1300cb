"""Transactions that one client prepares and another one ends, in both protocols, with answers that get lost."""

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


class Stage:
    def __init__(self, broker: EmbeddedBroker, name: str) -> None:
        self.broker = broker
        self.name = name
        self.common = {"bootstrap.servers": broker.bootstrap_servers}

    def producer(self) -> Producer[bytes, bytes]:
        config = {**self.common, "transactional.id": self.name, "transaction.timeout.ms": _TIMEOUT_MS}
        return Producer(config)

    def prepare(self, value: bytes = b"prepared") -> PreparedTransaction:
        """By a producer that is closed afterwards."""
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
def stage(broker: EmbeddedBroker) -> Stage:
    name = f"prepared-{next(_NUMBERS)}"
    broker.create_topic(name)
    return Stage(broker, name)


def expected(*, commit: bool) -> list[bytes]:
    return [b"prepared"] if commit else []


@_COMMIT_AND_ABORT
def test_another_client_ends_what_was_prepared_however_often_it_asks(stage: Stage, commit: bool) -> None:
    prepared = stage.prepare()
    assert stage.state() == "Ongoing"
    assert stage.committed() == []
    assert [stage.end(prepared, commit=commit) for _ in range(3)] == [EndOutcome.DONE] * 3
    assert stage.committed() == expected(commit=commit)


@_COMMIT_AND_ABORT
def test_an_answer_that_got_lost(stage: Stage, commit: bool) -> None:
    prepared = stage.prepare()
    stage.broker.faults.drop_connection("EndTxn", carry_out=True)
    assert stage.end(prepared, commit=commit) is EndOutcome.DONE
    assert stage.committed() == expected(commit=commit)


@_COMMIT_AND_ABORT
def test_it_was_ended_the_other_way(stage: Stage, commit: bool) -> None:
    prepared = stage.prepare()
    assert stage.end(prepared, commit=not commit) is EndOutcome.DONE
    assert stage.end(prepared, commit=commit) is EndOutcome.ENDED_OTHERWISE
    assert stage.committed() == expected(commit=not commit)


def test_after_a_restart_of_the_broker(stage: Stage) -> None:
    prepared = stage.prepare()
    stage.broker.restart()
    assert stage.end(prepared, commit=True) is EndOutcome.DONE
    stage.broker.restart()
    assert stage.end(prepared, commit=True) is EndOutcome.DONE
    assert stage.committed() == expected(commit=True)


def test_it_timed_out(stage: Stage) -> None:
    prepared = stage.prepare()
    stage.broker.advance_time(_TIMEOUT_MS / 1000 + 1)
    eventually(lambda: stage.state() == "CompleteAbort", "the time-out")
    assert stage.end(prepared, commit=True) in (EndOutcome.FENCED, EndOutcome.ENDED_OTHERWISE)
    # A broker may say that it is aborted, or that nobody may ask any more.
    assert stage.end(prepared, commit=False) in (EndOutcome.DONE, EndOutcome.FENCED)
    assert stage.committed() == []


def test_a_newer_producer_of_the_id_aborts_it(stage: Stage) -> None:
    older = stage.prepare(b"older")
    newer = stage.prepare(b"newer")
    assert newer.producer_epoch > older.producer_epoch
    assert [stage.end(older, commit=commit) for commit in (True, False)] == [EndOutcome.FENCED] * 2
    assert stage.end(newer, commit=True) is EndOutcome.DONE
    assert stage.committed() == [b"newer"]


def test_an_id_that_the_broker_does_not_know(stage: Stage) -> None:
    nobody = PreparedTransaction(f"{stage.name}-nobody", 1, 0)
    assert stage.end(nobody, commit=True) is EndOutcome.UNKNOWN
    prepared = stage.prepare()
    assert stage.end(replace(prepared, producer_id=4711), commit=True) is EndOutcome.UNKNOWN
    assert stage.end(prepared, commit=False) is EndOutcome.DONE


def test_an_end_that_is_refused(stage: Stage) -> None:
    prepared = stage.prepare()
    stage.broker.faults.fail("EndTxn", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(ApiError, match=stage.name) as caught:
        stage.end(prepared, commit=True)
    assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert stage.end(prepared, commit=True) is EndOutcome.DONE


@_COMMIT_AND_ABORT
def test_the_producer_itself_may_end_it(stage: Stage, commit: bool) -> None:
    with stage.producer() as producer:
        producer.init_transactions()
        for _ in range(2):
            producer.begin_transaction()
            producer.send(stage.name, b"prepared")
            prepared = producer.prepare_transaction()
            with pytest.raises(ClientStateError, match="prepared: end it"):
                producer.begin_transaction()
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    assert stage.end(prepared, commit=commit) is EndOutcome.DONE
    assert stage.committed() == expected(commit=commit) * 2


def test_what_is_prepared_takes_no_more_records(stage: Stage) -> None:
    with stage.producer() as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(stage.name, b"prepared")
        prepared = producer.prepare_transaction()
        with pytest.raises(ApiError, match="prepared: end it"):
            producer.send(stage.name, b"late").result()
    assert stage.end(prepared, commit=True) is EndOutcome.DONE
    assert stage.committed() == [b"prepared"]


def test_nothing_was_sent(stage: Stage) -> None:
    with stage.producer() as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(ClientStateError, match="nothing was sent"):
            producer.prepare_transaction()
        producer.abort_transaction()


def test_what_cannot_be_written_is_not_prepared_and_can_be_aborted(stage: Stage) -> None:
    with stage.producer() as producer:
        producer.init_transactions()
        producer.begin_transaction()
        stage.broker.faults.fail("Produce", ErrorCode.INVALID_RECORD)
        producer.send(stage.name, b"refused")
        with pytest.raises(TransactionAbortableError):
            producer.prepare_transaction()
        producer.abort_transaction()
    assert stage.committed() == []
