"""The producer against a scripted broker."""

import asyncio
import gc
from collections.abc import Sequence

import pytest

from rookery.base.clock import ManualClock
from rookery.base.errors import ApiError, ConfigError, ErrorCode
from rookery.client.errors import (
    BufferExhaustedError,
    ClientStateError,
    DeliveryTimeoutError,
    FatalProducerError,
    RecordTooLargeError,
)
from rookery.client.produce.records import RecordMetadata
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.message import Message
from rookery.records.batch import read_header
from rookery.records.record import decode_records
from tests.client.fake_broker import NODE_ID, FakeBroker, Responder, produced
from tests.client.produce.support import (
    BytesProducer,
    batches_of,
    configured,
    hang_up,
    in_turn,
    numbers_of,
    producer_ids,
    run_with,
    silence,
    until_a_sender_waits,
    values_of,
)
from tests.client.skipping import skip_time


@pytest.mark.parametrize("version", range(DEFINED[ApiKey.PRODUCE].minimum, DEFINED[ApiKey.PRODUCE].maximum + 1))
def test_a_record_arrives_as_it_was_sent_in_every_version(version: int) -> None:
    landed: list[RecordMetadata] = []

    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker, compression_type="gzip"), clock=ManualClock(5)) as producer:
            sent = await producer.send("t", b"v", key=b"k", partition=1, headers={"h": None}, timestamp_ms=77)
            landed.append(await sent)

    (batch,), _ = run_with(produced(base_offset=40), work, PRODUCE=version)
    assert landed == [RecordMetadata("t", 1, 40, 77, 1, 1)]
    (record,) = decode_records(batch)
    assert record == (0, 77, b"k", b"v", (("h", None),))


def test_records_sent_together_share_a_batch_and_have_the_clocks_time() -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker, linger_ms=5), clock=ManualClock(5)) as producer:
            sent = [await producer.send("t", b"%d" % number, partition=0) for number in range(10)]
            assert [landed.offset for landed in await asyncio.gather(*sent)] == list(range(10))

    batches, _ = run_with(produced(), work)
    assert len(batches) == 1
    assert values_of(batches) == [b"%d" % number for number in range(10)]
    assert {record.timestamp_ms for record in decode_records(batches[0])} == {5}


def test_a_null_value_and_a_null_key_have_no_size() -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker)) as producer:
            metadata = await (await producer.send("t", key=b"k", partition=0))
            assert (metadata.serialized_key_size, metadata.serialized_value_size) == (1, -1)
            other = [await producer.send("t", value, partition=0) for value in (None, b"ab")]
            assert [(await each).serialized_value_size for each in other] == [-1, 2]

    batches, _ = run_with(produced(), work)
    assert values_of(batches) == [None, None, b"ab"]


@pytest.mark.parametrize("failure", [hang_up, produced(ErrorCode.NOT_LEADER_OR_FOLLOWER)])
def test_a_retry_repeats_the_sequence_number(failure: Responder) -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker)) as producer:
            await (await producer.send("t", b"a", partition=0))
            await (await producer.send("t", b"b", partition=0))

    batches, _ = run_with(in_turn(failure, produced()), work)
    assert [numbers_of(batch) for batch in batches] == [(100, 0, 0, 1), (100, 0, 0, 1), (100, 0, 1, 1)]
    assert batches[0] == batches[1]


def test_a_duplicate_counts_as_written() -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker)) as producer:
            landed = await (await producer.send("t", b"a", partition=0, timestamp_ms=9))
            assert (landed.offset, landed.timestamp_ms) == (-1, 9)

    run_with(produced(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, base_offset=-1), work)


def test_a_rejected_batch_fails_its_records_and_the_next_has_a_new_epoch() -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker, linger_ms=5)) as producer:
            refused = [await producer.send("t", b"a", partition=0) for _ in range(3)]
            errors = await asyncio.gather(*refused, return_exceptions=True)
            assert [error.code for error in errors if isinstance(error, ApiError)] == [
                ErrorCode.INVALID_REQUIRED_ACKS
            ] * 3
            await (await producer.send("t", b"b", partition=0))

    batches, _ = run_with(in_turn(produced(ErrorCode.INVALID_REQUIRED_ACKS), produced()), work)
    assert [numbers_of(batch) for batch in batches] == [(100, 0, 0, 3), (100, 1, 0, 1)]


def faulty_record(version: int, request: Message) -> Message:
    response = produced(ErrorCode.INVALID_RECORD)(version, request)
    assert response is not None
    row = response.responses[0].partition_responses[0]
    row.record_errors = [Message(batch_index=1, batch_index_error_message="no key")]
    row.error_message = "one or more records are invalid"
    return response


