"""Quotas over frames: what a request is charged, the throttle time in its response, and how long a client is muted."""

import asyncio
from collections.abc import Awaitable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_response_schema

from rookery.base.clock import ManualClock
from rookery.base.errors import ErrorCode
from rookery.base.quota_entities import DEFAULT, QuotaEntity
from rookery.broker.api_row import ListenerType
from rookery.broker.api_table import APIS
from rookery.broker.context import ClusterContext
from rookery.broker.dispatch import THROTTLE_TIME_LAST, Dispatcher
from rookery.broker.throttling import Throttling
from rookery.metadata.requests import OK, CreatedTopic
from rookery.net.send import Reply
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.protocol.principal import Principal
from rookery.quotas.clients import ClientQuotas
from tests.broker.cluster import Controllers
from tests.broker.harness import Broker, batch, decode, request_frame, running, settle
from tests.broker.test_fetch import fetch, only, partition
from tests.broker.test_fetch import fields as fetch_fields
from tests.broker.test_forwarding import forwarding_broker
from tests.broker.test_produce import fields as produce_fields

PRODUCE = QuotaEntity(client_id="test"), "producer_byte_rate"
FETCH = QuotaEntity(client_id="test"), "consumer_byte_rate"
REQUEST = QuotaEntity(client_id="test"), "request_percentage"
MUTATION = QuotaEntity(client_id="test"), "controller_mutation_rate"
TIMES = {"timeout_ms": 60_000, "validate_only": False}
METADATA = {"allow_auto_topic_creation": True, "include_topic_authorized_operations": False}


