"""The service: one order of decisions, whatever happens to the node, to the others and to the broker."""

import asyncio
import threading
from collections.abc import Iterator

import msgspec
import pytest

from rookery.registry.decisions import Decision
from rookery.registry.errors import RegistryError
from rookery.registry.log import SchemasReader
from rookery.registry.service import RegistryService
from rookery.registry.state import State
from rookery.testing import EmbeddedBroker
from tests.registry.players import (
    BROKER_SETTINGS,
    ServiceThread,
    identity_of,
    ids_of,
    register,
    running,
    settings_of,
    until,
)
from tests.support.waiting import eventually


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings=BROKER_SETTINGS) as broker:
        yield broker


async def write_somehow(services: list[RegistryService], subject: str, text: str) -> int:
    """As a client does: by the leader, and again until it is there."""
    while True:
        for service in services:
            if service.is_leader:
                try:
                    return await service.write(register(subject, text))
                except RegistryError as error:
                    if error.code not in (50001, 50002, 50004):
                        raise
        await asyncio.sleep(0.02)


async def written_ids(broker: EmbeddedBroker) -> list[int]:
    """Of all records in the topic: also of those that the state leaves out because they contradict it."""
    found: list[int] = []
    config = {"bootstrap.servers": broker.bootstrap_servers}
    reader = SchemasReader(config, "_schemas", lambda _, value: found.append(msgspec.json.decode(value or b"{}")["id"]))
    reader.start()
    try:
        await reader.catch_up(10)
    finally:
        await reader.stop()
    return found