def test_an_invalid_record_has_another_error_than_the_others_of_its_batch() -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker, linger_ms=5)) as producer:
            sent = [await producer.send("t", b"a", partition=0) for _ in range(3)]
            texts = [str(error) for error in await asyncio.gather(*sent, return_exceptions=True)]
            assert "no key" in texts[1]
            assert "other records" in texts[0]
            assert "other records" in texts[2]

    run_with(faulty_record, work)


def test_a_batch_that_is_too_large_is_split_until_a_record_alone_fails() -> None:
    def answer(version: int, request: Message) -> Message | None:
        records = bytes(request.topic_data[0].partition_data[0].records)
        is_large = any(record.value == b"large" for record in decode_records(records))
        return produced(ErrorCode.MESSAGE_TOO_LARGE if is_large else ErrorCode.NONE)(version, request)

    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker, linger_ms=5)) as producer:
            values = [b"a", b"b", b"large", b"c", b"d"]
            sent = [await producer.send("t", value, partition=0) for value in values]
            results = await asyncio.gather(*sent, return_exceptions=True)
            assert [isinstance(each, RecordTooLargeError) for each in results] == [False, False, True, False, False]
            splits = [value for name, value in producer.metrics().items() if name.name == "batch-split-total"]
            assert splits == [2]

    batches, _ = run_with(answer, work)
    assert [numbers_of(batch)[1:] for batch in batches] == [
        (0, 0, 5),
        (0, 0, 2),
        (0, 2, 3),
        (0, 2, 1),
        (1, 0, 2),
    ]


def test_a_batch_fails_after_the_delivery_timeout() -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker, delivery_timeout_ms=60_000)) as producer:
            sent = await producer.send("t", b"a", partition=0)
            await broker_has_batches(broker, 3)
            skip_time(60)
            with pytest.raises(DeliveryTimeoutError, match=r"delivery\.timeout\.ms \(60000\).*NOT_ENOUGH_REPLICAS"):
                await sent

    run_with(produced(ErrorCode.NOT_ENOUGH_REPLICAS), work)


@pytest.mark.parametrize("is_on_wire", [True, False])
def test_a_response_after_the_delivery_timeout_leaves_no_gap(is_on_wire: bool) -> None:
    async def work(broker: FakeBroker) -> None:
        rarely = {"retry_backoff_ms": 50_000, "retry_backoff_max_ms": 50_000}
        config = configured(broker, delivery_timeout_ms=60_000, request_timeout_ms=30_000, **rarely)
        async with BytesProducer(config) as producer:
            sent = await producer.send("t", b"a", partition=0)
            await broker_has_batches(broker, 1)
            if not is_on_wire:
                skip_time(30)
                while producer._accumulator.in_flight_count:
                    await asyncio.sleep(0)
            skip_time(60)
            with pytest.raises(DeliveryTimeoutError):
                await sent
            await (await producer.send("t", b"b", partition=0))

    batches, _ = run_with(in_turn(silence, produced()), work)
    assert numbers_of(batches[0]) == (100, 0, 0, 1)
    # Whether the first one was written is not known: the second has a new epoch.
    assert numbers_of(batches[-1]) == (100, 1, 0, 1)


def test_retries_are_limited() -> None:
    async def work(broker: FakeBroker) -> None:
        config = configured(broker, retries=2, acks="1")
        async with BytesProducer(config) as producer:
            with pytest.raises(ApiError) as caught:
                await (await producer.send("t", b"a", partition=0))
            assert caught.value.code == ErrorCode.NOT_ENOUGH_REPLICAS

    batches, _ = run_with(produced(ErrorCode.NOT_ENOUGH_REPLICAS), work)
    assert len(batches) == 3


def test_an_out_of_order_batch_waits_for_the_retry_before_it() -> None:
    """The first of two batches in flight gets a retriable error, and so the second one is out of order."""

    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker)) as producer:
            await (await producer.send("t", b"a", partition=0))
            first = await producer.send("t", b"b", partition=0)
            second = await producer.send("t", b"c", partition=0)
            await asyncio.gather(first, second)

    answers = in_turn(
        produced(),
        produced(ErrorCode.NOT_ENOUGH_REPLICAS),
        produced(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        produced(),
    )
    batches, _ = run_with(answers, work)
    assert values_of(batches) == [b"a", b"b", b"c", b"b", b"c"]
    assert [numbers_of(batch)[1:3] for batch in batches] == [(0, 0), (0, 1), (0, 2), (0, 1), (0, 2)]


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_a_gap_restarts_the_partition(code: ErrorCode) -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker)) as producer:
            await (await producer.send("t", b"a", partition=0))
            await (await producer.send("t", b"b", partition=0))

    batches, _ = run_with(in_turn(produced(), produced(code), produced()), work)
    assert [numbers_of(batch) for batch in batches] == [(100, 0, 0, 1), (100, 0, 1, 1), (100, 1, 0, 1)]


