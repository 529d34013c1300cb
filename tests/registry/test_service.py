"""The service: writes have one order, whatever happens to the node, to the other nodes and to the broker."""

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
from rookery.registry.commands import PlannedWrite
from rookery.registry.errors import RegistryError
from rookery.registry.log import Record, SchemasReader, SchemasWriter
from rookery.registry.service import RegistryService
from rookery.registry.state import State
from rookery.testing import EmbeddedBroker
from tests.registry.services import (
    BROKER_SETTINGS,
    SHORT_SESSION,
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


async def write_with_retries(services: list[RegistryService], subject: str, text: str) -> int:
    """Write through the leader and retry until it succeeds, as a client does."""
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
    """Return the ids of all records in the topic, including those that the state ignores as contradictory."""
    found: list[int] = []
    config = {"bootstrap.servers": broker.bootstrap_servers}
    reader = SchemasReader(config, "_schemas", lambda _, value: found.append(msgspec.json.decode(value or b"{}")["id"]))
    reader.start()
    try:
        await reader.catch_up(60)
    finally:
        await reader.stop()
    return found


def test_written_schemas_are_read_and_survive_a_restart(broker: EmbeddedBroker) -> None:
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
            assert service.revision == revision, "nothing is written again"
        async with running(broker, 1) as service:
            assert ids_of(service.state) == {"text 1": 1, "text 2": 2}
            assert list(service.state.subjects()) == ["a", "b", "c"]

    asyncio.run(scenario())


def test_one_node_leads_and_the_others_follow(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with running(broker, 2) as second, running(broker, 1) as first, running(broker, 3) as third:
            await until(
                lambda: {service.leader_url for service in (first, second, third)} == {"http://127.0.0.1:1"},
                "all know the leader",
            )
            await until(lambda: not second.is_leader, "the second does not lead any more")
            assert await first.write(register("a", "text")) == 1
            for service in (second, third):
                with pytest.raises(RegistryError) as caught:
                    await service.write(register("b", "text"))
                assert caught.value.code == 50004
                await service.catch_up()
                assert ids_of(service.state) == {"text": 1}

    asyncio.run(scenario())


def test_another_node_leads_when_the_leader_leaves(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its LeaveGroup request is sent, however slow the machine is.
    monkeypatch.setattr(worker, "_LEAVE_TIMEOUT_S", 60)

    async def scenario() -> None:
        async with running(broker, 2, kafkagroup_session_timeout_ms="60000") as second:
            async with running(broker, 1, kafkagroup_session_timeout_ms="60000") as first:
                await until(lambda: first.is_leader and not second.is_leader, "the first leads")
                await first.write(register("a", "text 1"))
            await until(lambda: second.is_leader, "the second leads, long before a session expires")
            assert await second.write(register("a", "text 2")) == 2

    asyncio.run(scenario())


def test_a_node_that_is_not_eligible_does_not_lead(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        settings = settings_of(broker, leader_eligibility="false")
        service = RegistryService(settings, identity_of(1, eligible=False))
        await service.start()
        try:
            assert not service.is_leader
            assert service.leader_url is None
            with pytest.raises(RegistryError) as caught:
                await service.write(register("a", "text"))
            assert caught.value.code == 50004
            async with running(broker, 2) as other:
                assert other.is_leader
                await until(lambda: service.leader_url == "http://127.0.0.1:2", "both know")
        finally:
            await service.stop()

    asyncio.run(scenario())


def test_concurrent_registrations_of_a_schema_get_one_id(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with running(broker, 1) as first, running(broker, 2) as second, running(broker, 3) as third:
            services = [first, second, third]
            writes = [write_with_retries(services, f"subject {n % 7}", f"text {n % 10}") for n in range(200)]
            ids = await asyncio.gather(*writes)
            assert set(ids) == set(range(1, 11))
            for service in services:
                await service.catch_up()
                assert sorted(ids_of(service.state).values()) == list(range(1, 11))

    asyncio.run(scenario())


def test_a_plan_that_raises_writes_nothing(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with running(broker, 1) as service:

            def fail(state: State) -> PlannedWrite[int]:
                raise RegistryError(422, 42201, "no")

            with pytest.raises(RegistryError, match="no"):
                await service.write(fail)
            assert await service.write(register("a", "text")) == 1

    asyncio.run(scenario())


def test_the_write_of_a_cancelled_caller_completes(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with running(broker, 1) as service:
            broker.faults.delay("EndTxn", 0.3)
            task = asyncio.create_task(service.write(register("a", "text 1")))
            await asyncio.sleep(0.1)
            task.cancel()
            assert await service.write(register("a", "text 2")) == 2
            assert ids_of(service.state) == {"text 1": 1, "text 2": 2}

    asyncio.run(scenario())


def test_the_error_of_a_cancelled_write_is_not_logged(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    # Errors that earlier tests left behind are logged now.
    gc.collect()
    caplog.clear()

    def fail(state: State) -> PlannedWrite[int]:
        raise RegistryError(422, 42201, "no")

    async def scenario() -> None:
        async with running(broker, 1) as service:
            async with service._write_lock:
                task = asyncio.create_task(service.write(fail))
                await until(lambda: bool(service._writes), "it waits for the lock")
                task.cancel()
                await asyncio.wait([task])
            await until(lambda: not service._writes, "it has failed")
        gc.collect()
        assert "never retrieved" not in caplog.text

    asyncio.run(scenario())


def test_a_record_that_is_too_large_is_rejected_and_the_next_is_written(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with running(broker, 1) as service:
            with pytest.raises(RegistryError) as caught:
                await service.write(register("a", "x" * 2_000_000))
            assert caught.value.code == 42209
            assert await service.write(register("a", "text")) == 1

    asyncio.run(scenario())


def test_after_a_lost_response_to_the_commit_the_next_write_sees_the_records(broker: EmbeddedBroker) -> None:
    """The records are written, but the service does not know it: the next plan must see them."""

    async def scenario() -> None:
        async with running(broker, 1, kafkastore_timeout_ms="1000") as service:
            assert await write_with_retries([service], "a", "text 1") == 1
            broker.faults.delay("EndTxn", 30)
            # The reader lags, too, after its current fetch: the service must wait for it.
            lag = broker.faults.delay("Fetch", 3.0, times=None)
            await until(lambda: lag.hits > 0, "the reader lags")
            with pytest.raises(RegistryError) as caught:
                await service.write(register("a", "text 2"))
            assert caught.value.code == 50002
            assert service.is_leader
            assert ids_of(service.state) == {"text 1": 1}
            lag.cancel()
            assert await write_with_retries([service], "a", "text 3") == 3
        assert await written_ids(broker) == [1, 2, 3]

    asyncio.run(scenario())


def test_a_commit_that_never_arrived_has_no_effect(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with running(broker, 1, kafkastore_timeout_ms="1000") as service:
            assert await write_with_retries([service], "a", "text 1") == 1
            broker.faults.drop_connection("EndTxn", times=None)
            with pytest.raises(RegistryError) as caught:
                await service.write(register("a", "text 2"))
            assert caught.value.code == 50002
            await until(lambda: service._term is not None and service._term.done(), "the previous writer is fenced")
            broker.faults.clear()
            assert await write_with_retries([service], "a", "text 3") == 2
            assert ids_of(service.state) == {"text 1": 1, "text 3": 2}

    asyncio.run(scenario())


@pytest.mark.parametrize("code", ["INVALID_PRODUCER_ID_MAPPING", "INVALID_TXN_STATE", "PRODUCER_FENCED"])
def test_a_failed_append_is_repeated_in_the_next_term(broker: EmbeddedBroker, code: str) -> None:
    """The first of these occurs when nothing was written for transactional.id.expiration.ms."""

    async def scenario() -> None:
        async with running(broker, 1) as service:
            failing = broker.faults.fail("EndTxn", code)
            assert await service.write(register("a", "text 1")) == 1
            assert failing.hits == 1
        assert await written_ids(broker) == [1]

    asyncio.run(scenario())


def test_a_write_that_succeeded_is_not_planned_again(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[PlannedWrite[int]] = []

    def plan(state: State) -> PlannedWrite[int]:
        plans.append(register("a", "text 1")(state))
        return plans[-1]

    async def scenario() -> None:
        async with running(broker, 1) as service:
            append = SchemasWriter.append

            async def append_and_fail(self: SchemasWriter, records: Sequence[Record]) -> Offset:
                await append(self, records)
                raise ApiError(ErrorCode.NETWORK_EXCEPTION, "the response is lost")

            monkeypatch.setattr(SchemasWriter, "append", append_and_fail)
            assert await service.write(plan) == 1
            assert len(plans) == 1
        assert await written_ids(broker) == [1]

    asyncio.run(scenario())


def test_a_write_that_fails_in_every_term_raises_the_reason(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with running(broker, 1, kafkastore_timeout_ms="2000") as service:
            broker.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
            with pytest.raises(RegistryError, match="TOPIC_AUTHORIZATION_FAILED") as caught:
                await service.write(register("a", "text 1"))
            assert caught.value.code == 50001

    asyncio.run(scenario())


def test_the_time_out_includes_the_wait_for_the_lock(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with running(broker, 1, kafkastore_timeout_ms="200") as service:
            async with service._write_lock:
                with pytest.raises(RegistryError) as caught:
                    await service.write(register("a", "text 1"))
            assert caught.value.code == 50002

    asyncio.run(scenario())


def test_a_failure_in_an_old_term_does_not_end_the_new_one(
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
            service.leader_lost()
            service.leader_elected(identity_of(1))
            newer = service._term
            assert newer is not None
            await asyncio.wait([newer])
            held.set()
            assert await writing == 1
            assert service._term is newer

    asyncio.run(scenario())


def test_a_stop_waits_for_writes_up_to_a_time_out_and_leaves_nothing_behind(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "_DRAIN_S", 0.1)

    async def scenario() -> None:
        async with running(broker, 1, kafkastore_timeout_ms="60000") as service:
            held = broker.faults.delay("EndTxn", 60.0)
            writes = [asyncio.create_task(service.write(register("a", f"text {n}"))) for n in range(3)]
            await until(lambda: held.hits > 0, "a write is in progress")
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


def test_a_restarted_node_with_another_identity_causes_an_election(broker: EmbeddedBroker) -> None:
    """With the same instance id the group would keep its old assignment within the session, and it as the leader."""

    async def scenario() -> None:
        killed = RegistryService(settings_of(broker, **SHORT_SESSION), identity_of(1))
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


def test_two_nodes_at_one_address_are_reported_and_neither_leads(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    quick = {"kafkagroup_session_timeout_ms": "300", "kafkagroup_heartbeat_interval_ms": "50"}

    async def scenario() -> None:
        async with running(broker, 1, **quick) as one, running(broker, 1, **quick) as two:
            await until(lambda: one.leader_url is two.leader_url is None, "there is no leader")
            await until(lambda: "so none leads: set host.name" in caplog.text, "the error is logged")
        assert "another registry has the address of this one: set host.name" in caplog.text

    asyncio.run(scenario())


def test_a_zombie_cannot_write(broker: EmbeddedBroker) -> None:
    with ServiceThread(broker, 1, **SHORT_SESSION) as zombie, ServiceThread(broker, 2) as heir:
        eventually(lambda: zombie.service.is_leader and not heir.service.is_leader, "the first leads")
        assert zombie.run(zombie.service.write(register("a", "text 1"))) == 1
        zombie.pause()
        eventually(lambda: heir.service.is_leader, "the second leads")
        assert heir.run(heir.service.write(register("a", "text 2"))) == 2
        # It runs first when the loop resumes, before a heartbeat that would report the new generation.
        late = zombie.submit(zombie.service.write(register("a", "text 3")))
        assert zombie.service.is_leader
        zombie.resume()
        # It leads again, since its URL is the smallest, and plans on a state with the records of the other.
        assert late.result(60) == 3
        for each in (zombie, heir):
            each.run(each.service.catch_up())
            assert ids_of(each.service.state) == {"text 1": 1, "text 2": 2, "text 3": 3}
        eventually(lambda: zombie.service.is_leader != heir.service.is_leader, "one of them leads")
    assert asyncio.run(written_ids(broker)) == [1, 2, 3]


class SlowPlan:
    """Plans to register `text 1`, and then blocks the worker until `resume` is set."""

    def __init__(self) -> None:
        self.planned, self.resume = threading.Event(), threading.Event()

    def __call__(self, state: State) -> PlannedWrite[int]:
        planned = register("a", "text 1")(state)
        self.planned.set()
        self.resume.wait(60)
        return planned


def test_a_write_planned_in_an_earlier_term_is_not_appended(broker: EmbeddedBroker) -> None:
    """The leader has planned a write and is paused before the append; meanwhile another leader assigns the same id."""
    plan = SlowPlan()
    with ServiceThread(broker, 1, **SHORT_SESSION) as deposed, ServiceThread(broker, 2) as heir:
        eventually(lambda: deposed.service.is_leader and not heir.service.is_leader, "the first leads")
        late = deposed.submit(deposed.service.write(plan))
        assert plan.planned.wait(60)
        deposed.pause()
        eventually(lambda: heir.service.is_leader, "the second leads")
        assert heir.run(heir.service.write(register("a", "text 2"))) == 1
        plan.resume.set()
        deposed.resume()
        assert late.result(60) == 2
        for each in (deposed, heir):
            each.run(each.service.catch_up())
            assert ids_of(each.service.state) == {"text 2": 1, "text 1": 2}
    assert asyncio.run(written_ids(broker)) == [1, 2]


def test_a_write_fails_if_the_node_lost_the_lead_for_good(broker: EmbeddedBroker) -> None:
    plan = SlowPlan()
    with ServiceThread(broker, 2, **SHORT_SESSION) as deposed:
        late = deposed.submit(deposed.service.write(plan))
        assert plan.planned.wait(60)
        with ServiceThread(broker, 1) as heir:
            assert heir.run(heir.service.write(register("a", "text 2"))) == 1
            plan.resume.set()
            with pytest.raises(RegistryError) as caught:
                late.result(60)
            assert caught.value.code == 50004
            assert deposed.service.leader_url == "http://127.0.0.1:1"
    assert asyncio.run(written_ids(broker)) == [1]


def test_two_permanent_leaders_assign_no_id_twice(broker: EmbeddedBroker) -> None:
    """Two groups on one topic: no election sees both, and only fencing prevents conflicts."""
    plan = SlowPlan()
    with (
        ServiceThread(broker, 1, schema_registry_group_id="one", kafkagroup_session_timeout_ms="60000") as one,
        ServiceThread(broker, 1, schema_registry_group_id="two", kafkagroup_session_timeout_ms="60000") as two,
    ):
        assert one.run(one.service.write(register("a", "text 0"))) == 1
        late = one.submit(one.service.write(plan))
        assert plan.planned.wait(60)
        assert two.run(two.service.write(register("a", "text 2"))) == 2
        plan.resume.set()
        assert late.result(60) == 3
        for each in (one, two):
            each.run(each.service.catch_up())
            assert ids_of(each.service.state) == {"text 0": 1, "text 2": 2, "text 1": 3}
    assert asyncio.run(written_ids(broker)) == [1, 2, 3]


@pytest.mark.parametrize("clean", [True, False])
def test_a_broker_restart_during_writes_loses_and_duplicates_nothing(broker: EmbeddedBroker, clean: bool) -> None:
    async def scenario() -> None:
        async with running(broker, 1) as first, running(broker, 2) as second:
            services = [first, second]

            async def write_many(name: str) -> dict[str, int]:
                texts = [f"{name} {n}" for n in range(40)]
                return {text: await write_with_retries(services, name, text) for text in texts}

            writing = [asyncio.create_task(write_many(f"writer {n}")) for n in range(4)]
            for _ in range(2):
                await asyncio.sleep(0.3)
                await asyncio.to_thread(broker.restart, clean=clean)
            assigned = {text: number for ids in await asyncio.gather(*writing) for text, number in ids.items()}
            assert len(set(assigned.values())) == len(assigned) == 160
            for service in services:
                await service.catch_up()
                assert ids_of(service.state) == assigned
        assert sorted(await written_ids(broker)) == list(range(1, 161))

    asyncio.run(scenario())
