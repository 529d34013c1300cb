"""The life of a broker: the pure core by a table and by random runs, then its shell with a controller of fakes."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.base.errors import ErrorCode, StartupError
from rookery.broker.api_row import ListenerType
from rookery.broker.controller_link import ActiveControllerLink
from rookery.broker.dispatch import Dispatcher
from rookery.broker.lifecycle import ASK_AGAIN_S, BrokerState, Lifecycle, Register, Reply, SendHeartbeat
from rookery.broker.lifecycle_task import BrokerLifecycle
from rookery.metadata.features import SUPPORTED_FEATURES
from rookery.metadata.publisher import MetadataPublisher
from rookery.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    encode_record,
)
from rookery.metadata.requests import OK, BrokerHeartbeat, HeartbeatReply, Outcome, Registered, Registration
from rookery.testing.logs import routed_logs
from tests.broker import harness
from tests.broker.cluster import ControllerNode

INTERVAL_S, TIMEOUT_S = 2.0, 60.0
NONE = ErrorCode.NONE


def started() -> Lifecycle:
    core = Lifecycle(previous_broker_epoch=3, interval_s=INTERVAL_S, registration_timeout_s=TIMEOUT_S)
    core.start(0)
    return core


def state_of(lifecycle: Lifecycle | BrokerLifecycle) -> BrokerState:
    """Return the state; a type checker assumes that a state that was compared does not change."""
    return lifecycle.state


def register(core: Lifecycle, epoch: int = 10, now_s: float = 0) -> None:
    assert isinstance(core.begin(), Register)
    core.registered(NONE, epoch, now_s)


def beat(core: Lifecycle, now_s: float = 0, **reply: Any) -> SendHeartbeat:
    action = core.begin()
    assert isinstance(action, SendHeartbeat)
    core.heard(Reply(**reply), now_s)
    return action


def running() -> Lifecycle:
    core = started()
    register(core)
    core.ready(0)
    beat(core, is_caught_up=True, is_fenced=False)
    assert core.state is BrokerState.RUNNING
    return core


def test_a_life() -> None:
    core = Lifecycle(previous_broker_epoch=3, interval_s=INTERVAL_S, registration_timeout_s=TIMEOUT_S)
    assert state_of(core) is BrokerState.NOT_RUNNING
    core.start(100)
    assert (core.state, core.due_s, core.begin()) == (BrokerState.STARTING, 100, Register(3))
    core.registered(NONE, 10, 101)
    assert (core.is_registered, core.broker_epoch, core.due_s) == (True, 10, 101)
    assert beat(core, 102, is_caught_up=False) == SendHeartbeat(10, wants_fence=True, wants_shut_down=False)
    assert (core.state, core.due_s) == (BrokerState.STARTING, 102 + ASK_AGAIN_S)
    beat(core, 103, is_caught_up=True)
    assert (core.state, core.due_s) == (BrokerState.RECOVERY, 103 + INTERVAL_S), "nothing to ask for while it recovers"
    core.ready(104)
    assert core.due_s == 104
    assert beat(core, 104, is_caught_up=True) == SendHeartbeat(10, wants_fence=False, wants_shut_down=False)
    assert (core.state, core.due_s) == (BrokerState.RECOVERY, 104 + ASK_AGAIN_S)
    beat(core, 105, is_caught_up=True, is_fenced=False)
    assert (core.state, core.due_s) == (BrokerState.RUNNING, 105 + INTERVAL_S)
    core.shut_down(106)
    assert (core.state, core.due_s) == (BrokerState.PENDING_CONTROLLED_SHUTDOWN, 106)
    assert beat(core, 106, is_fenced=False) == SendHeartbeat(10, wants_fence=False, wants_shut_down=True)
    assert core.due_s == 106 + ASK_AGAIN_S
    beat(core, 107, is_fenced=False, should_shut_down=True)
    assert state_of(core) is BrokerState.SHUTTING_DOWN


def test_it_asks_less_and_less_often() -> None:
    core, now_s, pauses = started(), 0.0, []
    register(core)
    for _ in range(9):
        beat(core, now_s)
        pauses.append(round(core.due_s - now_s, 3))
        now_s = core.due_s
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2, 2, 2]
    core.hurry(now_s)
    beat(core, now_s)
    assert core.due_s - now_s == pytest.approx(0.05), "there was news: it begins again"


def test_news_while_a_request_is_under_way_are_sent_next() -> None:
    core = running()
    core.begin()
    core.hurry(50)
    core.heard(Reply(is_caught_up=True, is_fenced=False), 51)
    assert core.due_s == 51
    core.begin()
    core.heard(Reply(is_caught_up=True, is_fenced=False), 52)
    assert core.due_s == 52 + INTERVAL_S


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
@pytest.mark.parametrize("make", [running, started])
def test_an_unknown_broker_registers_again(make: Callable[[], Lifecycle], code: ErrorCode) -> None:
    core = make()
    if not core.is_registered:
        register(core)
    state = core.state
    beat(core, 5, code=code)
    assert (core.is_registered, core.is_fenced, core.due_s) == (False, True, 5)
    assert core.begin() == Register(10), "its logs are those of the last epoch"
    core.registered(NONE, 20, 6)
    assert (core.state, core.broker_epoch, core.due_s) == (state, 20, 6)


def test_a_fenced_broker_that_runs_asks_to_be_unfenced() -> None:
    core = running()
    action = beat(core, 5, is_caught_up=True, is_fenced=True)
    assert not action.wants_fence
    assert (core.state, core.due_s) == (BrokerState.RUNNING, 5 + ASK_AGAIN_S)
    beat(core, 6, is_caught_up=True, is_fenced=False)
    assert core.due_s == 6 + INTERVAL_S


def test_a_duplicate_is_tried_again_until_the_time_is_over() -> None:
    core, now_s = started(), 0.0
    while core.failure is None:
        assert isinstance(core.begin(), Register)
        core.registered(ErrorCode.DUPLICATE_BROKER_REGISTRATION, -1, now_s)
        assert now_s <= core.due_s <= now_s + INTERVAL_S
        now_s = core.due_s
    assert TIMEOUT_S <= now_s <= TIMEOUT_S + 2 * INTERVAL_S
    assert "another process is registered with this node.id" in core.failure


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (ErrorCode.INCONSISTENT_CLUSTER_ID, "controller.quorum.voters"),
        (ErrorCode.INVALID_REGISTRATION, "node.id"),
        (ErrorCode.UNSUPPORTED_VERSION, "install a newer one"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "CLUSTER_ACTION"),
    ],
)
def test_errors_that_an_operator_must_mend(code: ErrorCode, text: str) -> None:
    core = started()
    core.begin()
    core.registered(code, -1, 0)
    assert core.failure is not None
    assert text in core.failure
    later = running()
    beat(later, 5, code=ErrorCode.STALE_BROKER_EPOCH)
    later.begin()
    later.registered(code, -1, 6)
    assert later.failure is None, "a broker that serves goes on, and tries again"
    assert isinstance(later.begin(), Register)


def test_no_response() -> None:
    core = started()
    core.begin()
    core.failed("no active controller", 10)
    assert (core.failure, core.due_s) == (None, 10 + ASK_AGAIN_S)
    core.begin()
    core.failed("no active controller", TIMEOUT_S)
    assert core.failure == "this broker could not register in 60 s: no active controller"
    later = running()
    later.begin()
    later.failed("no active controller", 10_000)
    assert (later.failure, later.state) == (None, BrokerState.RUNNING)


@pytest.mark.parametrize("is_registered", [False, True])
def test_a_broker_that_never_served_needs_no_permission(is_registered: bool) -> None:
    core = started()
    if is_registered:
        register(core)
    core.shut_down(1)
    assert core.state is BrokerState.SHUTTING_DOWN


ORDER = list(BrokerState)
CODES = st.sampled_from([NONE, NONE, NONE, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NOT_CONTROLLER])
STEPS = st.lists(
    st.one_of(
        st.sampled_from(["ready", "shut_down", "hurry", "time-out"]),
        st.builds(Reply, CODES, st.booleans(), st.booleans(), st.booleans()),
    ),
    max_size=40,
)


@given(STEPS)
@settings(max_examples=200, deadline=None)
def test_random_lives(steps: list[str | Reply]) -> None:
    """States only advance, heartbeats are never further apart than the interval, and they say what the state wants."""
    core, now_s, epoch, is_ready, wants_shut_down = started(), 0.0, 10, False, False
    for step in steps:
        before = core.state
        match step:
            case "ready":
                is_ready = True
                core.ready(now_s)
            case "shut_down":
                wants_shut_down = True
                core.shut_down(now_s)
            case "hurry":
                core.hurry(now_s)
            case _:
                now_s = max(now_s, core.due_s)
                action = core.begin()
                if isinstance(action, SendHeartbeat):
                    assert action == SendHeartbeat(epoch, not is_ready, wants_shut_down)
                if isinstance(step, str):
                    core.failed(step, now_s)
                elif isinstance(action, Register):
                    epoch += 1
                    core.registered(NONE, epoch, now_s)
                else:
                    core.heard(step, now_s)
        assert ORDER.index(core.state) >= ORDER.index(before)
        assert now_s <= core.due_s <= now_s + INTERVAL_S
        assert core.state is not BrokerState.RUNNING or is_ready


# The shell

REGISTRATION = Registration(
    node_id=7,
    cluster_id="cluster",
    incarnation_id=UUID(int=1),
    endpoints=(BrokerEndpoint("PLAINTEXT", "localhost", 9092, 0),),
    features=(BrokerFeature("metadata.version", 7, 22),),
    rack="r",
    log_directories=(UUID(int=200),),
    previous_broker_epoch=3,
)


class Scene:
    """A broker, its metadata, and a controller that registers it and unfences it when it has caught up."""

    def __init__(self, **options: Any) -> None:
        self.node = ControllerNode(7)
        self.controller = self.node.controller
        self.metadata = MetadataPublisher()
        self.heartbeats: list[BrokerHeartbeat] = []
        self.epoch = 5
        self.may_shut_down = False
        self.controller.results |= {"register_broker": self.register, "heartbeat": self.heartbeat}
        self.offline: list[UUID] = []
        self.leader: int | None = 7
        self.lifecycle = BrokerLifecycle(
            ActiveControllerLink(node_id=7, leader=lambda: self.leader, local=self.node.dispatcher.handle),
            self.metadata,
            REGISTRATION,
            offline_directories=lambda: self.offline,
            **{"interval_s": 30, "session_timeout_s": 2, "registration_timeout_s": 60} | options,
        )

    def register(self, registration: Registration) -> Registered:
        return Registered(OK, self.epoch)

    def heartbeat(self, heartbeat: BrokerHeartbeat) -> HeartbeatReply:
        self.heartbeats.append(heartbeat)
        if heartbeat.broker_epoch != self.epoch:
            return HeartbeatReply(Outcome(ErrorCode.STALE_BROKER_EPOCH))
        is_caught_up = heartbeat.metadata_offset >= self.epoch
        return HeartbeatReply(
            OK,
            is_caught_up,
            is_fenced=heartbeat.wants_fence or not is_caught_up,
            should_shut_down=heartbeat.wants_shut_down and self.may_shut_down,
        )

    async def commit(self, *records: MetadataRecord) -> None:
        await self.metadata.commit(self.metadata.image.offset + 1, [encode_record(record) for record in records])

    async def reach(self, offset: int) -> None:
        """Commit other brokers' records up to this offset."""
        while self.metadata.image.offset < offset:
            await self.commit(other_broker(8, self.metadata.image.offset + 1))


