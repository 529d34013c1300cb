"""Transactions against an embedded broker, in both protocols, with lost responses."""

import asyncio

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.client.cluster import Cluster
from rookery.client.errors import (
    ClientStateError,
    CommitFailedError,
    FatalProducerError,
    ProducerFencedError,
    TransactionAbortableError,
)
from rookery.protocol.api import ApiKey
from tests.client.produce.transaction_stage import Group, Stage, committed_offset


def test_committed_records_are_visible_and_aborted_ones_are_not(stage: Stage) -> None:
    async def work(cluster: Cluster) -> None:
        transactions, writer = stage.transactions(cluster)
        await transactions.init()
        assert transactions.is_v2 is not stage.is_classic
        for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
            transactions.begin()
            await writer.write(stage.partition, value, value)
            await writer.write(stage.partition, value)
            await transactions.end(commit=commit)
        await stage.sees(cluster, [b"a"] * 3 + [b"c"] * 3, [b"a"] * 3 + [b"b"] * 3 + [b"c"] * 3)

    stage.run(work)


def test_a_newer_producer_fences_the_older(stage: Stage) -> None:
    async def work(cluster: Cluster) -> None:
        older, older_writer = stage.transactions(cluster)
        await older.init()
        older.begin()
        await older_writer.write(stage.partition, b"older")
        newer, newer_writer = stage.transactions(cluster)
        await newer.init()
        with pytest.raises(ProducerFencedError):
            await older.end(commit=True)
        with pytest.raises(ProducerFencedError):
            older.begin()
        newer.begin()
        await newer_writer.write(stage.partition, b"newer")
        await newer.end(commit=True)
        await stage.sees(cluster, [b"newer"], [b"older", b"newer"])

    stage.run(work)


def test_a_fenced_producer_cannot_write(stage: Stage) -> None:
    """A leader cannot distinguish fencing from a time-out: the transaction is aborted first, which tells them apart."""

    async def work(cluster: Cluster) -> None:
        older, older_writer = stage.transactions(cluster)
        newer, newer_writer = stage.transactions(cluster)
        await older.init()
        await newer.init()
        newer.begin()
        await newer_writer.write(stage.partition, b"newer")
        older.begin()
        if stage.is_classic:
            with pytest.raises(ProducerFencedError):
                await older_writer.write(stage.partition, b"older")
        else:
            with pytest.raises(ApiError) as caught:
                await older_writer.write(stage.partition, b"older")
            assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
            with pytest.raises(TransactionAbortableError):
                await older.end(commit=True)
        with pytest.raises(ProducerFencedError):
            await older.end(commit=False)
        await newer.end(commit=True)
        await stage.sees(cluster, [b"newer"], [b"newer"])

    stage.run(work)


def test_offsets_are_committed_with_the_transaction(stage: Stage) -> None:
    async def work(cluster: Cluster) -> None:
        transactions, writer = stage.transactions(cluster)
        await transactions.init()
        group = Group(stage.topic)
        for offset, commit, expected in ((3, True, 3), (5, False, 3), (7, True, 7)):
            transactions.begin()
            await writer.write(stage.partition, b"x")
            await transactions.send_offsets({stage.partition: offset}, group)
            await transactions.end(commit=commit)
            assert await committed_offset(cluster, stage.topic, stage.partition) == expected

    stage.run(work)


def test_offsets_of_an_unknown_member(stage: Stage) -> None:
    async def work(cluster: Cluster) -> None:
        transactions, writer = stage.transactions(cluster)
        await transactions.init()
        transactions.begin()
        await writer.write(stage.partition, b"a")
        with pytest.raises(CommitFailedError):
            await transactions.send_offsets({stage.partition: 1}, Group(stage.topic, 5, "stranger"))
        with pytest.raises(TransactionAbortableError):
            await transactions.end(commit=True)
        await transactions.end(commit=False)
        transactions.begin()
        await writer.write(stage.partition, b"b")
        await transactions.end(commit=True)
        await stage.sees(cluster, [b"b"], [b"a", b"b"])

    stage.run(work)


