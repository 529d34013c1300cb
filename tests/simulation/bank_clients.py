"""The clients with which workers write transactions: request by request, or with Rookery's producer.

`TransactionalProducer` (tests.support.transactions) sends each request separately, in a given protocol, and keeps its
requests, so that they can be sent again late. `ReusingProducer` does the same in the classic protocol, and reuses
sequence numbers like librdkafka. `WholeClient` is Rookery's producer as programs use it, in the protocol of the
cluster's feature transaction.version. `bank.Worker` uses all of them through the same methods.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

from rookery.base.errors import ApiError
from rookery.base.types import Offset, TopicPartition
from rookery.client.errors import FatalProducerError, ProducerFencedError, TransactionAbortableError
from rookery.client.produce.sequences import NO_IDENTITY, ProducerIdentity
from rookery.records.batch import read_header
from tests.simulation.users import REQUEST_TIMEOUT_S, new_producer
from tests.simulation.world import World
from tests.support.transactions import AbortableError, Batch, Ended, GroupName, TransactionalProducer

# As Kafka's documentation demands, a commit or an abort that timed out is called again.
_CALLS_MAX = 3
_DELIVERY_TIMEOUT_S_MIN = 5.0
_POLL_INTERVAL_S = 0.05


class ReusingProducer(TransactionalProducer):
    """Drops a batch with its transaction if the node dies before it responds, and reuses the batch's numbers.

    The epoch stays the same: a request that was sent to a dead node cannot arrive late. `boots` counts the node's
    processes.
    """

    boots: Callable[[], int]
    # How long to wait for another process of the node before the batch is sent again.
    patience_s: float

    async def _produce(self, batches: Iterable[Batch]) -> dict[TopicPartition, Offset]:
        waiting = {batch.partition: batch for batch in batches}
        offsets: dict[TopicPartition, Offset] = {}
        process = self.boots()
        failure = await self._produce_once(waiting, offsets)
        if failure is None:
            return offsets
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self.patience_s
        while self.boots() == process and loop.time() < deadline_s:
            await asyncio.sleep(_POLL_INTERVAL_S)
        if self.boots() == process:
            return offsets | await super()._produce(waiting.values())
        for partition, batch in waiting.items():
            self._next_sequences[partition] = read_header(batch.data).base_sequence
        raise AbortableError(failure, "the node died before it responded")


class WholeClient:
    """Rookery's producer for one instance. `patience_s` is the time-out of each call."""

    def __init__(
        self,
        world: World,
        transactional_id: str,
        *,
        bootstrap: str,
        randomness: Random,
        transaction_timeout_ms: int,
        patience_s: float,
    ) -> None:
        assert _DELIVERY_TIMEOUT_S_MIN > REQUEST_TIMEOUT_S
        self._producer = new_producer(
            world,
            name=transactional_id,
            bootstrap=bootstrap,
            randomness=randomness,
            settings={
                "transactional.id": transactional_id,
                "transaction.timeout.ms": transaction_timeout_ms,
                "max.block.ms": int(patience_s * 1000),
                "delivery.timeout.ms": int(max(patience_s, _DELIVERY_TIMEOUT_S_MIN) * 1000),
            },
        )
        self._is_open = False

    @property
    def identity(self) -> ProducerIdentity:
        transactions = self._producer._transactions
        return NO_IDENTITY if transactions is None else transactions.identity

    async def init(self) -> None:
        await self._producer.init_transactions()

    async def produce(self, values: Mapping[TopicPartition, Sequence[bytes]]) -> dict[TopicPartition, Offset]:
        """Write the values; returns the offset of the first record in each partition."""
        self._begin()
        try:
            sent = [
                (partition, await self._producer.send(partition.topic, value, partition=partition.partition))
                for partition, some in values.items()
                for value in some
            ]
            await asyncio.gather(*(landed for _, landed in sent))
        except ApiError as error:
            raise _as_abortable(error) from error
        return {partition: landed.result().offset for partition, landed in reversed(sent)}

    async def send_offsets(self, group: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        self._begin()
        try:
            await self._producer.send_offsets_to_transaction(offsets, GroupName(group))
        except ApiError as error:
            raise _as_abortable(error) from error

    async def end(self, *, commit: bool) -> Ended:
        """End the transaction. After UNKNOWN and REJECTED only another instance can continue."""
        if not self._is_open:
            return Ended.DONE
        for number in range(1, _CALLS_MAX + 1):
            try:
                await (self._producer.commit_transaction() if commit else self._producer.abort_transaction())
            except TransactionAbortableError:
                # On the first call it is certain that the transaction was not committed.
                return Ended.REJECTED if number == 1 else Ended.UNKNOWN
            except ApiError as error:
                if not error.code.retriable or number == _CALLS_MAX:
                    return Ended.UNKNOWN
            else:
                break
        self._is_open = False
        return Ended.DONE

    async def close(self) -> None:
        """Close the producer, which aborts an open transaction."""
        await self._producer.close()

    def _begin(self) -> None:
        if not self._is_open:
            self._producer.begin_transaction()
            self._is_open = True


def _as_abortable(error: ApiError) -> ApiError:
    """Return the error as AbortableError, because it ends only the transaction, unless it ends the producer."""
    if isinstance(error, ProducerFencedError | FatalProducerError):
        return error
    return AbortableError(error.code, error.message)