def test_a_producer_without_idempotence_has_no_numbers() -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker, enable_idempotence="false")) as producer:
            await (await producer.send("t", b"a", partition=0))

    (batch,), broker = run_with(produced(), work)
    assert numbers_of(batch)[:3] == (-1, -1, -1)
    assert broker.requests_of(ApiKey.INIT_PRODUCER_ID) == []


def test_one_request_at_a_time_keeps_the_order_without_numbers() -> None:
    async def work(broker: FakeBroker) -> None:
        config = configured(broker, enable_idempotence="false", max_in_flight_requests_per_connection=1)
        async with BytesProducer(config) as producer:
            sent = [await producer.send("t", b"%d" % number, partition=0) for number in range(3)]
            await asyncio.gather(*sent)

    batches, _ = run_with(in_turn(hang_up, produced(ErrorCode.NOT_LEADER_OR_FOLLOWER), produced()), work)
    seen = values_of(batches)
    assert list(dict.fromkeys(seen)) == [b"0", b"1", b"2"]
    assert seen[-1] == b"2"


def test_acks_none_waits_for_no_response() -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker, acks="0")) as producer:
            landed = await (await producer.send("t", b"a", partition=0))
            assert landed.offset == -1
            # The response to this request proves that the broker has read the one before it.
            await producer._cluster.refresh()

    batches, broker = run_with(silence, work)
    assert len(batches) == 1
    assert read_header(batches[0]).producer_id == -1
    assert broker.requests_of(ApiKey.PRODUCE)[0].acks == 0


def test_a_full_buffer_makes_send_wait_and_then_fail() -> None:
    async def work(broker: FakeBroker) -> None:
        config = configured(broker, buffer_memory=1000, batch_size=1000, max_block_ms=20_000)
        producer = BytesProducer(config)
        broker.answers[ApiKey.PRODUCE] = silence
        for _ in range(2):
            await producer.send("t", bytes(400), partition=0)
        third = asyncio.create_task(producer.send("t", bytes(400), partition=0))
        await until_a_sender_waits(producer)
        skip_time(20)
        with pytest.raises(BufferExhaustedError, match=r"topic t.*buffer\.memory \(1000\).*max\.block\.ms \(20000\)"):
            await third
        await producer.close(0)

    run_with(silence, work)


def test_senders_that_wait_for_memory_continue_in_order() -> None:
    async def work(broker: FakeBroker) -> None:
        config = configured(broker, buffer_memory=1000, batch_size=1000, linger_ms=1000)
        async with BytesProducer(config) as producer:

            async def send(number: int) -> None:
                await producer.send("t", b"%03d" % number + bytes(300), partition=0)

            await asyncio.gather(*(send(number) for number in range(30)))
            await producer.flush()
            assert producer._accumulator.free_bytes == 1000

    batches, _ = run_with(produced(), work)
    assert [int(value[:3]) for value in values_of(batches) if value is not None] == list(range(30))


def test_a_record_larger_than_the_limits_fails_alone() -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker, max_request_size=1000)) as producer:
            before = await producer.send("t", b"a", partition=0)
            with pytest.raises(RecordTooLargeError, match=r"max\.request\.size is 1000"):
                await producer.send("t", bytes(1000), partition=0)
            await asyncio.gather(before, await producer.send("t", b"b", partition=0))
        async with BytesProducer(configured(broker, buffer_memory=500)) as producer:
            with pytest.raises(RecordTooLargeError, match=r"buffer\.memory is 500"):
                await producer.send("t", bytes(1000), partition=0)

    run_with(produced(), work)


def test_an_unknown_topic_is_waited_for() -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker, max_block_ms=20_000)) as producer:
            waiting = asyncio.create_task(producer.send("u", b"a"))
            while len(broker.requests_of(ApiKey.METADATA)) < 2:
                await asyncio.sleep(0.001)
            skip_time(20)
            with pytest.raises(ApiError, match=r"topic u: no metadata within max\.block\.ms \(20000\)") as caught:
                await waiting
            assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
            await (await producer.send("t", b"a"))
        assert broker.requests_of(ApiKey.METADATA)[0].allow_auto_topic_creation

    run_with(produced(), work)


