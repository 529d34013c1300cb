"""The requests of a transactional producer, to a scripted coordinator."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.errors import (
    ClientStateError,
    CommitFailedError,
    DeliveryTimeoutError,
    FatalProducerError,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionAbortableError,
)
from rookery.client.produce.sequences import NO_IDENTITY, ProducerIdentity
from rookery.client.produce.transaction_calls import Transactions
from rookery.protocol.api import ApiKey
from tests.client.produce.transaction_stage import (
    CLASSIC,
    LOST,
    OK,
    SILENT,
    V2,
    Group,
    Position,
    ScriptedCoordinator,
    Step,
    run_scripted,
    until_done,
)
from tests.client.skipping import skip_time

T0, T1, T2 = (TopicPartition("t", index) for index in range(3))
INIT, ADD, ADD_OFFSETS, COMMIT_OFFSETS, END = (
    "INIT_PRODUCER_ID",
    "ADD_PARTITIONS_TO_TXN",
    "ADD_OFFSETS_TO_TXN",
    "TXN_OFFSET_COMMIT",
    "END_TXN",
)
LEVELS = pytest.mark.parametrize("level", [CLASSIC, V2])
Work = Callable[[Transactions, ScriptedCoordinator], Coroutine[Any, Any, None]]


async def begin(transactions: Transactions, *partitions: TopicPartition) -> None:
    if transactions.identity == NO_IDENTITY:
        await transactions.init()
    transactions.begin()
    for partition in partitions:
        transactions.check_may_send()
        transactions.add(partition)
    await transactions.ensure_added(partitions)


async def begin_until_timeout(
    transactions: Transactions, broker: ScriptedCoordinator, partition: TopicPartition
) -> None:
    """Begin, and add partitions until delivery.timeout.ms has passed, after a few attempts."""
    beginning = asyncio.create_task(begin(transactions, partition))
    while len(broker.requests_of(ApiKey.ADD_PARTITIONS_TO_TXN)) < 3:
        await asyncio.sleep(0)
    skip_time(10)
    await beginning


# Requests


def test_the_classic_protocol_adds_partitions_and_keeps_the_epoch() -> None:
    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        identities: list[ProducerIdentity] = []
        transactions.on_identity_changed = identities.append
        for commit in (True, False):
            await begin(transactions, T1, T0)
            await transactions.ensure_added([T0, T1])
            await transactions.ensure_added([T2])
            await transactions.end(commit=commit)
        assert broker.transaction_requests() == [INIT, ADD, ADD, END, ADD, ADD, END]
        added = [
            request.v3_and_below_topics[0].partitions for request in broker.requests_of(ApiKey.ADD_PARTITIONS_TO_TXN)
        ]
        assert added == [[0, 1], [2]] * 2
        assert [request.committed for request in broker.requests_of(ApiKey.END_TXN)] == [True, False]
        assert broker.versions_of(ApiKey.END_TXN) == {4}
        assert identities == [ProducerIdentity(7, 0)]

    run_scripted(work, level=CLASSIC)


def test_v2_adds_nothing_and_ends_with_a_new_epoch() -> None:
    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        identities: list[ProducerIdentity] = []
        transactions.on_identity_changed = identities.append
        for commit in (True, False):
            await begin(transactions, T0)
            await transactions.end(commit=commit)
        assert broker.transaction_requests() == [INIT, END, END]
        assert [request.producer_epoch for request in broker.requests_of(ApiKey.END_TXN)] == [0, 1]
        assert broker.versions_of(ApiKey.END_TXN) == {5}
        assert identities == [ProducerIdentity(7, epoch) for epoch in range(3)]

    run_scripted(work, level=V2)


def test_waiting_partitions_are_added_in_one_request() -> None:
    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        await transactions.init()
        transactions.begin()
        for partition in (T0, T1, T2):
            transactions.add(partition)
        await asyncio.gather(*(transactions.ensure_added([partition]) for partition in (T0, T1, T2)))
        assert broker.transaction_requests() == [INIT, ADD]

    run_scripted(work, level=CLASSIC)


@LEVELS
def test_offsets_are_sent_with_their_group(level: int) -> None:
    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        await begin(transactions)
        group = Group("g", 5, "member", "instance")
        await transactions.send_offsets({}, group)
        await transactions.send_offsets({T0: Position(3, 2, "note"), T1: 4}, group)
        await transactions.send_offsets({T0: 5}, group)
        await transactions.end(commit=True)
        added = [ADD_OFFSETS] if level == CLASSIC else []
        assert broker.transaction_requests() == [INIT, *added, COMMIT_OFFSETS, COMMIT_OFFSETS, END]
        assert broker.versions_of(ApiKey.TXN_OFFSET_COMMIT) == {4 if level == CLASSIC else 5}
        request = broker.requests_of(ApiKey.TXN_OFFSET_COMMIT)[0]
        assert (request.group_id, request.generation_id, request.member_id) == ("g", 5, "member")
        assert (request.group_instance_id, request.transactional_id) == ("instance", "mine")
        rows = [
            (row.partition_index, row.committed_offset, row.committed_leader_epoch, row.committed_metadata)
            for row in request.topics[0].partitions
        ]
        assert rows == [(0, 3, 2, "note"), (1, 4, -1, "")]

    run_scripted(work, level=level)


def test_a_generation_without_a_member_is_rejected() -> None:
    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        await begin(transactions)
        with pytest.raises(ClientStateError, match="member id"):
            await transactions.send_offsets({T0: 1}, Group("g", 5))

    run_scripted(work)


@LEVELS
def test_a_transaction_without_records_sends_no_request(level: int) -> None:
    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        for commit in (True, False):
            await begin(transactions)
            await transactions.end(commit=commit)
        assert broker.transaction_requests() == [INIT]

    run_scripted(work, level=level)


@pytest.mark.parametrize(("level", "is_v2"), [(0, False), (1, False), (2, True), (3, True)])
def test_the_feature_level_determines_the_protocol(level: int, is_v2: bool) -> None:
    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        assert not transactions.is_v2
        await transactions.init()
        assert transactions.is_v2 is is_v2

    run_scripted(work, level=level)


def test_a_cluster_that_is_upgraded_during_a_transaction() -> None:
    """The transaction ends with its protocol; the next one uses the newer protocol, with a new epoch."""

    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        await begin(transactions, T0)
        broker.level = V2
        broker.script[ApiKey.END_TXN] = [LOST]
        await transactions.end(commit=True)
        assert broker.versions_of(ApiKey.END_TXN) == {4}
        await begin(transactions, T0)
        broker.script[ApiKey.END_TXN] = [LOST]
        await transactions.end(commit=True)
        assert transactions.is_v2
        await begin(transactions, T0)
        await transactions.end(commit=True)
        assert broker.transaction_requests() == [INIT, ADD, END, END, INIT, ADD, END, END, INIT, END]

    run_scripted(work, level=CLASSIC)


# Retries

RETRIED: list[Step] = [
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.REQUEST_TIMED_OUT,
    LOST,
]
ALL_APIS = [
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
]


@LEVELS
@pytest.mark.parametrize("step", RETRIED, ids=lambda step: step.name if isinstance(step, ErrorCode) else "lost")
def test_every_request_is_retried(level: int, step: Step) -> None:
    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        broker.script = {api_key: [step, OK] for api_key in ALL_APIS}
        broker.script[ApiKey.FIND_COORDINATOR] = [ErrorCode.COORDINATOR_NOT_AVAILABLE, OK]
        await begin(transactions, T0)
        await transactions.send_offsets({T0: 1}, Group())
        await transactions.end(commit=True)
        added = [ADD, ADD, ADD_OFFSETS, ADD_OFFSETS] if level == CLASSIC else []
        # After a lost response the classic protocol raises the epoch.
        raised = [INIT] if level == CLASSIC and step is LOST else []
        assert broker.transaction_requests() == [INIT, INIT, *added, COMMIT_OFFSETS, COMMIT_OFFSETS, END, END, *raised]
        transactions.begin()

    run_scripted(work, level=level)


def test_the_epoch_is_raised_with_the_current_identity() -> None:
    """So that the coordinator can distinguish this producer from a fenced one (KIP-360)."""

    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        await begin(transactions, T0)
        transactions.on_batch_failed(T0, DeliveryTimeoutError("too late"))
        await transactions.end(commit=False)
        first, second = broker.requests_of(ApiKey.INIT_PRODUCER_ID)
        assert (first.producer_id, first.producer_epoch) == (-1, -1)
        assert (second.producer_id, second.producer_epoch) == (7, 0)
        assert transactions.identity == ProducerIdentity(7, 1)

    run_scripted(work, level=CLASSIC)


# Errors

FENCED = [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH]
FATAL = [
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
]
FAILURES: list[tuple[ApiKey, ErrorCode, type[ApiError]]] = [
    *((api_key, code, ProducerFencedError) for api_key in ALL_APIS for code in FENCED),
    *((api_key, code, FatalProducerError) for api_key in ALL_APIS[1:] for code in FATAL),
    (ApiKey.INIT_PRODUCER_ID, ErrorCode.INVALID_TRANSACTION_TIMEOUT, FatalProducerError),
    (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.TOPIC_AUTHORIZATION_FAILED, TransactionAbortableError),
    (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.UNKNOWN_PRODUCER_ID, TransactionAbortableError),
    (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.OPERATION_NOT_ATTEMPTED, TransactionAbortableError),
    (ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.GROUP_AUTHORIZATION_FAILED, TransactionAbortableError),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.GROUP_AUTHORIZATION_FAILED, TransactionAbortableError),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION, CommitFailedError),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.UNKNOWN_MEMBER_ID, CommitFailedError),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.FENCED_INSTANCE_ID, CommitFailedError),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, FatalProducerError),
    *((api_key, ErrorCode.TRANSACTION_ABORTABLE, TransactionAbortableError) for api_key in ALL_APIS),
    (ApiKey.END_TXN, ErrorCode.UNKNOWN_SERVER_ERROR, FatalProducerError),
]


@pytest.mark.parametrize(("api_key", "code", "kind"), FAILURES)
def test_the_exception_for_each_error_code(api_key: ApiKey, code: ErrorCode, kind: type[ApiError]) -> None:
    """After an abortable error the producer can write another transaction, after a fatal one it cannot."""

    async def transaction(transactions: Transactions) -> None:
        await begin(transactions, T0)
        await transactions.send_offsets({T0: 1}, Group())
        await transactions.end(commit=True)

    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        broker.script[api_key] = [code]
        with pytest.raises(kind) as caught:
            await transaction(transactions)
        assert caught.value.code is code
        assert "mine" in str(caught.value)
        if kind in (ProducerFencedError, FatalProducerError):
            for call in (transactions.init, lambda: transactions.end(commit=False)):
                with pytest.raises(kind):
                    await call()
        else:
            with pytest.raises(TransactionAbortableError, match="abort_transaction"):
                await transactions.end(commit=True)
            await transactions.end(commit=False)
            await transaction(transactions)

    run_scripted(work, level=CLASSIC)


def test_an_abort_that_is_rejected_is_fatal() -> None:
    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        broker.script[ApiKey.END_TXN] = [ErrorCode.TRANSACTION_ABORTABLE]
        await begin(transactions, T0)
        with pytest.raises(FatalProducerError):
            await transactions.end(commit=False)

    run_scripted(work)


def test_init_may_be_called_again_once_it_is_allowed() -> None:
    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        broker.script[ApiKey.INIT_PRODUCER_ID] = [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
        with pytest.raises(ApiError) as caught:
            await transactions.init()
        assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        await transactions.init()
        transactions.begin()

    run_scripted(work)


@LEVELS
def test_the_error_of_one_of_several_partitions_is_raised(level: int) -> None:
    """An error that is not retriable takes precedence over retriable ones."""

    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        answer = broker._commit_offsets

        def mixed(version: int, request: Any) -> Any:
            response = answer(version, request)
            assert response is not None
            first, _, third = response.topics[0].partitions
            first.error_code, third.error_code = ErrorCode.NOT_COORDINATOR, ErrorCode.ILLEGAL_GENERATION
            return response

        broker.answers[ApiKey.TXN_OFFSET_COMMIT] = mixed
        await begin(transactions)
        with pytest.raises(CommitFailedError):
            await transactions.send_offsets({T0: 1, T1: 1, T2: 1}, Group())

    run_scripted(work, level=level)


# Time-outs


async def times_out(call: Coroutine[Any, Any, None]) -> None:
    with pytest.raises(ApiError, match=r"max\.block\.ms.*call again") as caught:
        await call
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT


@LEVELS
@pytest.mark.parametrize("step", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, SILENT], ids=["loading", "silent"])
def test_a_call_that_timed_out_is_continued(level: int, step: Step) -> None:
    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        broker.script[ApiKey.INIT_PRODUCER_ID] = [step] * 10_000
        await times_out(transactions.init())
        with pytest.raises(ClientStateError, match=r"init_transactions\(\) is not done"):
            transactions.begin()
        broker.script.clear()
        await until_done(transactions.init)
        await begin(transactions, T0)
        broker.script[ApiKey.END_TXN] = [step] * 10_000
        await times_out(transactions.end(commit=True))
        with pytest.raises(ClientStateError, match=r"commit_transaction\(\) is not done"):
            await transactions.end(commit=False)
        broker.script.clear()
        await until_done(lambda: transactions.end(commit=True))
        requests = broker.requests_of(ApiKey.END_TXN)
        assert {request.committed for request in requests} == {True}
        assert len({request.producer_epoch for request in requests}) == 1, "the same request is repeated"
        transactions.begin()

    run_scripted(work, level=level, max_block_ms=60)


@LEVELS
def test_a_commit_includes_offsets_whose_call_timed_out(level: int) -> None:
    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        await until_done(transactions.init)
        transactions.begin()
        broker.script[ApiKey.TXN_OFFSET_COMMIT] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 10_000
        await times_out(transactions.send_offsets({T0: 1}, Group()))
        broker.script.clear()
        count_before = len(broker.transaction_requests())
        await until_done(lambda: transactions.end(commit=True))
        requests = broker.transaction_requests()[count_before:]
        assert requests.index(COMMIT_OFFSETS) < requests.index(END)

    run_scripted(work, level=level, max_block_ms=60)


@LEVELS
def test_a_commit_that_is_cancelled_is_continued(level: int) -> None:
    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        await begin(transactions, T0)
        broker.script[ApiKey.END_TXN] = [SILENT]
        commit = asyncio.create_task(transactions.end(commit=True))
        while END not in broker.transaction_requests():
            await asyncio.sleep(0)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        assert transactions.is_open
        await transactions.end(commit=True)
        assert not transactions.is_open

    run_scripted(work, level=level)


def test_partitions_that_cannot_be_added_in_time_fail_the_transaction() -> None:
    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        broker.script[ApiKey.ADD_PARTITIONS_TO_TXN] = [ErrorCode.CONCURRENT_TRANSACTIONS] * 10_000
        with pytest.raises(TransactionAbortableError) as caught:
            await begin_until_timeout(transactions, broker, T0)
        assert caught.value.code.retriable
        await transactions.end(commit=False)
        broker.script.clear()
        await begin(transactions, T0)

    run_scripted(work, level=CLASSIC)


def test_rejected_partitions_leave_nothing_to_abort() -> None:
    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        broker.script[ApiKey.ADD_PARTITIONS_TO_TXN] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        with pytest.raises(TransactionAbortableError):
            await begin(transactions, T0)
        await transactions.end(commit=False)
        assert broker.transaction_requests() == [INIT, ADD]

    run_scripted(work, level=CLASSIC)


def test_adding_partitions_ends_when_the_transaction_fails() -> None:
    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        await begin(transactions, T0)
        broker.script[ApiKey.ADD_PARTITIONS_TO_TXN] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 10_000
        adding = asyncio.create_task(transactions.ensure_added([T1]))
        while len(broker.requests_of(ApiKey.ADD_PARTITIONS_TO_TXN)) < 2:
            await asyncio.sleep(0)
        transactions.on_batch_failed(T0, DeliveryTimeoutError("too late"))
        with pytest.raises(TransactionAbortableError, match="too late"):
            await adding

    run_scripted(work, level=CLASSIC)


def test_partitions_that_may_have_been_added_are_aborted() -> None:
    """If the coordinator has no such transaction, there is nothing to abort, and the epoch is raised."""

    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        broker.script[ApiKey.ADD_PARTITIONS_TO_TXN] = [LOST] * 10_000
        with pytest.raises(TransactionAbortableError):
            await begin_until_timeout(transactions, broker, T0)
        broker.script = {ApiKey.END_TXN: [ErrorCode.INVALID_TXN_STATE]}
        await transactions.end(commit=False)
        assert broker.transaction_requests()[-2:] == [END, INIT]
        transactions.begin()

    run_scripted(work, level=CLASSIC)


# Unacknowledged records


@LEVELS
def test_an_end_waits_for_records_and_accepts_no_more(level: int) -> None:
    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        async def settle() -> None:
            assert END not in broker.transaction_requests()
            with pytest.raises(ClientStateError, match="commit_transaction"):
                transactions.check_may_send()
            await transactions.ensure_added([T1])

        await begin(transactions, T0)
        transactions.add(T1)
        await transactions.end(commit=True, settle=settle)
        assert broker.transaction_requests()[-1] == END

    run_scripted(work, level=level)


@LEVELS
def test_a_batch_that_fails_during_the_commit_prevents_it(level: int) -> None:
    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        async def settle() -> None:
            transactions.on_batch_failed(T0, DeliveryTimeoutError("too late"))

        await begin(transactions, T0)
        with pytest.raises(TransactionAbortableError, match="too late"):
            await transactions.end(commit=True, settle=settle)
        assert END not in broker.transaction_requests()
        await transactions.end(commit=False, settle=None)
        transactions.begin()

    run_scripted(work, level=level)


@LEVELS
@pytest.mark.parametrize("commit", [True, False])
def test_unacknowledged_records_time_out_the_end(level: int, commit: bool) -> None:
    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        await until_done(transactions.init)
        await begin(transactions, T0)
        await times_out(transactions.end(commit=commit, settle=asyncio.Event().wait))
        await until_done(lambda: transactions.end(commit=commit))
        assert broker.transaction_requests()[-1] == END

    run_scripted(work, level=level, max_block_ms=50)


def test_an_abort_does_not_wait_for_partitions_that_cannot_be_added() -> None:
    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        broker.script[ApiKey.ADD_PARTITIONS_TO_TXN] = [SILENT]
        await transactions.init()
        transactions.begin()
        adding = [asyncio.create_task(transactions.ensure_added([partition])) for partition in (T0, T1)]
        while ADD not in broker.transaction_requests():
            await asyncio.sleep(0)
        await transactions.end(commit=False, settle=lambda: asyncio.wait(adding))
        for task in adding:
            assert isinstance(task.exception(), TransactionAbortableError)
        assert broker.transaction_requests() == [INIT, ADD, END, INIT], "the request may have taken effect"
        transactions.begin()

    run_scripted(work, level=CLASSIC)


def test_a_record_that_was_not_accepted_prevents_the_commit() -> None:
    async def work(transactions: Transactions, broker: ScriptedCoordinator) -> None:
        await begin(transactions, T0)
        transactions.on_send_failed(RecordTooLargeError("too large"), transactions.number)
        assert transactions.error is not None
        with pytest.raises(TransactionAbortableError, match="too large"):
            await transactions.end(commit=True)
        await transactions.end(commit=False)

    run_scripted(work)