class Limited:
    """A broker with quotas, its clocks, and the seconds for which its connection was muted."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        assert isinstance(broker.services.clock, ManualClock)
        self.clock = broker.services.clock
        self.cpu_s = 0.0
        self.muted_s: list[float] = []
        broker.services = replace(
            broker.services, throttling=Throttling(ClientQuotas(), self.clock, lambda: self.cpu_s)
        )
        broker.dispatcher = Dispatcher(broker.services)
        broker.connection.mute = self.muted_s.append

    def set(self, *limits: tuple[tuple[QuotaEntity, str], float]) -> None:
        values: dict[QuotaEntity, dict[str, float]] = {}
        for (entity, key), value in limits:
            values.setdefault(entity, {})[key] = value
        self.broker.services.throttling.quotas.configure(values)


def play(path: Path, scene: Any) -> None:
    async def main() -> None:
        async with running(path) as broker:
            await broker.create_topic("orders")
            await scene(Limited(broker))

    asyncio.run(main())


def produce(broker: Broker, size: int, **more: Any) -> Message:
    return broker.call_now(ApiKey.PRODUCE, 12, **produce_fields(batch(b"a" * size), **more))


def metadata(broker: Broker) -> Message:
    return broker.call_now(ApiKey.METADATA, 12, topics=None, **METADATA)


def test_a_producer_over_its_quota_is_throttled_after_its_records_are_written(tmp_path: Path) -> None:
    async def scene(limited: Limited) -> None:
        limited.set((PRODUCE, 1000))
        assert produce(limited.broker, 5_000).throttle_time_ms == 0
        response = produce(limited.broker, 15_000)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert response.throttle_time_ms == pytest.approx(10_000, rel=0.05)
        assert limited.muted_s == [response.throttle_time_ms / 1000]
        limited.clock.advance(response.throttle_time_ms + 1000)
        assert produce(limited.broker, 100).throttle_time_ms == 0

    play(tmp_path, scene)


def test_a_producer_without_acknowledgements_is_muted(tmp_path: Path) -> None:
    async def scene(limited: Limited) -> None:
        limited.set((PRODUCE, 1000), (REQUEST, 0.001))
        assert limited.broker.send(ApiKey.PRODUCE, 12, **produce_fields(batch(b"a" * 20_000), acks=0)) is None
        assert limited.muted_s == [pytest.approx(10, rel=0.05)]

    play(tmp_path, scene)


def test_clients_without_a_limit_are_not_throttled(tmp_path: Path) -> None:
    async def scene(limited: Limited) -> None:
        other = QuotaEntity(user="other"), "producer_byte_rate"
        limited.set((other, 1))
        assert produce(limited.broker, 50_000).throttle_time_ms == 0
        limited.broker.connection.principal = Principal("User", "other")
        assert produce(limited.broker, 50_000).throttle_time_ms > 0

    play(tmp_path, scene)


def test_a_consumer_over_its_quota_gets_nothing_and_keeps_its_session(tmp_path: Path) -> None:
    async def scene(limited: Limited) -> None:
        broker = limited.broker
        for _ in range(10):
            broker.append("orders", b"a" * 3000)
        limited.set((FETCH, 1000))
        first = fetch(broker, ("orders", [partition()]), session_epoch=0)
        assert first.throttle_time_ms == 0
        assert first.session_id != 0
        # Not more than 10 s of its quota, though the client asks for more.
        assert 8_000 < len(only(first).records) <= 10_000
        empty = fetch(broker, ("orders", [partition(offset=3)]), session_id=first.session_id, session_epoch=1)
        assert (empty.throttle_time_ms > 0, empty.responses, empty.session_id) == (True, [], first.session_id)
        assert limited.muted_s == [empty.throttle_time_ms / 1000]
        limited.clock.advance(11_000)
        again = fetch(broker, session_id=first.session_id, session_epoch=2)
        assert again.throttle_time_ms == 0
        assert only(again).records

    play(tmp_path, scene)


def test_a_throttled_full_fetch_opens_no_session(tmp_path: Path) -> None:
    async def scene(limited: Limited) -> None:
        limited.broker.append("orders", b"a" * 3000)
        limited.set((FETCH, 400))
        assert fetch(limited.broker, ("orders", [partition()])).throttle_time_ms == 0
        empty = fetch(limited.broker, ("orders", [partition()]), session_epoch=0)
        assert (empty.throttle_time_ms > 0, empty.responses, empty.session_id) == (True, [], 0)

    play(tmp_path, scene)


def test_a_batch_larger_than_the_quota_is_sent_to_a_client_that_was_silent(tmp_path: Path) -> None:
    async def scene(limited: Limited) -> None:
        limited.broker.append("orders", b"a" * 30_000)
        limited.set((FETCH, 1000))
        response = fetch(limited.broker, ("orders", [partition()]))
        assert len(only(response).records) > 30_000
        assert response.throttle_time_ms == pytest.approx(20_000, rel=0.05)

    play(tmp_path, scene)


def test_followers_are_not_throttled(tmp_path: Path) -> None:
    async def scene(limited: Limited) -> None:
        limited.broker.append("orders", b"a" * 30_000)
        limited.set((FETCH, 10), (REQUEST, 0.001))
        limited.cpu_s = 50
        for _ in range(3):
            response = fetch(limited.broker, ("orders", [partition()]), replica_id=2)
            assert response.throttle_time_ms == 0
        assert limited.muted_s == []

    play(tmp_path, scene)


def test_a_long_poll_of_a_throttled_consumer_ends_empty(tmp_path: Path) -> None:
    async def scene(limited: Limited) -> None:
        broker = limited.broker
        broker.append("orders", b"a" * 9_000)
        limited.set((FETCH, 1000))
        fetch(broker, ("orders", [partition()]))
        waiting = broker.send(
            ApiKey.FETCH, 12, **fetch_fields(("orders", [partition(offset=1)]), max_wait_ms=60_000, min_bytes=1)
        )
        assert isinstance(waiting, Awaitable)
        broker.append("orders", b"b" * 9_000)
        await settle()
        reply: Reply | None = await waiting
        assert reply is not None
        response = decode(ApiKey.FETCH, 12, reply)
        assert response.throttle_time_ms > 0
        assert response.responses == []

    play(tmp_path, scene)


def test_the_time_of_requests_is_charged(tmp_path: Path) -> None:
    async def scene(limited: Limited) -> None:
        broker = limited.broker
        limited.set((REQUEST, 10))
        assert metadata(broker).throttle_time_ms == 0
        handle = broker.services.known_answers.metadata.find

        def slow(*arguments: Any) -> Any:
            limited.cpu_s += 5
            return handle(*arguments)

        broker.services.known_answers.metadata.find = slow  # type: ignore[assignment, method-assign]
        # Half a core over ten seconds, and a tenth is allowed. One window is the longest time.
        response = metadata(broker)
        assert response.throttle_time_ms == 1000
        assert limited.muted_s == [1.0]
        broker.services.known_answers.metadata.find = handle  # type: ignore[method-assign]
        assert metadata(broker).throttle_time_ms == 1000
        limited.clock.advance(11_000)
        # The response is cached, and its bytes are those of a client that is not throttled.
        assert metadata(broker).throttle_time_ms == 0

    play(tmp_path, scene)


def test_the_time_of_coroutines_is_charged_step_by_step(tmp_path: Path) -> None:
    async def scene(limited: Limited) -> None:
        usage = limited.broker.services.throttling.measure(limited.broker.connection, "test", 0)
        limited.set((REQUEST, 10))
        gate: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def work() -> int:
            limited.cpu_s += 1
            value = await gate
            limited.cpu_s += 0.5
            return value + usage.charge()

        task = asyncio.ensure_future(usage.follow(work()))
        await settle()
        limited.cpu_s += 100  # of other requests
        gate.set_result(7)
        # 150 percent over ten seconds is 15, half more than the limit.
        assert await task == 7 + min(5000, 1000)
        failing = usage.follow(asyncio.sleep(60))
        task = asyncio.ensure_future(failing)  # type: ignore[arg-type]
        await settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    play(tmp_path, scene)


def creatable(name: str, partitions: int = 5) -> Message:
    return Message(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])


async def create(broker: Broker, *topics: Message, version: int = 7) -> Message:
    return await broker.call(ApiKey.CREATE_TOPICS, version, topics=list(topics), **TIMES)


def codes(response: Message) -> list[ErrorCode]:
    results = response.get("topics") or response.get("responses") or response.get("results") or []
    return [ErrorCode(topic.error_code) for topic in results]


def test_mutations_beyond_the_quota_are_refused(tmp_path: Path) -> None:
    async def scene(limited: Limited) -> None:
        broker = limited.broker
        limited.set((MUTATION, 1))
        # Eleven tokens: the third topic overdraws them, the fourth is refused as a whole.
        response = await create(broker, *(creatable(name) for name in "abcd"))
        assert codes(response) == [ErrorCode.NONE] * 3 + [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        assert [topic.name for topic in response.topics] == list("abcd")
        assert response.throttle_time_ms == 4000
        assert limited.muted_s == [4.0]
        deleted = await broker.call(
            ApiKey.DELETE_TOPICS, 6, topics=[Message(name="a", topic_id=None)], timeout_ms=60_000
        )
        assert codes(deleted) == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        grown = await broker.call(
            ApiKey.CREATE_PARTITIONS, 3, topics=[Message(name="a", count=6, assignments=None)], **TIMES
        )
        assert codes(grown) == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        limited.clock.advance(4001)
        deleted = await broker.call(
            ApiKey.DELETE_TOPICS, 6, topics=[Message(name="a", topic_id=None)], timeout_ms=60_000
        )
        assert codes(deleted) == [ErrorCode.NONE]
        # The tokens of the partitions that were deleted.
        assert codes(await create(broker, creatable("e"))) == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]

    play(tmp_path, scene)


def test_old_versions_are_only_throttled(tmp_path: Path) -> None:
    async def scene(limited: Limited) -> None:
        limited.set((MUTATION, 1))
        response = await create(limited.broker, *(creatable(name) for name in "abcd"), version=5)
        assert codes(response) == [ErrorCode.NONE] * 4
        assert response.throttle_time_ms == 9000
        assert limited.muted_s == [9.0]

    play(tmp_path, scene)


def test_topics_that_fail_cost_nothing(tmp_path: Path) -> None:
    async def scene(limited: Limited) -> None:
        limited.set((MUTATION, 1))
        for _ in range(5):
            response = await create(limited.broker, creatable("orders", 50), creatable("bad name!", 50))
            assert codes(response) == [ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert codes(await create(limited.broker, creatable("new"))) == [ErrorCode.NONE]

    play(tmp_path, scene)


def test_topics_that_are_created_on_demand_count(tmp_path: Path) -> None:
    async def scene(limited: Limited) -> None:
        limited.set((MUTATION, 0.1))
        codes_of = []
        for name in "abcd":
            topics = [Message(name=name, topic_id=None)]
            response = await limited.broker.call(ApiKey.METADATA, 12, topics=topics, **METADATA)
            codes_of.append(ErrorCode(response.topics[0].error_code))
        assert codes_of == [ErrorCode.NONE] * 2 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
        assert limited.muted_s

    play(tmp_path, scene)


def test_no_quota_means_no_measurement(tmp_path: Path) -> None:
    async def scene(limited: Limited) -> None:
        limited.broker.services.throttling.measure = None  # type: ignore[assignment]
        limited.set()
        assert produce(limited.broker, 5_000).throttle_time_ms == 0

    play(tmp_path, scene)


def test_where_responses_to_forwarded_requests_have_the_throttle_time() -> None:
    forwarded = [api for api in APIS.values() if api.is_forwarded and api.has_throttle_time]
    assert forwarded
    for api in forwarded:
        for version in api.versions:
            names = [field.name for field in fields(load_response_schema(api.key, version))]
            assert names[-1 if api.key in THROTTLE_TIME_LAST else 0] == "throttle_time", api.name


class SlowForwarding:
    """Spends processor time before a request is forwarded."""

    is_needed = True

    def __init__(self, limited: Limited) -> None:
        assert limited.broker.services.forwarding is not None
        self._forward = limited.broker.services.forwarding.forward
        self._limited = limited
        self.cpu_s = 0.0

    async def forward(self, context: ClusterContext, frame: bytes) -> Reply:
        self._limited.cpu_s += self.cpu_s
        return await self._forward(context, frame)


def test_a_forwarded_request_is_throttled_for_the_longer_of_both_times(tmp_path: Path) -> None:
    async def main() -> None:
        async with Controllers(11) as controllers, forwarding_broker(tmp_path, controllers) as broker:
            controllers.lead(11)
            limited = Limited(broker)
            limited.set((REQUEST, 10))
            controllers.nodes[11].controller.results["create_topics"] = [CreatedTopic("a", OK)]
            slow = SlowForwarding(limited)
            broker.services = replace(broker.services, forwarding=slow)
            broker.dispatcher = Dispatcher(broker.services)
            remote = controllers.nodes[11].services.throttling
            remote.clock = limited.clock
            remote.quotas.configure({MUTATION[0]: {MUTATION[1]: 1}})
            # The controller's bucket has eleven tokens each time.
            for partitions, local_s, expected in ((5, 0.0, 0), (16, 0.0, 5000), (16, 40.0, 5000), (11, 40.0, 1000)):
                limited.clock.advance(60_000)
                limited.muted_s.clear()
                frame = request_frame(ApiKey.CREATE_TOPICS, 5, topics=[creatable("a", partitions)], **TIMES)
                slow.cpu_s = local_s
                result = broker.dispatcher.handle(memoryview(frame), broker.connection)
                assert isinstance(result, Awaitable)
                reply = await result
                assert reply is not None
                assert decode(ApiKey.CREATE_TOPICS, 5, reply).throttle_time_ms == expected
                assert limited.muted_s == ([expected / 1000] if expected else [])

    asyncio.run(main())


def test_a_controller_charges_what_brokers_forward_and_not_what_nodes_send(tmp_path: Path) -> None:
    async def scene(limited: Limited) -> None:
        limited.set(((QuotaEntity(user=DEFAULT), "controller_mutation_rate"), 0.1))
        dispatcher = Dispatcher(limited.broker.services, ListenerType.CONTROLLER)
        seen = []
        for is_forwarded in (False, True):
            connection = replace(limited.broker.connection, is_forwarded=is_forwarded, mute=None)
            names = [f"{name}{is_forwarded}" for name in "abc"]
            frame = request_frame(ApiKey.CREATE_TOPICS, 7, topics=[creatable(name) for name in names], **TIMES)
            result = dispatcher.handle(memoryview(frame), connection)
            assert isinstance(result, Awaitable)
            reply = await result
            assert reply is not None
            seen.append(codes(decode(ApiKey.CREATE_TOPICS, 7, reply)))
        assert seen == [[ErrorCode.NONE] * 3, [ErrorCode.NONE] + [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2]

    play(tmp_path, scene)
