"""Named batch writes whose driver dies, fails or has a rival, and errors after the commit."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from threading import Event, Thread

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from rookery.base.errors import ApiError, ErrorCode
from rookery.client.admin import ONGOING, Admin, EndOutcome, PreparedTransaction, TransactionDescription
from rookery.client.sync import Admin as SyncAdmin
from rookery.client.sync import Consumer
from rookery.spark.options import parse_write_options
from rookery.spark.sink import committer, driver, ledger_records
from rookery.spark.sink.batch_writer import BatchWriter
from rookery.spark.sink.commit_protocol import SinkError, TornBatchError
from rookery.spark.sink.committer import Committer
from rookery.spark.sink.ledger import Ledger
from rookery.spark.sink.task_writer import TaskMessage
from rookery.testing.embedded import EmbeddedBroker
from tests.spark.sink.sink_harness import POINTS, Killed
from tests.support.waiting import eventually

SCHEMA = StructType([StructField("value", StringType())])
TASK_COUNT = 3
_NUMBERS = count(1)
_DECIDED_FROM = POINTS.index(("decided", 1))


class Write(BatchWriter):
    """A write of one version by its own driver; `at` is called with each step."""

    messages: Sequence[TaskMessage]
    at: Callable[[str], None] | None = None

    async def on_step(self, step: str) -> None:
        if self.at is not None:
            self.at(step)

    def end(self, *, commit: bool = True) -> None:
        (self.commit if commit else self.abort)(self.messages)


def write(broker: EmbeddedBroker, topic: str, version: int | None, app: str | None = None, **settings: str) -> Write:
    """Return a write whose tasks have written their rows, and which is not committed yet."""
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "kafka.client.id": f"driver-{os.getpid()}-{next(_NUMBERS)}",
        "topic": topic,
        **({} if version is None else {"txnAppId": app or f"app-{topic}", "txnVersion": str(version)}),
        **settings,
    }
    made = Write(parse_write_options(options, streaming=False), SCHEMA, overwrite=False)
    made.messages = [_task(made, f"{version}/{number}") for number in range(TASK_COUNT)]
    return made


def _task(made: Write, value: str) -> TaskMessage:
    message = made.write(iter([pa.RecordBatch.from_pydict({"value": [value]})]))
    assert isinstance(message, TaskMessage)
    return message


def rows(*versions: int | None) -> list[str]:
    return sorted(f"{version}/{number}" for version in versions for number in range(TASK_COUNT))


def found(broker: EmbeddedBroker, topic: str) -> list[str]:
    """Return the committed rows. Open transactions are aborted first, as their time-out would do."""
    common = {"bootstrap.servers": broker.bootstrap_servers}
    with SyncAdmin(common) as admin:
        for each in admin.list_transactions(states=[ONGOING]):
            (row,) = admin.describe_transactions([each.transactional_id])
            prepared = PreparedTransaction(row.transactional_id, row.producer_id, row.producer_epoch)
            admin.end_transaction(prepared, commit=False)
    with Consumer[bytes, bytes]({**common, "isolation.level": "read_committed"}) as consumer:
        return sorted(value.decode() for value in consumer.read_arrow(topic).column("value").to_pylist())


def raises_at(step: str, occurrence: int, error: BaseException) -> Callable[[str], None]:
    seen: list[str] = []

    def at(now: str) -> None:
        seen.append(now)
        if now == step and seen.count(step) == occurrence:
            raise error

    return at


@pytest.fixture(autouse=True)
def one_by_one(monkeypatch: pytest.MonkeyPatch, broker: EmbeddedBroker) -> Iterator[None]:
    monkeypatch.setattr(Committer, "concurrent_requests", 1)
    yield
    broker.faults.clear()


# An unfinished version


@pytest.mark.parametrize("next_commits", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("point", POINTS[1:-1], ids=lambda point: f"{point[0].replace(' ', '_')}-{point[1]}")
def test_a_later_version_finishes_an_earlier_decision(
    broker: EmbeddedBroker, topic: str, point: tuple[str, int], next_commits: bool
) -> None:
    broker.create_topic(topic)
    first = write(broker, topic, 1)
    first.at = raises_at(*point, Killed())
    with pytest.raises(Killed):
        first.end()
    write(broker, topic, 2).end(commit=next_commits)
    is_decided = POINTS.index(point) >= _DECIDED_FROM
    assert found(broker, topic) == rows(*([1] if is_decided else []), *([2] if next_commits else []))
    # A repetition of the first version adds the missing rows; it is skipped if a later version was written.
    write(broker, topic, 1).end()
    is_first_written = is_decided or not next_commits
    assert found(broker, topic) == rows(*([1] if is_first_written else []), *([2] if next_commits else []))


def test_the_error_names_a_torn_version_which_can_be_repaired(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic)
    first = write(broker, topic, 1)
    first.at = raises_at("ended", 1, Killed())
    with pytest.raises(Killed):
        first.end()
    assert found(broker, topic) == ["1/0"]
    second = write(broker, topic, 2)
    for commit in (True, False):
        with pytest.raises(TornBatchError, match="batch 1, which was begun before this one, is torn"):
            second.end(commit=commit)
    write(broker, topic, 1).end()
    second.abort(second.messages)
    write(broker, topic, 2).end()
    assert found(broker, topic) == rows(1, 2)


# Concurrent writes


def test_concurrent_versions_do_not_affect_each_other(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic)
    first, second, third = (write(broker, topic, version) for version in (1, 2, 3))
    second.end(commit=False)
    first.end()
    third.end()
    assert found(broker, topic) == rows(1, 3)


def test_concurrent_writes_of_one_version_take_effect_once(
    broker: EmbeddedBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic(topic)
    first, second = write(broker, topic, 1), write(broker, topic, 1)
    first.end()
    second.end()
    assert "batch 1 is skipped: it was already written" in caplog.text
    assert found(broker, topic) == rows(1)


def test_a_version_is_written_to_each_topic(broker: EmbeddedBroker, topic: str) -> None:
    for name in (topics := [f"{topic}-a", f"{topic}-b"]):
        broker.create_topic(name)
        write(broker, name, 1, f"app-{topic}").end()
    assert [found(broker, name) for name in topics] == [rows(1), rows(1)]


def test_the_error_for_aborted_transactions_names_both_causes(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic)
    made = write(broker, topic, 1)
    assert found(broker, topic) == []
    with pytest.raises(SinkError, match=r"aborted before .* committed .*another driver.*; or .* took longer"):
        made.end()


# Errors


@pytest.mark.parametrize("version", [None, 1], ids=["nameless", "named"])
def test_an_error_after_the_commit(
    broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch, version: int | None
) -> None:
    """Only a named write reports the error, because only that can be repeated safely."""
    broker.create_topic(topic)
    made = write(broker, topic, version)

    async def write_nothing(self: Ledger, entry: object, step: object) -> None:
        raise ApiError(ErrorCode.NETWORK_EXCEPTION, "the ledger's leader is gone")

    made.at = lambda step: monkeypatch.setattr(Ledger, "write", write_nothing) if step == "listed" else None
    if version is None:
        made.end()
    else:
        with pytest.raises(SinkError, match="the ledger's leader is gone"):
            made.end()
    monkeypatch.undo()
    assert found(broker, topic) == rows(version)


def test_a_commit_does_not_wait_for_the_list_of_open_transactions(
    broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic(topic)
    broker.faults.fail("ListTransactions", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None)
    monkeypatch.setattr(committer, "_LISTING_TIMEOUT_S", 0.2)
    write(broker, topic, 1).end()
    assert "cannot be listed: TimeoutError()" in caplog.text
    broker.faults.clear()
    assert found(broker, topic) == rows(1)


def test_a_failed_end_is_retried_and_does_not_stop_the_others(
    broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic(topic)
    made, asked = write(broker, topic, None), list[str]()
    end = Admin.end_transaction

    async def fail_first(self: Admin, prepared: PreparedTransaction, *, commit: bool) -> EndOutcome:
        asked.append(prepared.transactional_id)
        if len(asked) == 1:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "no response")
        return await end(self, prepared, commit=commit)

    monkeypatch.setattr(Admin, "end_transaction", fail_first)
    made.end()
    assert (len(asked), asked[0]) == (TASK_COUNT + 1, asked[-1])
    assert found(broker, topic) == rows(None)


def test_a_timeout_is_raised_by_a_commit_and_logged_by_an_abort(
    broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic(topic)
    made = write(broker, topic, 1)

    async def time_out(self: Committer, batch: int, fresh: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(Committer, "_commit", time_out)
    monkeypatch.setattr(Committer, "_abort_batch", time_out)
    with pytest.raises(TimeoutError):
        made.end()
    with caplog.at_level(logging.WARNING):
        made.end(commit=False)
    assert "batch 1 was not aborted in time" in caplog.text


def test_a_broker_that_cannot_describe_transactions(
    broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic(topic)
    made = write(broker, topic, 1)

    async def describe(self: Admin, names: Sequence[str]) -> list[TransactionDescription]:
        return [TransactionDescription(transactional_id=name, error=ErrorCode.UNSUPPORTED_VERSION) for name in names]

    monkeypatch.setattr(Admin, "describe_transactions", describe)
    with pytest.raises(SinkError, match=r"needs brokers of Kafka 3.0 or newer"):
        made.end()


# The ledgers of a process


def test_the_request_size_of_the_user_applies_to_the_ledger(
    broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic(topic)
    monkeypatch.setattr(ledger_records, "_PLAIN_BYTES_MAX", 10**9)
    app = "a" * 400
    with pytest.raises(SinkError, match="MESSAGE_TOO_LARGE"):
        write(broker, topic, 1, app, **{"kafka.max.request.size": "2000"}).end()
    write(broker, topic, 2, app, **{"kafka.max.request.size": "20000"}).end()
    assert found(broker, topic) == rows(2)


def test_a_cached_ledger_is_read_again_before_a_batch_is_skipped(broker: EmbeddedBroker, topic: str) -> None:
    """The cached entry is of version 1; meanwhile another driver has decided version 2 and died."""
    broker.create_topic(topic)
    common = {"kafka.client.id": f"kept-{topic}"}
    write(broker, topic, 1, **common).end()
    other = write(broker, topic, 2)
    other.at = raises_at("decided", 1, Killed())
    with pytest.raises(Killed):
        other.end()
    empty = write(broker, topic, 2, **common)
    empty.commit([TaskMessage(message.sink, None) for message in empty.messages])
    assert found(broker, topic) == rows(1, 2)


def test_only_the_most_recently_used_ledgers_stay_open(
    broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic(topic)
    monkeypatch.setattr(driver, "LEDGERS_MAX", 2)
    monkeypatch.setattr(driver, "_ledgers", {})
    closed, close = list[str](), Ledger.close

    async def note(self: Ledger) -> None:
        closed.append(self.sink)
        await close(self)

    monkeypatch.setattr(Ledger, "close", note)
    for app in ("a", "b", "a", "c", "a"):
        write(broker, topic, 1, app, **{"kafka.client.id": "one"}).end()
    assert closed == [f"b/{topic}"]
    assert [key[-1] for key in driver._ledgers] == [f"c/{topic}", f"a/{topic}"]


def test_the_transaction_of_a_task_that_finishes_after_the_abort_is_aborted(
    broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Committer, "late_tasks_s", 15.0)
    made, aborted = write(broker, topic, None), Event()
    made.at = lambda step: aborted.set() if step == "aborted" else None
    aborting = Thread(target=made.end, kwargs={"commit": False})
    aborting.start()
    try:
        assert aborted.wait(30)
        late = _task(made, "late").piece
        assert late is not None
        with SyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
            name = late.transaction.transactional_id
            eventually(
                lambda: admin.describe_transactions([name])[0].state != ONGOING, "the late transaction is aborted"
            )
    finally:
        monkeypatch.setattr(Committer, "late_tasks_s", 0.0)
        aborting.join()
    assert found(broker, topic) == []
