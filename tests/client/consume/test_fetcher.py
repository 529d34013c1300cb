"""The consumer against a scripted broker: sessions on the wire, errors, lost connections, stale data."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client import arrow
from rookery.client.consume.consumer import Consumer
from rookery.client.consume.records import OffsetAndMetadata
from rookery.client.errors import ClientStateError, CorruptRecordError, OffsetOutOfRangeError, WakeupError
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.message import Message
from tests.client.consume.support import TP, TP1, FakeLog, batch, consuming, fetch_offsets, offsets_answer, read_values
from tests.client.fake_broker import HANG_UP, NODE_ID, FakeBroker, Responder

Work = Callable[[Consumer[Any, Any], FakeBroker, FakeLog], Awaitable[None]]


def run_with(
    work: Work,
    log: FakeLog,
    *,
    partitions: tuple[TopicPartition, ...] = (TP,),
    fetch: Responder | None = None,
    answers: dict[ApiKey, Responder] | None = None,
    config: dict[str, object] | None = None,
    leaderless: tuple[int, ...] = (),
    **versions: int,
) -> FakeBroker:
    async def run() -> FakeBroker:
        script: dict[ApiKey, Responder] = {
            ApiKey.FETCH: fetch or log.fetch,
            ApiKey.LIST_OFFSETS: offsets_answer({-1: 100, -2: 0}),
            **(answers or {}),
        }
        quick: dict[str, object] = {"retry.backoff.ms": 5, "reconnect.backoff.ms": 5, "request.timeout.ms": 5000}
        async with (
            asyncio.timeout(20),
            FakeBroker(script, topics={"t": 2, "u": 2}, leaderless=leaderless, versions=versions) as broker,
            consuming(str(broker.address), *partitions, config=quick | (config or {})) as consumer,
        ):
            await work(consumer, broker, log)
        return broker

    return asyncio.run(run())


def unretrieved_errors(work: Work, log: FakeLog, **options: Any) -> list[dict[str, Any]]:
    """Return the exceptions of background tasks that were never retrieved."""
    reported: list[dict[str, Any]] = []

    async def listen_and_work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
        await work(consumer, broker, log)

    run_with(listen_and_work, log, **options)
    # asyncio reports them when their tasks are collected.
    gc.collect()
    return [context for context in reported if "never retrieved" in context["message"]]


def log_of(**batches: bytes) -> FakeLog:
    """Build a log: `t0=...` is a batch of partition 0 of topic t."""
    log = FakeLog()
    for name, data in batches.items():
        log.batches[TopicPartition(name[0], int(name[1]))] = [data]
    return log


@pytest.mark.parametrize("version", range(DEFINED[ApiKey.FETCH].minimum, DEFINED[ApiKey.FETCH].maximum + 1))
def test_polls_continue_at_the_position_in_every_version(version: int) -> None:
    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        log.batches[TP].append(batch(2, b"c"))
        assert await read_values(consumer, 3) == [b"a", b"b", b"c"]
        assert await consumer.position(TP) == 3

    broker = run_with(work, log_of(t0=batch(0, b"a", b"b")), FETCH=version)
    named = [offset for fetch in fetch_offsets(broker) for offset in fetch.values()]
    assert named[:2] == [0, 2]


@pytest.mark.parametrize(
    "version", range(DEFINED[ApiKey.LIST_OFFSETS].minimum, DEFINED[ApiKey.LIST_OFFSETS].maximum + 1)
)
def test_every_version_of_list_offsets(version: int) -> None:
    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        assert await consumer.position(TP) == 0
        assert await consumer.end_offsets([TP]) == {TP: 100}

    run_with(work, FakeLog(), LIST_OFFSETS=version)


def test_a_partition_without_a_leader_does_not_hold_up_the_others() -> None:
    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        assert await read_values(consumer, 1) == [b"a"]

    run_with(work, log_of(t0=batch(0, b"a")), partitions=(TP1, TP), leaderless=(1,))


def test_incremental_requests_name_only_what_moved() -> None:
    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        await read_values(consumer, 2)
        log.batches[TP].append(batch(1, b"c"))
        while len(broker.requests_of(ApiKey.FETCH)) < 3:
            await consumer.poll(0.05)

    partitions = (TP, TP1, TopicPartition("u", 0), TopicPartition("u", 1))
    broker = run_with(work, log_of(t0=batch(0, b"a"), u1=batch(0, b"b")), partitions=partitions)
    requests = broker.requests_of(ApiKey.FETCH)
    assert [(r.session_id, r.session_epoch) for r in requests[:3]] == [(0, 0), (11, 1), (11, 2)]
    assert len(fetch_offsets(broker)[0]) == 4
    # The two with data are named again, at their new positions; the others are in the session.
    moved: dict[TopicPartition, int] = {}
    for fetch in fetch_offsets(broker)[1:]:
        moved |= fetch
    assert moved == {TP: 1, TopicPartition("u", 1): 1}


def test_close_closes_the_fetch_session() -> None:
    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        await read_values(consumer, 1)

    broker = run_with(work, log_of(t0=batch(0, b"a")))
    last = broker.requests_of(ApiKey.FETCH)[-1]
    assert (last.session_id, last.session_epoch) == (11, -1)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ],
)
def test_a_lost_session_is_replaced(error: ErrorCode) -> None:
    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        log.batches[TP].append(batch(1, b"b"))
        log.session_error = error
        assert await read_values(consumer, 2) == [b"a", b"b"]

    run_with(work, log_of(t0=batch(0, b"a")))


def test_a_broker_without_sessions() -> None:
    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        log.batches[TP].append(batch(1, b"b"))
        assert await read_values(consumer, 2) == [b"a", b"b"]

    log = FakeLog(hands_out_sessions=False)
    log.batches[TP] = [batch(0, b"a")]
    broker = run_with(work, log)
    assert {(r.session_id, r.session_epoch) for r in broker.requests_of(ApiKey.FETCH)} == {(0, 0)}


def test_lost_connections_and_moved_leaders_are_survived() -> None:
    def failing(log: FakeLog) -> Responder:
        fates = iter(["hang up", "moved", "hang up", "fenced", "no epoch"])

        def answer(version: int, request: Message) -> Message | None:
            match next(fates, None):
                case "hang up":
                    return HANG_UP
                case "moved":
                    log.errors[TP] = ErrorCode.NOT_LEADER_OR_FOLLOWER
                case "fenced":
                    log.errors[TP] = ErrorCode.FENCED_LEADER_EPOCH
                case "no epoch":
                    log.errors[TP] = ErrorCode.UNKNOWN_LEADER_EPOCH
            return log.fetch(version, request)

        return answer

    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        log.batches[TP].append(batch(1, b"b"))
        assert await read_values(consumer, 2) == [b"a", b"b"]
        assert len(broker.requests_of(ApiKey.METADATA)) > 1

    log = log_of(t0=batch(0, b"a"))
    run_with(work, log, fetch=failing(log))


def test_a_seek_makes_data_on_the_way_stale() -> None:
    """The user seeks to 5 while the broker handles the fetch from 0."""
    log = log_of(t0=batch(0, b"stale"))
    log.batches[TP].append(batch(5, b"new"))

    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        def fetch(version: int, request: Message) -> Message | None:
            if fetch_offsets(broker)[-1].get(TP) == 0:
                consumer.seek(TP, 5)
            return log.fetch(version, request)

        broker.answers[ApiKey.FETCH] = fetch
        assert await read_values(consumer, 1) == [b"new"]
        assert fetch_offsets(broker)[0] == {TP: 0}

    run_with(work, log)


def test_a_long_poll_does_not_hold_up_a_seek() -> None:
    """The broker never answers the fetch at the end of the log; the next one uses another connection."""

    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        assert await read_values(consumer, 1) == [b"a"]
        while fetch_offsets(broker)[-1] != {TP: 1}:
            await consumer.poll(0.01)
        consumer.seek(TP, 0)
        assert await read_values(consumer, 1) == [b"a"]
        sessions = [(request.session_id, request.session_epoch) for request in broker.requests_of(ApiKey.FETCH)]
        assert sessions[:3] == [(0, 0), (11, 1), (11, 0)]

    run_with(work, log_of(t0=batch(0, b"a")), config={"fetch.max.wait.ms": 4000})


def test_buffered_data_is_dropped_by_a_seek_and_kept_by_a_pause() -> None:
    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        assert [record.value for record in await consumer.poll(15, max_records=1)] == [b"a"]
        consumer.pause(TP)
        assert await consumer.poll(0.02) == []
        assert consumer.paused() == {TP}
        fetches = len(broker.requests_of(ApiKey.FETCH))
        consumer.resume(TP)
        assert [record.value for record in await consumer.poll(15, max_records=1)] == [b"b"]
        assert len(broker.requests_of(ApiKey.FETCH)) == fetches
        consumer.seek(TP, 0)
        assert [record.value for record in await consumer.poll(15)] == [b"a", b"b", b"c"]

    run_with(work, log_of(t0=batch(0, b"a", b"b", b"c")))


def test_a_partition_with_buffered_data_is_not_fetched() -> None:
    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        log.batches[TP].append(batch(3, b"d"))
        for _ in range(2):
            assert len(await consumer.poll(15, max_records=1)) == 1
            await asyncio.sleep(0)
        assert [fetch for fetch in fetch_offsets(broker) if fetch.get(TP) == 3] == []
        assert await read_values(consumer, 2) == [b"c", b"d"]

    run_with(work, log_of(t0=batch(0, b"a", b"b", b"c")))


def test_a_busy_partition_does_not_wait_for_an_idle_one() -> None:
    """While data of t-0 is buffered, t-1 is requested by a peek; a long poll would hold up t-0."""

    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        log.batches[TP] += [batch(2 * n, b"x", b"y") for n in range(1, 20)]
        assert len(await read_values(consumer, 40)) == 40
        peeks = [request for request in broker.requests_of(ApiKey.FETCH) if request.max_wait_ms == 0]
        assert peeks
        assert consumer.lag(TP) == 60

    run_with(work, log_of(t0=batch(0, b"x", b"y")), partitions=(TP, TP1), config={"max.poll.records": 1})


def test_an_offset_out_of_range_is_reset() -> None:
    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        consumer.seek(TP, 55)
        log.errors[TP] = ErrorCode.OFFSET_OUT_OF_RANGE
        assert await read_values(consumer, 1) == [b"a"]

    run_with(work, log_of(t0=batch(0, b"a")))


def test_an_offset_out_of_range_is_an_error_without_a_reset_policy() -> None:
    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        consumer.seek(TP, 55)
        for _ in range(2):
            log.errors[TP] = ErrorCode.OFFSET_OUT_OF_RANGE
            with pytest.raises(OffsetOutOfRangeError, match="t-0 has no offset 55") as caught:
                await consumer.poll(15)
            assert (caught.value.partition, caught.value.offset) == (TP, 55)
        consumer.seek(TP, 0)
        assert await read_values(consumer, 1) == [b"a"]

    run_with(work, log_of(t0=batch(0, b"a")), config={"auto.offset.reset": "none"})


@pytest.mark.parametrize(
    ("code", "kind"),
    [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ApiError), (ErrorCode.CORRUPT_MESSAGE, CorruptRecordError)],
)
def test_final_errors_of_a_partition_are_raised_and_the_fetch_retried(code: ErrorCode, kind: type[ApiError]) -> None:
    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        log.errors[TP] = code
        with pytest.raises(kind) as caught:
            await consumer.poll(15)
        assert caught.value.code is code
        assert await read_values(consumer, 1) == [b"a"]

    run_with(work, log_of(t0=batch(0, b"a")))


def test_an_error_of_one_partition_does_not_affect_the_others() -> None:
    damaged = bytearray(batch(0, b"bad"))
    damaged[-2] ^= 1

    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        values: list[Any] = []
        failed: set[TopicPartition] = set()
        while len(values) < 2 or not failed:
            try:
                values += [record.value for record in await consumer.poll(15)]
            except CorruptRecordError as error:
                failed.add(error.partition)
        assert (values, failed) == ([b"a", b"b"], {TP})

    run_with(work, log_of(t0=bytes(damaged), t1=batch(0, b"a", b"b")), partitions=(TP, TP1))


def test_a_follower_in_our_rack_is_preferred() -> None:
    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        log.preferred_replica = NODE_ID
        assert await read_values(consumer, 1) == [b"a"]
        request = broker.requests_of(ApiKey.FETCH)[0]
        assert request.rack_id == "east"
        assert consumer._subscription.state(TP).preferred_replica == NODE_ID

    run_with(work, log_of(t0=batch(0, b"a")), config={"client.rack": "east"})


def test_the_settings_of_a_fetch_are_sent() -> None:
    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        assert await read_values(consumer, 1) == [b"a"]
        request = broker.requests_of(ApiKey.FETCH)[0]
        assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (77, 5, 1234)
        assert request.isolation_level == 1
        assert request.topics[0].partitions[0].partition_max_bytes == 99

    config: dict[str, object] = {
        "fetch.max.wait.ms": 77,
        "fetch.min.bytes": 5,
        "fetch.max.bytes": 1234,
        "max.partition.fetch.bytes": 99,
        "isolation.level": "read_committed",
    }
    run_with(work, log_of(t0=batch(0, b"a")), config=config)


def epoch_ends(*answers: tuple[int, int]) -> Responder:
    """Answer OffsetForLeaderEpoch with each (epoch, end offset) in turn, and repeat the last one."""
    left = list(answers)

    def answer(version: int, request: Message) -> Message:
        epoch, end = left.pop(0) if len(left) > 1 else left[0]
        row = Message(error_code=0, partition=0, leader_epoch=epoch, end_offset=end)
        return Message(throttle_time_ms=0, topics=[Message(topic="t", partitions=[row])])

    return answer


@pytest.mark.parametrize(
    ("end", "position"),
    [((3, 90), 50), ((3, 50), 50), ((2, 40), 40), ((-1, -1), 0)],
    ids=["the leader has more", "exactly as much", "truncated", "the epoch is unknown"],
)
def test_a_position_with_an_epoch_is_validated(end: tuple[int, int], position: int) -> None:
    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        consumer.seek(TP, OffsetAndMetadata(50, "", 3))
        while not broker.requests_of(ApiKey.FETCH) or fetch_offsets(broker)[-1].get(TP) != position:
            await consumer.poll(0.02)
        (request, *_) = broker.requests_of(ApiKey.OFFSET_FOR_LEADER_EPOCH)
        row = request.topics[0].partitions[0]
        assert (row.leader_epoch, row.current_leader_epoch) == (3, 0)

    answers = {ApiKey.OFFSET_FOR_LEADER_EPOCH: epoch_ends(end, (3, 90))}
    run_with(work, FakeLog(), answers=answers)


def test_a_truncation_is_an_error_without_a_reset_policy() -> None:
    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        consumer.seek(TP, OffsetAndMetadata(50, "", 3))
        with pytest.raises(OffsetOutOfRangeError):
            await consumer.poll(15)

    answers = {ApiKey.OFFSET_FOR_LEADER_EPOCH: epoch_ends((2, 40))}
    run_with(work, FakeLog(), answers=answers, config={"auto.offset.reset": "none"})


def test_a_look_up_of_offsets_is_retried() -> None:
    def failing(version: int, request: Message) -> Message | None:
        code = next(codes, ErrorCode.NONE)
        if code is ErrorCode.NETWORK_EXCEPTION:
            return HANG_UP
        answer = offsets_answer({-1: 100, -2: 0})(version, request)
        answer.topics[0].partitions[0].error_code = code
        return answer  # type: ignore[no-any-return]

    codes = iter([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NETWORK_EXCEPTION, ErrorCode.LEADER_NOT_AVAILABLE])

    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        assert await read_values(consumer, 1) == [b"a"]
        assert await consumer.beginning_offsets([TP]) == {TP: 0}

    run_with(work, log_of(t0=batch(0, b"a")), answers={ApiKey.LIST_OFFSETS: failing})


def test_a_final_error_of_a_look_up_is_raised() -> None:
    def refusing(version: int, request: Message) -> Message:
        answer = offsets_answer({-1: 100, -2: 0})(version, request)
        answer.topics[0].partitions[0].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return answer  # type: ignore[no-any-return]

    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        for call in (consumer.poll(15), consumer.position(TP), consumer.end_offsets([TP])):
            with pytest.raises(ApiError) as caught:
                await call
            assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    run_with(work, log_of(t0=batch(0, b"a")), answers={ApiKey.LIST_OFFSETS: refusing})


def test_a_position_without_a_reply_is_a_timeout() -> None:
    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        with pytest.raises(ApiError, match=r"no position of t-0 within 0\.05 s") as caught:
            await consumer.position(TP, timeout_s=0.05)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT

    run_with(work, FakeLog(), answers={ApiKey.LIST_OFFSETS: lambda version, request: None})


def test_a_recreated_topic_is_read_by_its_new_id() -> None:
    """The old id is answered with UNKNOWN_TOPIC_ID; metadata contains the new one."""

    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        assert await read_values(consumer, 1) == [b"a"]
        log.errors[TP] = ErrorCode.UNKNOWN_TOPIC_ID
        log.batches[TP].append(batch(1, b"b"))
        assert await read_values(consumer, 1) == [b"b"]

    run_with(work, log_of(t0=batch(0, b"a")))


def test_invalid_bytes_instead_of_records_are_an_error_and_fetched_again() -> None:
    log = log_of(t0=batch(0, b"a"))
    first = iter([True])

    async def run() -> None:
        def fetch(version: int, request: Message) -> Message | None:
            answer = log.fetch(version, request)
            if answer is not None and next(first, False):
                answer.responses[0].partitions[0].records = b"x" * 7
            return answer

        script: dict[ApiKey, Responder] = {ApiKey.FETCH: fetch, ApiKey.LIST_OFFSETS: offsets_answer({-2: 0})}
        async with FakeBroker(script, topics={"t": 1}) as broker, consuming(str(broker.address), TP) as consumer:
            with pytest.raises(CorruptRecordError, match="7 bytes that hold no whole batch"):
                await consumer.poll(15)
            assert await read_values(consumer, 1) == [b"a"]

    asyncio.run(run())


def test_close_ends_a_poll_in_another_task() -> None:
    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        polls = asyncio.ensure_future(consumer.poll(600))
        while not broker.requests_of(ApiKey.FETCH):
            await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(ClientStateError, match="closed"):
            await polls

    run_with(work, FakeLog())


def test_close_ends_a_call_of_position() -> None:
    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        position = asyncio.ensure_future(consumer.position(TP, timeout_s=600))
        while not broker.requests_of(ApiKey.LIST_OFFSETS):
            await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(ClientStateError, match="closed"):
            await position

    run_with(work, FakeLog(), answers={ApiKey.LIST_OFFSETS: lambda version, request: None})


def test_close_ends_look_ups_of_positions() -> None:
    """Also while it connects: cancelling one look-up must not start another, whose error would not be retrieved."""

    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        polls = asyncio.ensure_future(consumer.poll(600))
        while not broker.requests_of(ApiKey.API_VERSIONS):
            await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(ClientStateError, match="closed"):
            await polls

    assert not unretrieved_errors(work, FakeLog(), answers={ApiKey.API_VERSIONS: lambda version, request: None})


def test_close_ends_an_unfinished_iteration_over_columns() -> None:
    """The fetch in flight fails; its error is retrieved, and not reported."""

    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        batches = consumer.iterate_arrow("t")
        await anext(batches)
        while len(broker.requests_of(ApiKey.FETCH)) < 2:
            await asyncio.sleep(0)
        await consumer.close()

    assert not unretrieved_errors(work, log_of(t0=batch(0, b"a")), partitions=())


def test_close_ends_a_poll_that_refreshes_topics() -> None:
    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        consumer.subscribe(["t"])
        polls = asyncio.ensure_future(consumer.poll(600))
        while not broker.requests_of(ApiKey.METADATA):
            await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(ClientStateError, match="closed"):
            await polls

    unanswered: dict[ApiKey, Responder] = {ApiKey.METADATA: lambda version, request: None}
    run_with(work, FakeLog(), partitions=(), answers=unanswered, config={"group.id": "g"})


def test_columns_of_one_partition_do_not_wait_for_the_damage_of_another() -> None:
    damaged = bytearray(batch(0, b"a"))
    damaged[-2] ^= 1

    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        log.batches[TP1] = [batch(number, b"%d" % number) for number in range(3)]
        offsets: list[int] = []
        failures: list[CorruptRecordError] = []
        while len(offsets) < 3 or len(failures) < 2:
            try:
                offsets += (await consumer.poll_arrow(0.01)).column("offset").to_pylist()
            except CorruptRecordError as error:
                failures.append(error)
        assert offsets == [0, 1, 2]
        assert {error.partition for error in failures} == {TP}
        assert await consumer.position(TP) == 0
        log.batches[TP] = [batch(0, b"a"), batch(1, b"b")]
        consumer.seek(TP, 1)
        assert await read_values(consumer, 1) == [b"b"]

    # Load here, not in a thread while protocol modules are imported: hypothesis fails on a partly imported numpy.
    arrow.load()
    run_with(work, log_of(t0=bytes(damaged)), partitions=(TP, TP1))


def test_a_wakeup_from_another_thread_ends_a_poll() -> None:
    async def work(consumer: Consumer[Any, Any], broker: FakeBroker, log: FakeLog) -> None:
        loop = asyncio.get_running_loop()

        async def wake_later() -> None:
            while not broker.requests_of(ApiKey.FETCH):
                await asyncio.sleep(0)
            await loop.run_in_executor(None, consumer.wakeup)

        waking: Coroutine[Any, Any, None] = wake_later()
        task = asyncio.ensure_future(waking)
        with pytest.raises(WakeupError):
            await consumer.poll(15)
        await task
        consumer.wakeup()
        with pytest.raises(WakeupError, match=r"^woken up by wakeup\(\)$"):
            await consumer.poll(0)
        assert await consumer.poll(0) == []

    run_with(work, FakeLog())