def test_send_rejects_a_partition_that_does_not_exist() -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker)) as producer:
            with pytest.raises(ApiError, match="only 2 partitions"):
                await producer.send("t", b"", partition=2)
            with pytest.raises(ApiError, match="there is no -1"):
                await producer.send("t", b"", partition=-1)
            broker.topics["t"] = 3
            await (await producer.send("t", b"", partition=2))
            assert [each.index for each in await producer.partitions_for("t")] == [0, 1, 2]

    run_with(produced(), work)


def test_a_rejected_producer_id_fails_waiting_records_and_is_requested_again() -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker)) as producer:
            with pytest.raises(ApiError) as caught:
                await (await producer.send("t", b"a"))
            assert caught.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert not isinstance(caught.value, FatalProducerError), "the producer continues"
            await (await producer.send("t", b"a"))

    refused = producer_ids(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    later = producer_ids(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    run_with(produced(), work, identify=in_turn(later, refused, producer_ids()))


def test_a_future_may_be_cancelled() -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker, linger_ms=5)) as producer:
            gone = await producer.send("t", b"a", partition=0)
            stays = await producer.send("t", b"b", partition=0)
            gone.cancel()
            assert (await stays).offset == 1

    run_with(produced(), work)


def test_unretrieved_failures_are_logged_once_for_a_batch() -> None:
    lines: list[str] = []

    async def work(broker: FakeBroker) -> None:
        # The futures of other tests report to other loops.
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: lines.append(context["message"]))
        async with BytesProducer(configured(broker, linger_ms=5)) as producer:
            for _ in range(50):
                await producer.send("t", b"a", partition=0)
            await producer.flush()
        gc.collect()

    run_with(produced(ErrorCode.INVALID_REQUIRED_ACKS), work)
    assert [line for line in lines if "never retrieved" in line] == ["Future exception was never retrieved"]


def test_callbacks_are_called_once_and_may_fail_and_may_send() -> None:
    calls: list[tuple[int | None, ErrorCode | None]] = []

    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker, linger_ms=5)) as producer:

            def record_call(metadata: RecordMetadata | None, error: ApiError | None) -> None:
                calls.append((metadata.offset if metadata else None, error.code if error else None))
                raise RuntimeError("a bad callback")

            for _ in range(2):
                await producer.send("t", b"a", partition=0, on_delivery=record_call)
            await producer.flush()
            await producer.send("t", b"a", partition=0, on_delivery=record_call)
            await producer.flush()
            last = await producer.send("t", b"a", partition=0)
            await last

    run_with(in_turn(produced(base_offset=7), produced(ErrorCode.INVALID_REQUIRED_ACKS), produced()), work)
    assert calls == [(7, None), (8, None), (None, ErrorCode.INVALID_REQUIRED_ACKS)]


def test_close_waits_for_sent_records_and_may_be_called_twice() -> None:
    async def work(broker: FakeBroker) -> None:
        producer = BytesProducer(configured(broker, linger_ms=10_000))
        sent = await producer.send("t", b"a", partition=0)
        await producer.close()
        assert sent.result().offset == 0
        await producer.close()
        with pytest.raises(ClientStateError, match="closed"):
            await producer.send("t", b"b")

    run_with(produced(), work)


@pytest.mark.parametrize("timeout_s", [0, 0.05])
def test_close_drops_unacknowledged_records_after_its_timeout(timeout_s: float) -> None:
    async def work(broker: FakeBroker) -> None:
        producer = BytesProducer(configured(broker))
        under_way = await producer.send("t", b"a", partition=0)
        await broker_has_batches(broker, 1)
        waiting = await producer.send("t", b"b", partition=0)
        await producer.close(timeout_s)
        assert error_codes([under_way, waiting]) == [ErrorCode.NETWORK_EXCEPTION, ErrorCode.OPERATION_NOT_ATTEMPTED]

    run_with(silence, work)


async def broker_has_batches(broker: FakeBroker, count: int) -> None:
    while len(batches_of(broker)) < count:
        await asyncio.sleep(0.001)


def error_codes(futures: Sequence[asyncio.Future[RecordMetadata]]) -> list[ErrorCode]:
    errors = [future.exception() for future in futures]
    return [error.code for error in errors if isinstance(error, ApiError)]


