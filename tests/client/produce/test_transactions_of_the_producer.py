"""Transactions through the whole producer, against an embedded broker, in both protocols."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.errors import (
    ClientStateError,
    CommitFailedError,
    DeliveryTimeoutError,
    FatalProducerError,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionAbortableError,
)
from rookery.client.produce.producer import Producer
from rookery.protocol.api import ApiKey
from tests.client.produce.transaction_stage import Group, Stage, committed_offset, read_values, until_done
from tests.client.skipping import skip_time

Bytes = Producer[bytes, bytes]


def new_producer(stage: Stage, **settings: object) -> Bytes:
    config: dict[str, object] = {
        "bootstrap.servers": stage.broker.bootstrap_servers,
        "transactional.id": stage.topic,
        "linger.ms": 0,
        "retry.backoff.ms": 10,
        "max.block.ms": 20_000,
    }
    return Producer(config | {name.replace("_", "."): value for name, value in settings.items()})


def run(stage: Stage, work: Callable[[Bytes, Cluster], Awaitable[None]], **settings: object) -> None:
    """Run `work` with an initialized producer, and with a cluster to read the records."""

    async def main(cluster: Cluster) -> None:
        async with new_producer(stage, **settings) as producer:
            await until_done(producer.init_transactions)
            await work(producer, cluster)

    stage.run(main)


async def send(producer: Bytes, stage: Stage, *values: bytes) -> "list[asyncio.Future[object]]":
    return [await producer.send(stage.topic, value, partition=0) for value in values]  # type: ignore[misc]


async def commits_only(producer: Bytes, stage: Stage, cluster: Cluster, value: bytes) -> None:
    """Commit a transaction with `value`, and check that no other record of the partition is visible."""
    producer.begin_transaction()
    await send(producer, stage, value)
    await producer.commit_transaction()
    async with asyncio.timeout(20):
        while await read_values(cluster, stage.partition, committed=True) != [value]:
            await asyncio.sleep(0.01)


def test_committed_records_are_visible_and_aborted_ones_are_not(stage: Stage) -> None:
    async def work(producer: Bytes, cluster: Cluster) -> None:
        for value, end in (
            (b"a", producer.commit_transaction),
            (b"b", producer.abort_transaction),
            (b"c", producer.commit_transaction),
        ):
            producer.begin_transaction()
            first, second = await send(producer, stage, value, value)
            await asyncio.gather(first, second)
            assert value not in await read_values(cluster, stage.partition, committed=True)
            await end()
        await stage.sees(cluster, [b"a", b"a", b"c", b"c"], [b"a", b"a", b"b", b"b", b"c", b"c"])

    run(stage, work)


async def fail_in_a_block(producer: Bytes, before: Callable[[], Awaitable[object]]) -> None:
    async with producer.transaction():
        await before()
        raise ZeroDivisionError


def test_a_block_is_committed_unless_it_fails(stage: Stage) -> None:
    async def work(producer: Bytes, cluster: Cluster) -> None:
        async def write() -> None:
            await asyncio.gather(*await send(producer, stage, b"b"))

        async with producer.transaction():
            await send(producer, stage, b"a")
        with pytest.raises(ZeroDivisionError):
            await fail_in_a_block(producer, write)
        async with producer.transaction():
            await send(producer, stage, b"c")
        await stage.sees(cluster, [b"a", b"c"], [b"a", b"b", b"c"])

    run(stage, work)


def test_a_block_whose_commit_fails_is_aborted(stage: Stage) -> None:
    async def work(producer: Bytes, cluster: Cluster) -> None:
        async def lose_a_record() -> None:
            async with producer.transaction():
                await send(producer, stage, b"a")
                with pytest.raises(RecordTooLargeError):
                    await send(producer, stage, bytes(2_000_000))

        with pytest.raises(TransactionAbortableError):
            await lose_a_record()
        await commits_only(producer, stage, cluster, b"b")

    run(stage, work)


def test_a_block_raises_that_its_producer_was_fenced(stage: Stage) -> None:
    async def work(producer: Bytes, _: Cluster) -> None:
        async def be_fenced() -> None:
            await asyncio.gather(*await send(producer, stage, b"a"))
            async with new_producer(stage) as newer:
                await until_done(newer.init_transactions)

        with pytest.raises(ProducerFencedError):
            await fail_in_a_block(producer, be_fenced)

    run(stage, work)


def test_a_commit_sends_waiting_records(stage: Stage) -> None:
    async def work(producer: Bytes, cluster: Cluster) -> None:
        producer.begin_transaction()
        values = [b"%d" % number for number in range(2000)]
        futures = await send(producer, stage, *values)
        await producer.commit_transaction()
        assert all(future.done() and future.exception() is None for future in futures)
        await stage.sees(cluster, values, values)

    run(stage, work, linger_ms=60_000, batch_size=4000)


def test_an_abort_drops_waiting_records(stage: Stage) -> None:
    async def work(producer: Bytes, cluster: Cluster) -> None:
        producer.begin_transaction()
        (future,) = await send(producer, stage, b"a")
        await producer.abort_transaction()
        assert isinstance(future.exception(), TransactionAbortableError)
        producer.begin_transaction()
        await send(producer, stage, b"b")
        await producer.commit_transaction()
        await stage.sees(cluster, [b"b"], [b"b"])

    run(stage, work, linger_ms=60_000)


def test_an_abort_waits_for_batches_on_the_wire(stage: Stage) -> None:
    """A batch that arrives after the abort would join the next transaction."""

    async def work(producer: Bytes, cluster: Cluster) -> None:
        delay = stage.broker.faults.delay(ApiKey.PRODUCE, 0.2)
        producer.begin_transaction()
        (future,) = await send(producer, stage, b"a")
        while not delay.hits:
            await asyncio.sleep(0)
        await producer.abort_transaction()
        assert future.done()
        producer.begin_transaction()
        await send(producer, stage, b"b")
        await producer.commit_transaction()
        await stage.sees(cluster, [b"b"], [b"a", b"b"])

    run(stage, work)


def test_many_partitions_and_topics_in_one_transaction(stage: Stage) -> None:
    async def work(producer: Bytes, cluster: Cluster) -> None:
        places = [TopicPartition(stage.topic, 0), TopicPartition(stage.topic, 1), TopicPartition(other, 0)]
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            for topic, partition in places:
                await producer.send(topic, b"x", partition=partition)
            await producer.flush()
            await end()
        for place in places:
            assert await read_values(cluster, place, committed=False) == [b"x", b"x"]
            async with asyncio.timeout(20):
                while await read_values(cluster, place, committed=True) != [b"x"]:
                    await asyncio.sleep(0.01)

    other = f"{stage.topic}-other"
    stage.broker.create_topic(other, partitions=1)
    run(stage, work)


def test_a_commit_with_a_failed_batch_raises_and_can_be_aborted(stage: Stage) -> None:
    async def work(producer: Bytes, cluster: Cluster) -> None:
        producer.begin_transaction()
        await asyncio.gather(*await send(producer, stage, b"a"))
        stage.broker.faults.fail(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD)
        (future,) = await send(producer, stage, b"bad")
        with pytest.raises(TransactionAbortableError) as caught:
            await producer.commit_transaction()
        assert caught.value.code is ErrorCode.INVALID_RECORD
        error = future.exception()
        assert isinstance(error, ApiError)
        assert error.code is ErrorCode.INVALID_RECORD
        with pytest.raises(TransactionAbortableError):
            await producer.send(stage.topic, b"more")
        await producer.abort_transaction()
        producer.begin_transaction()
        await send(producer, stage, b"b")
        await producer.commit_transaction()
        await stage.sees(cluster, [b"b"], [b"a", b"b"])

    run(stage, work)


def test_a_record_that_is_not_accepted_prevents_the_commit(stage: Stage) -> None:
    async def work(producer: Bytes, cluster: Cluster) -> None:
        producer.begin_transaction()
        await send(producer, stage, b"a")
        with pytest.raises(RecordTooLargeError):
            await producer.send(stage.topic, b"x" * 5000)
        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await commits_only(producer, stage, cluster, b"b")

    run(stage, work, max_request_size=4000)


def test_a_batch_that_expires_fails_the_transaction(stage: Stage) -> None:
    """It may still be written, but not in the next transaction, which has a new epoch."""

    async def work(producer: Bytes, cluster: Cluster) -> None:
        fault = stage.broker.faults.drop_connection(ApiKey.PRODUCE, times=None)
        producer.begin_transaction()
        (future,) = await send(producer, stage, b"a")
        commit = asyncio.create_task(producer.commit_transaction())
        while fault.hits < 2:
            await asyncio.sleep(0)
        skip_time(60)
        with pytest.raises(TransactionAbortableError):
            await commit
        assert isinstance(future.exception(), DeliveryTimeoutError)
        fault.cancel()
        await producer.abort_transaction()
        producer.begin_transaction()
        await send(producer, stage, b"b")
        await producer.commit_transaction()
        await stage.sees(cluster, [b"b"], [b"b"])

    run(stage, work, delivery_timeout_ms=60_000, max_block_ms=120_000)


@pytest.mark.parametrize("carry_out", [True, False], ids=["done", "not-done"])
def test_every_response_is_lost_once(stage: Stage, carry_out: bool) -> None:
    async def work(producer: Bytes, cluster: Cluster) -> None:
        apis = [ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN]
        if stage.is_classic:
            apis += [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN]
        for number, end in enumerate((producer.commit_transaction, producer.abort_transaction) * 2):
            faults = [stage.broker.faults.drop_connection(api_key, carry_out=carry_out) for api_key in apis]
            producer.begin_transaction()
            await asyncio.gather(*await send(producer, stage, b"%d" % number, b"x"))
            await producer.send_offsets_to_transaction({stage.partition: number}, Group(stage.topic))
            await end()
            assert [fault.hits for fault in faults] == [1] * len(faults)
        await stage.sees(
            cluster, [b"0", b"x", b"2", b"x"], [value for number in b"0123" for value in (bytes([number]), b"x")]
        )
        assert await committed_offset(cluster, stage.topic, stage.partition) == 2

    run(stage, work)


def test_a_newer_producer_fences_the_older(stage: Stage) -> None:
    async def work(older: Bytes, cluster: Cluster) -> None:
        older.begin_transaction()
        await asyncio.gather(*await send(older, stage, b"older"))
        async with new_producer(stage) as newer:
            await newer.init_transactions()
            with pytest.raises(ProducerFencedError):
                await older.commit_transaction()
            with pytest.raises(ProducerFencedError):
                await older.send(stage.topic, b"more")
            with pytest.raises(ProducerFencedError):
                await older.abort_transaction()
            newer.begin_transaction()
            await send(newer, stage, b"newer")
            await newer.commit_transaction()
        await stage.sees(cluster, [b"newer"], [b"older", b"newer"])

    run(stage, work)


def test_a_fenced_producer_cannot_write(stage: Stage) -> None:
    async def work(older: Bytes, cluster: Cluster) -> None:
        async with new_producer(stage) as newer:
            await newer.init_transactions()
            newer.begin_transaction()
            await asyncio.gather(*await send(newer, stage, b"newer"))
            older.begin_transaction()
            await send(older, stage, b"older")
            with pytest.raises((ProducerFencedError, TransactionAbortableError)):
                await older.commit_transaction()
            with pytest.raises(ProducerFencedError):
                await older.abort_transaction()
            await newer.commit_transaction()
        await stage.sees(cluster, [b"newer"], [b"newer"])

    run(stage, work)


def test_offsets_are_committed_with_the_transaction(stage: Stage) -> None:
    async def work(producer: Bytes, cluster: Cluster) -> None:
        group = Group(stage.topic)
        for offset, end, expected in (
            (3, producer.commit_transaction, 3),
            (5, producer.abort_transaction, 3),
            (7, producer.commit_transaction, 7),
        ):
            producer.begin_transaction()
            await send(producer, stage, b"x")
            await producer.send_offsets_to_transaction({stage.partition: offset}, group)
            await end()
            assert await committed_offset(cluster, stage.topic, stage.partition) == expected
        producer.begin_transaction()
        with pytest.raises(CommitFailedError):
            await producer.send_offsets_to_transaction({stage.partition: 9}, Group(stage.topic, 5, "stranger"))
        await producer.abort_transaction()
        producer.begin_transaction()

    run(stage, work)


def test_a_transaction_that_timed_out_at_the_broker(stage: Stage) -> None:
    async def work(producer: Bytes, cluster: Cluster) -> None:
        producer.begin_transaction()
        await asyncio.gather(*await send(producer, stage, b"late"))
        await asyncio.to_thread(stage.broker.advance_time, 65)
        with pytest.raises(ProducerFencedError if stage.is_classic else FatalProducerError):
            await producer.commit_transaction()
        await stage.sees(cluster, [], [b"late"])

    run(stage, work, transaction_timeout_ms=60_000)


@pytest.mark.parametrize("clean", [True, False], ids=["restart", "crash"])
def test_the_broker_restarts_before_the_commit(stage: Stage, clean: bool) -> None:
    async def work(producer: Bytes, cluster: Cluster) -> None:
        producer.begin_transaction()
        await asyncio.gather(*await send(producer, stage, b"a"))
        await asyncio.to_thread(stage.broker.restart, clean=clean)
        await send(producer, stage, b"b")
        await producer.commit_transaction()
        producer.begin_transaction()
        await send(producer, stage, b"c")
        await producer.flush()
        await producer.abort_transaction()
        await stage.sees(cluster, [b"a", b"b"], [b"a", b"b", b"c"])

    run(stage, work)


def test_a_commit_that_timed_out_is_continued(stage: Stage) -> None:
    async def work(producer: Bytes, cluster: Cluster) -> None:
        producer.begin_transaction()
        await asyncio.gather(*await send(producer, stage, b"a"))
        fault = stage.broker.faults.fail(ApiKey.END_TXN, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None)
        commit = asyncio.create_task(producer.commit_transaction())
        while fault.hits < 2:
            await asyncio.sleep(0)
        skip_time(20)
        with pytest.raises(ApiError, match=r"max\.block\.ms") as caught:
            await commit
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        with pytest.raises(ClientStateError, match="commit_transaction"):
            await producer.abort_transaction()
        fault.cancel()
        await until_done(producer.commit_transaction)
        await stage.sees(cluster, [b"a"], [b"a"])

    run(stage, work)


def test_a_commit_that_waited_too_long_for_records_is_continued(stage: Stage) -> None:
    async def work(producer: Bytes, cluster: Cluster) -> None:
        producer.begin_transaction()
        await asyncio.gather(*await send(producer, stage, b"a"))
        fault = stage.broker.faults.fail(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, times=None)
        await send(producer, stage, b"b")
        commit = asyncio.create_task(producer.commit_transaction())
        while fault.hits < 2:
            await asyncio.sleep(0)
        skip_time(20)
        with pytest.raises(ApiError, match=r"max\.block\.ms"):
            await commit
        with pytest.raises(ClientStateError, match="commit_transaction"):
            await producer.send(stage.topic, b"c")
        fault.cancel()
        await until_done(producer.commit_transaction)
        await stage.sees(cluster, [b"a", b"b"], [b"a", b"b"])

    run(stage, work)


def test_an_abort_does_not_wait_for_partitions_that_cannot_be_added(stage: Stage) -> None:
    async def work(producer: Bytes, cluster: Cluster) -> None:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        fault = stage.broker.faults.fail(ApiKey.ADD_PARTITIONS_TO_TXN, code, times=None)
        producer.begin_transaction()
        (future,) = await send(producer, stage, b"a")
        while stage.is_classic and not fault.hits:
            await asyncio.sleep(0)
        await producer.abort_transaction()
        assert future.done()
        fault.cancel()
        await commits_only(producer, stage, cluster, b"b")

    run(stage, work)


def test_an_abort_does_not_wait_for_a_retry_after_it_dropped_a_batch(stage: Stage) -> None:
    """A dropped batch leaves a gap, and in a transaction no batch is sent after a gap."""

    async def work(producer: Bytes, cluster: Cluster) -> None:
        faults = stage.broker.faults
        producer.begin_transaction()
        await asyncio.gather(*await send(producer, stage, b"a"))
        # One batch is on the wire, and another one waits because its request has a new partition, too.
        faults.fail(ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None)
        faults.fail(ApiKey.PRODUCE, ErrorCode.REQUEST_TIMED_OUT)
        (retried,) = await send(producer, stage, b"b")
        sends = (producer.send(stage.topic, value, partition=index) for index, value in enumerate((b"c", b"d")))
        dropped = await asyncio.gather(*sends)
        while stage.is_classic and not producer._accumulator.queue(stage.partition).waiting:
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await producer.abort_transaction()
        assert retried.done()
        assert all(future.done() for future in dropped)
        faults.clear()
        await commits_only(producer, stage, cluster, b"e")

    run(stage, work, retry_backoff_ms=300)


def test_an_abort_does_not_wait_for_a_retry_after_a_batch_has_failed(stage: Stage) -> None:
    """A batch that is retried while the abort waits would never be sent: the failed one left a gap."""

    async def work(producer: Bytes, cluster: Cluster) -> None:
        faults = stage.broker.faults
        producer.begin_transaction()
        await asyncio.gather(*await send(producer, stage, b"a"))
        faults.fail(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD)
        faults.fail(ApiKey.PRODUCE, ErrorCode.REQUEST_TIMED_OUT)
        # Two batches: the first leaves a gap, and the second is retried after it.
        sends = (producer.send(stage.topic, value * 60, partition=0) for value in (b"b", b"c"))
        sent = await asyncio.gather(*sends)
        async with asyncio.timeout(10):
            await producer.abort_transaction()
        assert all(future.done() for future in sent)
        faults.clear()
        await commits_only(producer, stage, cluster, b"e")

    run(stage, work, batch_size=150)


def test_a_record_that_waits_during_the_commit_is_rejected(stage: Stage) -> None:
    async def work(producer: Bytes, cluster: Cluster) -> None:
        producer.begin_transaction()
        # The record waits for the topic's metadata.
        late = asyncio.create_task(producer.send(stage.topic, b"late"))
        await asyncio.sleep(0)
        await producer.commit_transaction()
        with pytest.raises(ClientStateError, match="send"):
            await late
        producer.begin_transaction()
        await send(producer, stage, b"a")
        await producer.commit_transaction()
        await stage.sees(cluster, [b"a"], [b"a"])

    run(stage, work)


def test_a_cancelled_commit_that_was_not_sent_can_be_aborted(stage: Stage) -> None:
    async def work(producer: Bytes, cluster: Cluster) -> None:
        for end in (producer.abort_transaction, producer.close):
            producer.begin_transaction()
            await asyncio.gather(*await send(producer, stage, b"a"))
            delay = stage.broker.faults.delay(ApiKey.PRODUCE, 0.1)
            await send(producer, stage, b"b")
            commit = asyncio.create_task(producer.commit_transaction())
            while not delay.hits:
                await asyncio.sleep(0)
            commit.cancel()
            with pytest.raises(asyncio.CancelledError):
                await commit
            await end()
        # No transaction is open, and no record is visible.
        await stage.sees(cluster, [], [b"a", b"b", b"a", b"b"])

    run(stage, work)


def test_records_of_an_aborted_transaction_log_nothing(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """An abort is no error, and the error of a transaction is raised by its commit."""

    async def work(producer: Bytes, cluster: Cluster) -> None:
        producer.begin_transaction()
        await send(producer, stage, b"a", b"b")
        await producer.abort_transaction()
        gc.collect()

    with caplog.at_level(logging.ERROR):
        run(stage, work, linger_ms=10_000)
    assert [line.message for line in caplog.records if "never retrieved" in line.message] == []


def test_closing_aborts_an_open_transaction(stage: Stage) -> None:
    async def work(cluster: Cluster) -> None:
        async with new_producer(stage) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await asyncio.gather(*await send(producer, stage, b"a"))
        await stage.sees(cluster, [], [b"a"])
        partition = stage.partition
        assert await read_values(cluster, partition, committed=True) == []

    stage.run(work)


def test_errors_name_the_required_call(stage: Stage) -> None:
    async def work(cluster: Cluster) -> None:
        async with new_producer(stage) as producer:
            for call in (
                lambda: producer.send(stage.topic, b"x"),
                producer.commit_transaction,
                producer.abort_transaction,
            ):
                with pytest.raises(ClientStateError, match="init_transactions"):
                    await call()
            await producer.init_transactions()
            with pytest.raises(ClientStateError, match="begin_transaction"):
                await producer.send(stage.topic, b"x")
        async with Producer[bytes, bytes]({"bootstrap.servers": stage.broker.bootstrap_servers}) as plain:
            with pytest.raises(ClientStateError, match=r"transactional\.id"):
                await plain.init_transactions()
            with pytest.raises(ClientStateError, match=r"transactional\.id"):
                plain.begin_transaction()

    stage.run(work)
