"""A task of the sink: it sends its rows as they arrive and leaves its transaction open for the driver.

A task without rows opens no transaction. A task that fails aborts its transaction; the transaction of a killed task is
aborted by the driver with the next batch, or by its time-out. With at-least-once delivery there is no transaction, and
acknowledged rows stay.

A worker process has a random name and numbers its transactional ids (`names`). An id is reused for a later batch of a
stream: Spark starts that batch only when the one before is done, and no driver ends a transaction of a done batch any
more. Batch writes may overlap, so each of their tasks takes a new id.
"""

import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from rookery.base.errors import ApiError, ConfigError, ErrorCode
from rookery.base.values import value_class
from rookery.client.errors import ClientStateError
from rookery.client.sync import Producer
from rookery.spark.failures import LASTING_CODES
from rookery.spark.option_table import OptionError
from rookery.spark.options import WriteOptions
from rookery.spark.sink.columns import SinkColumns
from rookery.spark.sink.commit_protocol import Piece, SinkError
from rookery.spark.sink.digests import RowDigest
from rookery.spark.sink.names import PROCESS_NAME_LENGTH, task_id, tasks_name

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow as pa

    from rookery.client import BatchMetadata


@value_class(kw_only=True)
class TaskIdentity:
    """Identifies the task: its sink, batch and partition."""

    sink: str
    batch: int
    partition: int
    is_streaming: bool

    @property
    def tasks(self) -> str:
        return tasks_name(self.sink, self.batch, is_streaming=self.is_streaming)


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """A task's message to the driver. `piece` is None if the task had no rows, or wrote them without a transaction."""

    sink: str
    piece: Piece | None


class TaskIds:
    """The transactional ids of one process."""

    def __init__(self) -> None:
        self._process = secrets.token_hex(PROCESS_NAME_LENGTH // 2)
        self._lock = Lock()
        # By sink: the batch in which each number was last used; None if the number is never reused.
        self._used: dict[str, list[int | None]] = {}

    def take(self, identity: TaskIdentity) -> str:
        with self._lock:
            used = self._used.setdefault(identity.sink, [])
            free = (number for number, last in enumerate(used) if last is not None and last < identity.batch)
            number = next(free, len(used))
            used[number : number + 1] = [identity.batch if identity.is_streaming else None]
        return task_id(identity.tasks, self._process, number)


_ids: dict[int, TaskIds] = {}


def _ids_of_this_process() -> TaskIds:
    """Return the ids of this process. Spark forks its workers, and a fork must not share the parent's name."""
    return _ids.setdefault(os.getpid(), TaskIds())


def write_rows(
    options: WriteOptions, columns: SinkColumns, identity: TaskIdentity, batches: "Iterator[pa.RecordBatch]"
) -> TaskMessage:
    task = _TransactionalTask(options, identity) if options.delivery == "exactly-once" else _PlainTask(options)
    try:
        for rows in batches:
            if rows.num_rows:
                for part in columns.prepare(rows):
                    task.send(part)
        return TaskMessage(identity.sink, task.finish(identity.partition))
    except (ApiError, ConfigError) as error:
        task.abort()
        raise explain_error(error, options) from error
    except BaseException:
        task.abort()
        raise


class _Task(ABC):
    """A task that sends rows. The first rows create the producer."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._producer: Producer[bytes, bytes] | None = None

    def send(self, rows: "pa.RecordBatch") -> None:
        if self._producer is None:
            self._producer = self._start()
        self._sent(self._producer.send_arrow(rows, self._options.topic))

    def abort(self) -> None:
        if self._producer is not None:
            with suppress(ApiError, ClientStateError):
                self._producer.close(0)

    @abstractmethod
    def finish(self, partition: int) -> Piece | None: ...

    @abstractmethod
    def _start(self) -> Producer[bytes, bytes]: ...

    @abstractmethod
    def _sent(self, delivery: "Future[list[BatchMetadata]]") -> None: ...


class _PlainTask(_Task):
    def __init__(self, options: WriteOptions) -> None:
        super().__init__(options)
        self._deliveries: list[Future[list[BatchMetadata]]] = []

    def _start(self) -> Producer[bytes, bytes]:
        return Producer(self._options.client_config)

    def _sent(self, delivery: "Future[list[BatchMetadata]]") -> None:
        self._deliveries.append(delivery)

    def finish(self, partition: int) -> None:
        if self._producer is not None:
            self._producer.flush()
            for delivery in self._deliveries:
                delivery.result()
            self._producer.close()


class _TransactionalTask(_Task):
    def __init__(self, options: WriteOptions, identity: TaskIdentity) -> None:
        super().__init__(options)
        self._identity = identity
        self._digest = RowDigest()

    def _start(self) -> Producer[bytes, bytes]:
        producer: Producer[bytes, bytes] = Producer(
            {
                **self._options.client_config,
                "transactional.id": _ids_of_this_process().take(self._identity),
                "transaction.timeout.ms": self._options.transaction_timeout_ms,
            }
        )
        try:
            producer.init_transactions()
            producer.begin_transaction()
        except BaseException:
            producer.close(0)
            raise
        return producer

    def send(self, rows: "pa.RecordBatch") -> None:
        self._digest.update(rows)
        super().send(rows)

    def _sent(self, delivery: "Future[list[BatchMetadata]]") -> None:
        """Ignore the result: prepare_transaction fails if a delivery has failed."""

    def finish(self, partition: int) -> Piece | None:
        if self._producer is None:
            return None
        prepared = self._producer.prepare_transaction()
        self._producer.close()
        return Piece(partition, prepared, self._digest.row_count, self._digest.text())

    def abort(self) -> None:
        if self._producer is not None:
            with suppress(ApiError, ClientStateError):
                self._producer.abort_transaction()
        super().abort()


def explain_error(error: ApiError | ConfigError, options: WriteOptions) -> Exception:
    """Return an exception whose message tells the user of Spark what to do."""
    if isinstance(error, ConfigError):
        return OptionError(f"an option kafka.*: {error}")
    match error.code:
        case ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            return OptionError(
                f"option kafka.transaction.timeout.ms: {options.transaction_timeout_ms} is more than the broker allows "
                "(transaction.max.timeout.ms, by default 900000); lower the option, or raise the broker's setting"
            )
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if "column partition" in str(error):
            text = f"a row cannot be written: {error}. Correct the column 'partition', or add partitions to the topic"
            return SinkError(text, is_lasting=True)
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION | ErrorCode.INVALID_TOPIC_EXCEPTION:
            named = "the option topic" if options.topic is not None else "the column 'topic'"
            return SinkError(f"a topic cannot be written to: {error}. Check {named}, or create the topic")
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED | ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return SinkError(
                f"not allowed: {error}. The sink writes to its topics and to {options.ledger_topic} (option "
                "ledgerTopic), with transactional ids that begin with rookery-sink-",
                is_lasting=True,
            )
        case ErrorCode.MESSAGE_TOO_LARGE:
            return SinkError(
                f"a row cannot be written: {error}. A record must fit the option kafka.max.request.size and the "
                "topic's max.message.bytes: raise them, the latter with rookery configs alter",
                is_lasting=True,
            )
        case ErrorCode.NETWORK_EXCEPTION | ErrorCode.BROKER_NOT_AVAILABLE | ErrorCode.REQUEST_TIMED_OUT:
            servers = options.client_config.get("bootstrap.servers")
            return SinkError(f"the brokers at {servers} do not answer: {error}. Check kafka.bootstrap.servers")
        case _:
            return SinkError(str(error), is_lasting=error.code in LASTING_CODES)