@pytest.mark.parametrize("carry_out", [True, False], ids=["done", "not-done"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_every_response_is_lost_once(stage: Stage, carry_out: bool, commit: bool) -> None:
    """The repetition of a request that took effect has no further effect."""

    async def work(cluster: Cluster) -> None:
        apis = [ApiKey.INIT_PRODUCER_ID, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN]
        if stage.is_classic:
            apis += [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN]
        faults = [stage.broker.faults.drop_connection(api_key, carry_out=carry_out) for api_key in apis]
        transactions, writer = stage.transactions(cluster)
        await transactions.init()
        transactions.begin()
        await writer.write(stage.partition, b"a")
        await transactions.send_offsets({stage.partition: 1}, Group(stage.topic))
        before = transactions.identity
        await transactions.end(commit=commit)
        assert [fault.hits for fault in faults] == [1] * len(faults)
        assert transactions.identity > before, "a late request has an older epoch"
        transactions.begin()
        await writer.write(stage.partition, b"b")
        await transactions.end(commit=True)
        await stage.sees(cluster, [b"a", b"b"] if commit else [b"b"], [b"a", b"b"])
        expected = 1 if commit else -1
        assert await committed_offset(cluster, stage.topic, stage.partition) == expected

    stage.run(work)


def test_a_failed_batch_can_only_be_aborted(stage: Stage) -> None:
    async def work(cluster: Cluster) -> None:
        transactions, writer = stage.transactions(cluster)
        await transactions.init()
        transactions.begin()
        await writer.write(stage.partition, b"a")
        stage.broker.faults.fail(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD)
        with pytest.raises(ApiError) as caught:
            await writer.write(stage.partition, b"bad")
        assert caught.value.code is ErrorCode.INVALID_RECORD
        for call in (transactions.check_may_send, transactions.begin):
            with pytest.raises(TransactionAbortableError):
                call()
        with pytest.raises(TransactionAbortableError):
            await transactions.end(commit=True)
        await transactions.end(commit=False)
        transactions.begin()
        await writer.write(stage.partition, b"b")
        await transactions.end(commit=True)
        await stage.sees(cluster, [b"b"], [b"a", b"b"])

    stage.run(work)


def test_a_transaction_that_timed_out_at_the_broker(stage: Stage) -> None:
    async def work(cluster: Cluster) -> None:
        slow, writer = stage.transactions(cluster)
        await slow.init()
        slow.begin()
        await writer.write(stage.partition, b"late")
        await asyncio.to_thread(stage.broker.advance_time, 65)
        # In v2 the coordinator treats it as a repeated commit of a transaction that was aborted.
        with pytest.raises(ProducerFencedError if stage.is_classic else FatalProducerError):
            await slow.end(commit=True)
        await stage.sees(cluster, [], [b"late"])
        again, writer = stage.transactions(cluster)
        await again.init()
        again.begin()
        await writer.write(stage.partition, b"in time")
        await again.end(commit=True)
        await stage.sees(cluster, [b"in time"], [b"late", b"in time"])

    stage.run(work)


@pytest.mark.parametrize("clean", [True, False], ids=["restart", "crash"])
def test_the_broker_restarts_before_the_commit(stage: Stage, clean: bool) -> None:
    async def work(cluster: Cluster) -> None:
        transactions, writer = stage.transactions(cluster)
        await transactions.init()
        transactions.begin()
        await writer.write(stage.partition, b"a")
        await asyncio.to_thread(stage.broker.restart, clean=clean)
        await writer.write(stage.partition, b"b")
        await transactions.end(commit=True)
        transactions.begin()
        await writer.write(stage.partition, b"c")
        await transactions.end(commit=False)
        await stage.sees(cluster, [b"a", b"b"], [b"a", b"b", b"c"])

    stage.run(work)


def test_an_abort_of_records_that_were_never_sent(stage: Stage) -> None:
    """In v2 the coordinator does not have the transaction, and accepts the abort nevertheless."""

    async def work(cluster: Cluster) -> None:
        transactions, writer = stage.transactions(cluster)
        await transactions.init()
        transactions.begin()
        transactions.add(stage.partition)
        await transactions.end(commit=False)
        transactions.begin()
        await writer.write(stage.partition, b"a")
        await transactions.end(commit=True)
        await stage.sees(cluster, [b"a"], [b"a"])

    stage.run(work)


def test_misuse_changes_nothing(stage: Stage) -> None:
    async def work(cluster: Cluster) -> None:
        transactions, writer = stage.transactions(cluster)
        with pytest.raises(ClientStateError, match="init_transactions"):
            transactions.begin()
        await transactions.init()
        with pytest.raises(ClientStateError, match="begin_transaction"):
            transactions.check_may_send()
        with pytest.raises(ClientStateError, match="begin_transaction"):
            await transactions.send_offsets({stage.partition: 1}, Group(stage.topic))
        transactions.begin()
        with pytest.raises(ClientStateError, match="commit_transaction"):
            transactions.begin()
        await writer.write(stage.partition, b"a")
        await transactions.end(commit=True)
        with pytest.raises(ClientStateError, match="begin_transaction"):
            await transactions.end(commit=True)
        await stage.sees(cluster, [b"a"], [b"a"])

    stage.run(work)
