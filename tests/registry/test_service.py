"""The service: one order of decisions, whatever happens to the node, to the others and to the broker."""

import asyncio
import gc
import threading
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from rookery.base.errors import ApiError, ErrorCode, StartupError
from rookery.base.types import Offset
from rookery.client.membership import worker
from rookery.registry import service as service_module
from rookery.registry.decisions import Decision
from rookery.registry.errors import RegistryError
from rookery.registry.log import Record, SchemasReader, SchemasWriter
from rookery.registry.service import RegistryService
from rookery.registry.state import State
from rookery.testing import EmbeddedBroker
from tests.registry.players import (
    BROKER_SETTINGS,
    MISSED_SOON,
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
        await reader.catch_up(60)
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


def test_the_next_leads_when_the_leader_leaves(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its good-bye is heard, however slow the machine is.
    monkeypatch.setattr(worker, "_LEAVE_TIMEOUT_S", 60)

    async def scenario() -> None:
        async with running(broker, 2, kafkagroup_session_timeout_ms="60000") as second:
            async with running(broker, 1, kafkagroup_session_timeout_ms="60000") as first:
                await until(lambda: first.is_leader and not second.is_leader, "the first leads")
                await first.write(register("a", "text 1"))
            await until(lambda: second.is_leader, "the second leads, long before a session is over")
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


def test_nobody_hears_of_a_failure_that_nobody_waits_for(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    # What tests before this one have left behind says so now.
    gc.collect()
    caplog.clear()

    def refuse(state: State) -> Decision[int]:
        raise RegistryError(422, 42201, "no")

    async def scenario() -> None:
        async with running(broker, 1) as service:
            async with service._turn:
                task = asyncio.create_task(service.write(refuse))
                await until(lambda: bool(service._writes), "it waits for its turn")
                task.cancel()
                await asyncio.wait([task])
            await until(lambda: not service._writes, "it was refused")
        gc.collect()
        assert "never retrieved" not in caplog.text

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
            assert await write_somehow([service], "a", "text 1") == 1
            broker.faults.delay("EndTxn", 30)
            # The reader lags behind, too, once its fetch that is under way has ended: it must be waited for.
            lag = broker.faults.delay("Fetch", 3.0, times=None)
            await until(lambda: lag.hits > 0, "the reader lags")
            with pytest.raises(RegistryError) as refused:
                await service.write(register("a", "text 2"))
            assert refused.value.code == 50002
            assert service.is_leader
            assert ids_of(service.state) == {"text 1": 1}
            lag.cancel()
            assert await write_somehow([service], "a", "text 3") == 3
        assert await written_ids(broker) == [1, 2, 3]

    asyncio.run(scenario())


def test_a_commit_that_never_came_is_as_if_it_had_not_been(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with running(broker, 1, kafkastore_timeout_ms="1000") as service:
            assert await write_somehow([service], "a", "text 1") == 1
            broker.faults.drop_connection("EndTxn", times=None)
            with pytest.raises(RegistryError) as refused:
                await service.write(register("a", "text 2"))
            assert refused.value.code == 50002
            await until(lambda: service._term is not None and service._term.done(), "the writer before is fenced")
            broker.faults.clear()
            assert await write_somehow([service], "a", "text 3") == 2
            assert ids_of(service.state) == {"text 1": 1, "text 3": 2}

    asyncio.run(scenario())


@pytest.mark.parametrize("code", ["INVALID_PRODUCER_ID_MAPPING", "INVALID_TXN_STATE", "PRODUCER_FENCED"])
def test_an_append_that_failed_is_made_in_the_next_term(broker: EmbeddedBroker, code: str) -> None:
    """The first of these comes when nothing was written for transactional.id.expiration.ms."""

    async def scenario() -> None:
        async with running(broker, 1) as service:
            failing = broker.faults.fail("EndTxn", code)
            assert await service.write(register("a", "text 1")) == 1
            assert failing.hits == 1
        assert await written_ids(broker) == [1]

    asyncio.run(scenario())


def test_a_write_that_was_carried_out_is_not_decided_again(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions: list[Decision[int]] = []

    def decide(state: State) -> Decision[int]:
        decisions.append(register("a", "text 1")(state))
        return decisions[-1]

    async def scenario() -> None:
        async with running(broker, 1) as service:
            append = SchemasWriter.append

            async def append_and_fail(self: SchemasWriter, records: Sequence[Record]) -> Offset:
                await append(self, records)
                raise ApiError(ErrorCode.NETWORK_EXCEPTION, "the answer is lost")

            monkeypatch.setattr(SchemasWriter, "append", append_and_fail)
            assert await service.write(decide) == 1
            assert len(decisions) == 1
        assert await written_ids(broker) == [1]

    asyncio.run(scenario())


def test_what_no_term_can_write_is_refused_with_the_reason(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with running(broker, 1, kafkastore_timeout_ms="2000") as service:
            broker.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
            with pytest.raises(RegistryError, match="TOPIC_AUTHORIZATION_FAILED") as refused:
                await service.write(register("a", "text 1"))
            assert refused.value.code == 50001

    asyncio.run(scenario())


def test_the_wait_for_the_turn_counts(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with running(broker, 1, kafkastore_timeout_ms="200") as service:
            async with service._turn:
                with pytest.raises(RegistryError) as refused:
                    await service.write(register("a", "text 1"))
            assert refused.value.code == 50002

    asyncio.run(scenario())


def test_a_failure_of_an_old_term_does_not_end_the_new_one(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running(broker, 1) as service:
            held, is_held = asyncio.Event(), asyncio.Event()
            append = SchemasWriter.append

            async def append_late(self: SchemasWriter, records: Sequence[Record]) -> Offset:
                is_held.set()
                await held.wait()
                return await append(self, records)

            monkeypatch.setattr(SchemasWriter, "append", append_late)
            writing = asyncio.create_task(service.write(register("a", "text 1")))
            await is_held.wait()
            service.deserted()
            service.elected(identity_of(1))
            newer = service._term
            assert newer is not None
            await asyncio.wait([newer])
            held.set()
            assert await writing == 1
            assert service._term is newer

    asyncio.run(scenario())


def test_a_stop_waits_for_no_write_for_ever_and_leaves_nothing_behind(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "_DRAIN_S", 0.1)

    async def scenario() -> None:
        async with running(broker, 1, kafkastore_timeout_ms="60000") as service:
            held = broker.faults.delay("EndTxn", 60.0)
            writes = [asyncio.create_task(service.write(register("a", f"text {n}"))) for n in range(3)]
            await until(lambda: held.hits > 0, "a write is under way")
        assert service._term is None
        assert not service.is_leader
        for outcome in await asyncio.gather(*writes, return_exceptions=True):
            assert isinstance(outcome, RegistryError)
            assert "shutting down" in outcome.message
        with pytest.raises(RegistryError, match="shutting down"):
            await service.write(register("a", "text"))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("code", "key"),
    [
        ("INVALID_SESSION_TIMEOUT", r"kafkagroup\.session\.timeout\.ms"),
        ("INCONSISTENT_GROUP_PROTOCOL", r"schema\.registry\.group\.id"),
    ],
)
def test_a_node_that_can_never_join_does_not_start(broker: EmbeddedBroker, code: str, key: str) -> None:
    broker.faults.fail("JoinGroup", code, times=None)

    async def scenario() -> None:
        with pytest.raises(StartupError, match=key):
            async with running(broker, 1):
                pass

    asyncio.run(scenario())


def test_a_node_that_comes_back_as_another_is_seen_as_that(broker: EmbeddedBroker) -> None:
    """Within its session: the group would keep its old place for it, and the leader that it was."""

    async def scenario() -> None:
        killed = RegistryService(settings_of(broker, **MISSED_SOON), identity_of(1))
        await killed.start()
        async with running(broker, 2) as other:
            await until(lambda: other.leader_url == "http://127.0.0.1:1", "the first leads")
            await killed.stop(leave=False)
            changed = RegistryService(settings_of(broker), identity_of(1, eligible=False))
            await changed.start()
            try:
                await until(lambda: other.is_leader and changed.leader_url == "http://127.0.0.1:2", "the second leads")
                assert await other.write(register("a", "text")) == 1
            finally:
                await changed.stop()

    asyncio.run(scenario())


def test_two_nodes_at_one_address_are_told_and_neither_leads(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    quick = {"kafkagroup_session_timeout_ms": "300", "kafkagroup_heartbeat_interval_ms": "50"}

    async def scenario() -> None:
        async with running(broker, 1, **quick) as one, running(broker, 1, **quick) as two:
            await until(lambda: one.leader_url is two.leader_url is None, "nobody leads")
            await until(lambda: "so none leads: set host.name" in caplog.text, "both are told")
        assert "another registry says that it is at this address: set host.name" in caplog.text

    asyncio.run(scenario())


def test_a_zombie_cannot_write(broker: EmbeddedBroker) -> None:
    with ServiceThread(broker, 1, **MISSED_SOON) as zombie, ServiceThread(broker, 2) as heir:
        eventually(lambda: zombie.service.is_leader and not heir.service.is_leader, "the first leads")
        assert zombie.run(zombie.service.write(register("a", "text 1"))) == 1
        zombie.pause()
        eventually(lambda: heir.service.is_leader, "the second leads")
        assert heir.run(heir.service.write(register("a", "text 2"))) == 2
        # It comes first when the loop goes on: before a heartbeat that would tell.
        late = zombie.submit(zombie.service.write(register("a", "text 3")))
        assert zombie.service.is_leader
        zombie.resume()
        # It leads again, since its name comes first, and decides on what the other has written.
        assert late.result(60) == 3
        for each in (zombie, heir):
            each.run(each.service.catch_up())
            assert ids_of(each.service.state) == {"text 1": 1, "text 2": 2, "text 3": 3}
        eventually(lambda: zombie.service.is_leader != heir.service.is_leader, "one of them leads")
    assert asyncio.run(written_ids(broker)) == [1, 2, 3]


class SlowDecision:
    """Registers `text 1`; the first time it has decided, it stands still until `go_on`, in the worker."""

    def __init__(self) -> None:
        self.decided, self.go_on = threading.Event(), threading.Event()

    def __call__(self, state: State) -> Decision[int]:
        decision = register("a", "text 1")(state)
        self.decided.set()
        self.go_on.wait(60)
        return decision


def test_a_decision_from_before_the_fall_is_not_written(broker: EmbeddedBroker) -> None:
    """The leader has decided, and stands still before it writes; meanwhile another decides the same number."""
    decide = SlowDecision()
    with ServiceThread(broker, 1, **MISSED_SOON) as deposed, ServiceThread(broker, 2) as heir:
        eventually(lambda: deposed.service.is_leader and not heir.service.is_leader, "the first leads")
        late = deposed.submit(deposed.service.write(decide))
        assert decide.decided.wait(60)
        deposed.pause()
        eventually(lambda: heir.service.is_leader, "the second leads")
        assert heir.run(heir.service.write(register("a", "text 2"))) == 1
        decide.go_on.set()
        deposed.resume()
        assert late.result(60) == 2
        for each in (deposed, heir):
            each.run(each.service.catch_up())
            assert ids_of(each.service.state) == {"text 2": 1, "text 1": 2}
    assert asyncio.run(written_ids(broker)) == [1, 2]


def test_who_has_fallen_and_does_not_lead_again_refuses(broker: EmbeddedBroker) -> None:
    decide = SlowDecision()
    with ServiceThread(broker, 2, **MISSED_SOON) as deposed:
        late = deposed.submit(deposed.service.write(decide))
        assert decide.decided.wait(60)
        with ServiceThread(broker, 1) as heir:
            assert heir.run(heir.service.write(register("a", "text 2"))) == 1
            decide.go_on.set()
            with pytest.raises(RegistryError) as refused:
                late.result(60)
            assert refused.value.code == 50004
            assert deposed.service.leader_url == "http://127.0.0.1:1"
    assert asyncio.run(written_ids(broker)) == [1]


def test_two_leaders_for_ever_give_no_id_twice(broker: EmbeddedBroker) -> None:
    """Two groups on one topic: no election tells the one of the other, and only the fences keep them apart."""
    decide = SlowDecision()
    with (
        ServiceThread(broker, 1, schema_registry_group_id="one", kafkagroup_session_timeout_ms="60000") as one,
        ServiceThread(broker, 1, schema_registry_group_id="two", kafkagroup_session_timeout_ms="60000") as two,
    ):
        assert one.run(one.service.write(register("a", "text 0"))) == 1
        late = one.submit(one.service.write(decide))
        assert decide.decided.wait(60)
        assert two.run(two.service.write(register("a", "text 2"))) == 2
        decide.go_on.set()
        assert late.result(60) == 3
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