def test_what_was_written_is_read_and_survives(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with running(broker, 1) as service:
            assert service.is_leader
            assert service.leader_url == "http://127.0.0.1:1"
            assert service.kafka_cluster_id
            before = service.revision
            assert await service.write(register("a", "text 1")) == 1
            assert service.revision > before
            assert await service.write(register("b", "text 2")) == 2
            assert await service.write(register("c", "text 1")) == 1
            revision = service.revision
            assert await service.write(register("c", "text 1")) == 1
            assert service.revision == revision, "nothing is written that is there"
        async with running(broker, 1) as service:
            assert ids_of(service.state) == {"text 1": 1, "text 2": 2}
            assert list(service.state.subjects()) == ["a", "b", "c"]

    asyncio.run(scenario())


def test_one_leads_and_the_others_follow(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with running(broker, 2) as second, running(broker, 1) as first, running(broker, 3) as third:
            await until(
                lambda: {service.leader_url for service in (first, second, third)} == {"http://127.0.0.1:1"},
                "all know the leader",
            )
            await until(lambda: not second.is_leader, "the second gave up its lead")
            assert await first.write(register("a", "text")) == 1
            for service in (second, third):
                with pytest.raises(RegistryError) as refused:
                    await service.write(register("b", "text"))
                assert refused.value.code == 50004
                await service.catch_up()
                assert ids_of(service.state) == {"text": 1}

    asyncio.run(scenario())


def test_the_next_leads_when_the_leader_leaves(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with running(broker, 2, kafkagroup_session_timeout_ms="30000") as second:
            async with running(broker, 1, kafkagroup_session_timeout_ms="30000") as first:
                await until(lambda: first.is_leader and not second.is_leader, "the first leads")
                await first.write(register("a", "text 1"))
            await until(lambda: second.is_leader, "the second leads, long before a session is over", timeout_s=15)
            assert await second.write(register("a", "text 2")) == 2

    asyncio.run(scenario())


def test_who_is_not_eligible_does_not_lead(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        settings = settings_of(broker, leader_eligibility="false")
        service = RegistryService(settings, identity_of(1, eligible=False))
        await service.start()
        try:
            assert not service.is_leader
            assert service.leader_url is None
            with pytest.raises(RegistryError) as refused:
                await service.write(register("a", "text"))
            assert refused.value.code == 50004
            async with running(broker, 2) as other:
                assert other.is_leader
                await until(lambda: service.leader_url == "http://127.0.0.1:2", "both know")
        finally:
            await service.stop()

    asyncio.run(scenario())


def test_the_same_schema_gets_one_id_however_many_register_it(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with running(broker, 1) as first, running(broker, 2) as second, running(broker, 3) as third:
            services = [first, second, third]
            writes = [write_somehow(services, f"subject {n % 7}", f"text {n % 10}") for n in range(200)]
            ids = await asyncio.gather(*writes)
            assert set(ids) == set(range(1, 11))
            for service in services:
                await service.catch_up()
                assert sorted(ids_of(service.state).values()) == list(range(1, 11))

    asyncio.run(scenario())


def test_a_decision_that_raises_writes_nothing(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with running(broker, 1) as service:

            def refuse(state: State) -> Decision[int]:
                raise RegistryError(422, 42201, "no")

            with pytest.raises(RegistryError, match="no"):
                await service.write(refuse)
            assert await service.write(register("a", "text")) == 1

    asyncio.run(scenario())


def test_a_caller_that_goes_away_leaves_a_whole_write(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with running(broker, 1) as service:
            broker.faults.delay("EndTxn", 0.3)
            task = asyncio.create_task(service.write(register("a", "text 1")))
            await asyncio.sleep(0.1)
            task.cancel()
            assert await service.write(register("a", "text 2")) == 2
            assert ids_of(service.state) == {"text 1": 1, "text 2": 2}

    asyncio.run(scenario())


def test_a_record_that_is_too_large_is_refused_and_the_next_is_taken(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with running(broker, 1) as service:
            with pytest.raises(RegistryError) as refused:
                await service.write(register("a", "x" * 2_000_000))
            assert refused.value.code == 42209
            assert await service.write(register("a", "text")) == 1

    asyncio.run(scenario())


def test_a_lost_answer_to_the_commit_is_looked_up(broker: EmbeddedBroker) -> None:
    """The write is there, and nobody knows: whoever decides next must see it."""

    async def scenario() -> None:
        async with running(broker, 1, kafkastore_timeout_ms="1000") as service:
            assert await service.write(register("a", "text 1")) == 1
            broker.faults.delay("EndTxn", 3.0)
            # The reader lags behind, too, once its fetch that is under way has ended: it must be waited for.
            lag = broker.faults.delay("Fetch", 1.5, times=None)
            await until(lambda: lag.hits > 0, "the reader lags")
            with pytest.raises(RegistryError) as refused:
                await service.write(register("a", "text 2"))
            assert refused.value.code == 50002
            assert service.is_leader
            assert ids_of(service.state) == {"text 1": 1}
            assert await write_somehow([service], "a", "text 3") == 3
            broker.faults.clear()
        assert await written_ids(broker) == [1, 2, 3]

    asyncio.run(scenario())


def test_a_commit_that_never_came_is_as_if_it_had_not_been(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with running(broker, 1, kafkastore_timeout_ms="1000") as service:
            assert await service.write(register("a", "text 1")) == 1
            broker.faults.drop_connection("EndTxn", times=None)
            with pytest.raises(RegistryError) as refused:
                await service.write(register("a", "text 2"))
            assert refused.value.code == 50002
            broker.faults.clear()
            assert await write_somehow([service], "a", "text 3") == 2
            assert ids_of(service.state) == {"text 1": 1, "text 3": 2}

    asyncio.run(scenario())


def test_a_zombie_cannot_write(broker: EmbeddedBroker) -> None:
    with ServiceThread(broker, 1) as zombie, ServiceThread(broker, 2) as heir:
        eventually(lambda: zombie.service.is_leader and not heir.service.is_leader, "the first leads")
        assert zombie.run(zombie.service.write(register("a", "text 1"))) == 1
        zombie.pause()
        eventually(lambda: heir.service.is_leader, "the second leads")
        assert heir.run(heir.service.write(register("a", "text 2"))) == 2
        # It comes first when the loop goes on: before a heartbeat that would tell.
        late = zombie.submit(zombie.service.write(register("a", "text 3")))
        assert zombie.service.is_leader
        zombie.resume()
        with pytest.raises(RegistryError) as refused:
            late.result(30)
        assert refused.value.code in (50001, 50004)
        assert zombie.run(_written_by_either(zombie, heir, "text 4")) == 3
        for each in (zombie, heir):
            each.run(each.service.catch_up())
            assert ids_of(each.service.state) == {"text 1": 1, "text 2": 2, "text 4": 3}
        eventually(lambda: zombie.service.is_leader != heir.service.is_leader, "one of them leads")


async def _written_by_either(one: ServiceThread, two: ServiceThread, text: str) -> int:
    while True:
        for each in (one, two):
            try:
                return await asyncio.wrap_future(each.submit(each.service.write(register("a", text))))
            except RegistryError:
                await asyncio.sleep(0.02)


async def _written_by(one: ServiceThread, text: str) -> int:
    return await _written_by_either(one, one, text)


def test_a_decision_from_before_the_fall_is_not_written(broker: EmbeddedBroker) -> None:
    """The leader has decided, and stands still before it writes; meanwhile another decides the same number."""
    decided, go_on = threading.Event(), threading.Event()

    def decide_slowly(state: State) -> Decision[int]:
        decision = register("a", "text 1")(state)
        decided.set()
        go_on.wait(60)
        return decision

    with ServiceThread(broker, 1) as deposed, ServiceThread(broker, 2) as heir:
        eventually(lambda: deposed.service.is_leader and not heir.service.is_leader, "the first leads")
        late = deposed.submit(deposed.service.write(decide_slowly))
        assert decided.wait(30)
        eventually(lambda: heir.service.is_leader, "the second leads")
        assert heir.run(heir.service.write(register("a", "text 2"))) == 1
        go_on.set()
        with pytest.raises(RegistryError):
            late.result(30)
        for each in (deposed, heir):
            each.run(each.service.catch_up())
            assert ids_of(each.service.state) == {"text 2": 1}


def test_two_leaders_for_ever_give_no_id_twice(broker: EmbeddedBroker) -> None:
    """Two groups on one topic: no election tells the one of the other, and only the fences keep them apart."""
    decided, go_on = threading.Event(), threading.Event()

    def decide_slowly(state: State) -> Decision[int]:
        decision = register("a", "text 1")(state)
        decided.set()
        go_on.wait(60)
        return decision

    with (
        ServiceThread(broker, 1, schema_registry_group_id="one", kafkagroup_session_timeout_ms="60000") as one,
        ServiceThread(broker, 1, schema_registry_group_id="two", kafkagroup_session_timeout_ms="60000") as two,
    ):
        with pytest.raises(RegistryError):
            one.run(one.service.write(register("a", "text 0")))
        assert one.run(_written_by(one, "text 0")) == 1
        late = one.submit(one.service.write(decide_slowly))
        assert decided.wait(30)
        assert two.run(_written_by(two, "text 2")) == 2
        go_on.set()
        with pytest.raises(RegistryError):
            late.result(30)
        assert one.run(_written_by(one, "text 1")) == 3
        for each in (one, two):
            each.run(each.service.catch_up())
            assert ids_of(each.service.state) == {"text 0": 1, "text 2": 2, "text 1": 3}
    assert asyncio.run(written_ids(broker)) == [1, 2, 3]


@pytest.mark.parametrize("clean", [True, False])
def test_a_broker_that_restarts_during_writes_loses_and_doubles_nothing(broker: EmbeddedBroker, clean: bool) -> None:
    async def scenario() -> None:
        async with running(broker, 1) as first, running(broker, 2) as second:
            services = [first, second]

            async def write_many(name: str) -> dict[str, int]:
                texts = [f"{name} {n}" for n in range(40)]
                return {text: await write_somehow(services, name, text) for text in texts}

            writing = [asyncio.create_task(write_many(f"writer {n}")) for n in range(4)]
            for _ in range(2):
                await asyncio.sleep(0.3)
                await asyncio.to_thread(broker.restart, clean=clean)
            given = {text: number for ids in await asyncio.gather(*writing) for text, number in ids.items()}
            assert len(set(given.values())) == len(given) == 160
            for service in services:
                await service.catch_up()
                assert ids_of(service.state) == given
        assert sorted(await written_ids(broker)) == list(range(1, 161))

    asyncio.run(scenario())