def other_broker(node_id: int, epoch: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=node_id, incarnation_id=UUID(int=node_id), broker_epoch=epoch, endpoints=(), fenced=False
    )


def play(scenario: Callable[[Scene], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def main() -> None:
        scene = Scene(**options)
        try:
            async with asyncio.timeout(10):
                await scenario(scene)
        finally:
            await scene.lifecycle.close()

    asyncio.run(main())


def test_a_broker_starts_serves_and_stops() -> None:
    async def scenario(scene: Scene) -> None:
        lifecycle = scene.lifecycle
        await scene.reach(5)
        assert await lifecycle.register() == 5
        registrations = [call[1] for call in scene.controller.calls if call[0] == "register_broker"]
        assert registrations == [(REGISTRATION,)]
        await lifecycle.catch_up()
        assert state_of(lifecycle) is BrokerState.RECOVERY
        assert all(heartbeat.wants_fence for heartbeat in scene.heartbeats)
        await lifecycle.serve()
        assert state_of(lifecycle) is BrokerState.RUNNING
        assert not lifecycle.is_fenced
        stopping = asyncio.ensure_future(lifecycle.shut_down(timeout_s=5))
        await asyncio.sleep(0.05)
        assert not stopping.done()
        scene.may_shut_down = True
        assert await stopping
        assert state_of(lifecycle) is BrokerState.SHUTTING_DOWN

    play(scenario)


def test_it_reports_as_soon_as_it_has_caught_up() -> None:
    """The interval is far away, and the pauses between its questions have grown long."""

    async def scenario(scene: Scene) -> None:
        await scene.lifecycle.register()
        catching_up = asyncio.ensure_future(scene.lifecycle.catch_up())
        await asyncio.sleep(0.4)
        assert not catching_up.done()
        await scene.reach(5)
        async with asyncio.timeout(0.2):
            await catching_up

    play(scenario)


def test_news_do_not_wait_for_the_interval() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.reach(5)
        await scene.lifecycle.register()
        await scene.lifecycle.serve()
        sent = len(scene.heartbeats)
        scene.offline.append(UUID(int=200))
        scene.lifecycle.report()
        await until(lambda: len(scene.heartbeats) > sent)
        assert scene.heartbeats[-1].offline_directories == (UUID(int=200),)
        sent = len(scene.heartbeats)
        epoch = scene.metadata.image.brokers[8].broker_epoch
        await scene.commit(BrokerRegistrationChangeRecord(broker_id=8, broker_epoch=epoch, in_controlled_shutdown=1))
        await until(lambda: len(scene.heartbeats) > sent)
        assert scene.heartbeats[-1].metadata_offset == scene.metadata.image.offset

    play(scenario)


async def until(is_reached: Callable[[], bool]) -> None:
    while not is_reached():
        await asyncio.sleep(0.01)


def test_a_broker_that_the_controller_has_forgotten_registers_again() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.reach(5)
        await scene.lifecycle.register()
        await scene.lifecycle.serve()
        scene.epoch = 6
        await scene.reach(6)
        scene.lifecycle.report()
        await until(lambda: scene.lifecycle.broker_epoch == 6 and not scene.lifecycle.is_fenced)
        assert scene.lifecycle.state is BrokerState.RUNNING
        registrations = [call[1][0] for call in scene.controller.calls if call[0] == "register_broker"]
        assert registrations == [REGISTRATION, replace(REGISTRATION, previous_broker_epoch=5)]

    play(scenario)


def test_a_rejected_registration_stops_the_start() -> None:
    async def scenario(scene: Scene) -> None:
        scene.controller.results["register_broker"] = Registered(Outcome(ErrorCode.INCONSISTENT_CLUSTER_ID, "other"))
        with pytest.raises(StartupError, match=r"controller\.quorum\.voters"):
            await scene.lifecycle.register()

    play(scenario)


def test_without_a_controller_the_start_fails_in_time() -> None:
    async def scenario(scene: Scene) -> None:
        scene.leader = None
        with pytest.raises(StartupError, match=r"could not register in 0.1 s: .*there is no active controller"):
            await scene.lifecycle.register()

    play(scenario, session_timeout_s=0.2, registration_timeout_s=0.1)


def test_heartbeats_survive_a_controller_that_is_away_or_fails() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.reach(5)
        await scene.lifecycle.register()
        await scene.lifecycle.serve()
        scene.leader = None
        await asyncio.sleep(0.2)
        scene.leader = 7
        bugs = [RuntimeError("a bug")]

        def fail_once(heartbeat: BrokerHeartbeat) -> HeartbeatReply:
            if bugs:
                raise bugs.pop()
            return scene.heartbeat(heartbeat)

        scene.controller.results["heartbeat"] = fail_once
        await until(lambda: not bugs)
        sent = len(scene.heartbeats)
        await until(lambda: len(scene.heartbeats) > sent)
        assert scene.lifecycle.state is BrokerState.RUNNING

    play(scenario, interval_s=0.05, session_timeout_s=0.2)


def test_a_stop_does_not_wait_for_ever() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.reach(5)
        await scene.lifecycle.register()
        await scene.lifecycle.serve()
        assert not await scene.lifecycle.shut_down(timeout_s=0.1)

    play(scenario)


def test_a_stop_goes_on_if_no_controller_responds() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.reach(5)
        await scene.lifecycle.register()
        await scene.lifecycle.serve()
        scene.leader = None
        async with asyncio.timeout(5):
            assert not await scene.lifecycle.shut_down(timeout_s=60)

    play(scenario, session_timeout_s=0.4)


def test_a_stop_goes_on_soon_if_the_quorum_has_no_leader() -> None:
    """In a cluster that stops as a whole, the last nodes have no majority."""
    leaderless_s = 0.0

    async def scenario(scene: Scene) -> None:
        nonlocal leaderless_s
        await scene.reach(5)
        await scene.lifecycle.register()
        await scene.lifecycle.serve()
        stopping = asyncio.ensure_future(scene.lifecycle.shut_down(timeout_s=60))
        while not any(heartbeat.wants_shut_down for heartbeat in scene.heartbeats):
            await asyncio.sleep(0)
        leaderless_s = 0.9
        await asyncio.sleep(0.3)
        assert not stopping.done(), "an election may be under way"
        leaderless_s = 1.1
        assert not await stopping

    play(scenario, session_timeout_s=600, leaderless_s=lambda: leaderless_s)


def test_a_stale_process_learns_that_another_has_its_place(caplog: pytest.LogCaptureFixture) -> None:
    """It was paused for longer than its lease, and a process with other directories has registered meanwhile."""

    async def scenario(scene: Scene) -> None:
        await scene.reach(5)
        await scene.lifecycle.register()
        await scene.lifecycle.serve()
        scene.epoch = 6
        duplicate = Registered(Outcome(ErrorCode.DUPLICATE_BROKER_REGISTRATION))
        scene.controller.results["register_broker"] = lambda registration: duplicate
        scene.lifecycle.report()
        while "another process is registered with this node.id" not in caplog.text:
            await asyncio.sleep(0.01)
        assert scene.lifecycle.is_fenced
        assert scene.lifecycle.broker_epoch == 5, "it does not take over the epoch of the other process"
        # The other process has ended.
        scene.controller.results["register_broker"] = scene.register
        while scene.lifecycle.broker_epoch != 6:
            await asyncio.sleep(0.01)

    with routed_logs(), caplog.at_level(logging.WARNING):
        play(scenario)


def test_when_all_brokers_stop_none_waits() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.reach(5)
        await scene.lifecycle.register()
        await scene.lifecycle.serve()
        stopping = asyncio.ensure_future(scene.lifecycle.shut_down(timeout_s=60))
        await asyncio.sleep(0.1)
        assert not stopping.done()
        epoch = scene.metadata.image.brokers[8].broker_epoch
        await scene.commit(BrokerRegistrationChangeRecord(broker_id=8, broker_epoch=epoch, in_controlled_shutdown=1))
        async with asyncio.timeout(1):
            assert not await stopping
        assert scene.heartbeats[-1].wants_shut_down

    play(scenario)


def test_a_broker_without_others_does_not_ask() -> None:
    async def scenario(scene: Scene) -> None:
        for offset in range(6):
            await scene.commit(other_broker(7, offset))
        await scene.lifecycle.register()
        await scene.lifecycle.serve()
        assert await scene.lifecycle.shut_down(timeout_s=5)
        assert not any(heartbeat.wants_shut_down for heartbeat in scene.heartbeats)

    play(scenario)


def test_closing_before_the_start_and_in_the_middle() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.lifecycle.close()
        scene.leader = None
        registering = asyncio.ensure_future(scene.lifecycle.register())
        await asyncio.sleep(0.05)
        await scene.lifecycle.close()
        with pytest.raises(asyncio.CancelledError):
            await registering

    play(scenario)


def test_with_a_real_controller(tmp_path: Path) -> None:
    """A second broker joins the cluster of the first, and leaves it."""

    async def main() -> None:
        async with harness.running(tmp_path) as broker, asyncio.timeout(20):
            metadata, controller = broker.services.metadata, broker.services.controller
            link = ActiveControllerLink(
                node_id=harness.NODE_ID,
                leader=lambda: harness.NODE_ID,
                local=Dispatcher(broker.services, ListenerType.CONTROLLER).handle,
            )
            registration = replace(
                REGISTRATION, cluster_id=harness.CLUSTER_ID, features=SUPPORTED_FEATURES, previous_broker_epoch=-1
            )
            times: dict[str, Any] = {"interval_s": 0.2, "session_timeout_s": 9.0, "registration_timeout_s": 10.0}
            lifecycle = BrokerLifecycle(link, metadata, registration, **times)
            try:
                epoch = await lifecycle.register()
                assert (metadata.image.brokers[7].broker_epoch, metadata.image.brokers[7].fenced) == (epoch, True)
                await lifecycle.serve()
                assert not metadata.image.brokers[7].fenced
                assert lifecycle.state is BrokerState.RUNNING
                stopping = asyncio.ensure_future(lifecycle.shut_down(timeout_s=10))
                await until(lambda: metadata.image.brokers[7].in_controlled_shutdown)
                first = metadata.image.brokers[harness.NODE_ID]
                await controller.heartbeat(
                    BrokerHeartbeat(
                        node_id=first.broker_id,
                        broker_epoch=first.broker_epoch,
                        metadata_offset=metadata.image.offset,
                    )
                )
                assert await stopping
            finally:
                await lifecycle.close()
            other = replace(registration, cluster_id="other")
            with pytest.raises(StartupError, match="another cluster"):
                await BrokerLifecycle(link, MetadataPublisher(), other, **times).register()

    asyncio.run(main())