def test_a_failed_block_drops_waiting_records() -> None:
    sent: list[asyncio.Future[RecordMetadata]] = []

    async def fail(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker, linger_ms=10_000)) as producer:
            sent.append(await producer.send("t", b"a"))
            raise ZeroDivisionError

    async def work(broker: FakeBroker) -> None:
        with pytest.raises(ZeroDivisionError):
            await fail(broker)
        assert error_codes(sent) == [ErrorCode.OPERATION_NOT_ATTEMPTED]

    run_with(silence, work)


def test_close_fails_senders_that_wait_for_memory() -> None:
    async def work(broker: FakeBroker) -> None:
        producer = BytesProducer(configured(broker, buffer_memory=500))
        await producer.send("t", bytes(400), partition=0)
        waiting = asyncio.create_task(producer.send("t", bytes(400), partition=0))
        await broker_has_batches(broker, 1)
        await producer.close(0)
        with pytest.raises(ClientStateError, match="closed"):
            await waiting

    run_with(silence, work)


def test_a_flush_may_time_out() -> None:
    async def work(broker: FakeBroker) -> None:
        producer = BytesProducer(configured(broker))
        await producer.flush()
        await producer.send("t", b"a")
        with pytest.raises(ApiError, match=r"not everything was acknowledged in 0\.01 s"):
            await producer.flush(0.01)
        await producer.close(0)

    run_with(silence, work)


def test_a_partition_without_a_leader_does_not_delay_the_others() -> None:
    async def run() -> None:
        answers = {ApiKey.PRODUCE: produced(), ApiKey.INIT_PRODUCER_ID: producer_ids()}
        async with FakeBroker(answers, topics={"t": 2}, leaderless=[0]) as broker:
            producer = BytesProducer(configured(broker))
            stuck = await producer.send("t", b"a", partition=0)
            for _ in range(3):
                metadata = await (await producer.send("t", b"b"))
                assert metadata.partition == 1
            assert not stuck.done()
            await producer.close(0)

    asyncio.run(run())


def test_no_request_is_sent_to_a_node_during_its_throttle_time() -> None:
    times: list[float] = []

    def answer(version: int, request: Message) -> Message | None:
        times.append(asyncio.get_running_loop().time())
        response = produced()(version, request)
        assert response is not None
        response.throttle_time_ms = 50
        return response

    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker)) as producer:
            for _ in range(2):
                await (await producer.send("t", b"a", partition=0))

    run_with(answer, work)
    assert times[1] - times[0] >= 0.05


def test_a_retry_to_a_reported_leader_has_no_pause() -> None:
    def moved(version: int, request: Message) -> Message | None:
        response = produced(ErrorCode.NOT_LEADER_OR_FOLLOWER)(version, request)
        assert response is not None
        response.responses[0].partition_responses[0].current_leader = Message(leader_id=NODE_ID, leader_epoch=9)
        return response

    async def work(broker: FakeBroker) -> None:
        config = configured(broker, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)
        async with BytesProducer(config) as producer:
            await (await producer.send("t", b"a", partition=0))

    batches, _ = run_with(in_turn(moved, produced()), work)
    assert len(batches) == 2


def test_a_batch_without_a_result_in_the_response_is_retried() -> None:
    empty = Message(responses=[], throttle_time_ms=0)

    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker)) as producer:
            await (await producer.send("t", b"a", partition=0))

    batches, _ = run_with(in_turn(lambda version, request: empty, produced()), work)
    assert len(batches) == 2


def test_errors_name_invalid_settings() -> None:
    with pytest.raises(ConfigError, match=r"batch\.size"):
        BytesProducer({"bootstrap.servers": "a:1", "batch.size": "many"})


def test_transactional_calls_need_a_transactional_id() -> None:
    async def run() -> None:
        producer = BytesProducer({"bootstrap.servers": "127.0.0.1:1"})
        with pytest.raises(ClientStateError, match=r"transactional\.id"):
            producer.begin_transaction()
        await producer.close()

    asyncio.run(run())


def test_metrics_are_counted_by_batch() -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker, linger_ms=5, client_id="mine")) as producer:
            for _ in range(10):
                await producer.send("t", bytes(50), partition=0)
            await producer.flush()
            found = {(each.name, each.group): value for each, value in producer.metrics().items()}
            assert found["record-send-total", "producer-metrics"] == 10
            assert found["record-send-total", "producer-topic-metrics"] == 10
            assert found["records-per-request-avg", "producer-metrics"] == 10
            assert found["buffer-available-bytes", "producer-metrics"] == 32 * 1024 * 1024
            assert found["request-latency-max", "producer-metrics"] > 0
            assert found["metadata-age", "producer-metrics"] >= 0

    run_with(produced(), work)
