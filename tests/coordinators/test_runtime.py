"""The runtime with a shard of keys and values, on the logs of a real broker's services."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rookery.base.bounds import COORDINATOR_LOADS_AT_ONCE, COORDINATOR_RECORDS_PER_SLICE
from rookery.base.errors import CorruptionError, ErrorCode
from rookery.base.files import OsFile
from rookery.base.types import Buffer, Offset, TopicPartition
from rookery.coordinators import log_replay
from rookery.coordinators.result import PARKED, Completion, CoordinatorResult, Timer, TimerKey
from rookery.coordinators.runtime import Coordinator, abs_hash
from rookery.protocol.message import Message
from rookery.records.control import Marker
from rookery.records.record import Record, decode_records
from rookery.replication.replica import Replica
from tests.broker.harness import NODE_ID, Broker, batch, running
from tests.replication.elections import FOLLOWER, forget_leader_epochs, lose_and_win_election, set_leader
from tests.support.stalls import counted_calls

TOPIC = "__key_values"
Pair = tuple[bytes, bytes | None]


@dataclass
class KeyValueShard:
    """A shard whose records are keys and values, and whose timers write a record."""

    state: dict[bytes, bytes] = field(default_factory=dict)
    installed: list[str] = field(default_factory=list)
    is_loaded: bool = False
    pending: dict[int, list[Pair]] = field(default_factory=dict)

    def encode(self, record: Pair) -> Pair:
        return record

    def decode(self, key: bytes, value: bytes | None) -> Pair | None:
        if key == b"broken":
            raise CorruptionError("a broken record")
        return None if key == b"unknown" else (key, value)

    def replay(self, record: Pair) -> None:
        key, value = record
        if value is None:
            self.state.pop(key, None)
        else:
            self.state[key] = value

    def replay_pending(self, record: Pair, producer_id: int) -> None:
        self.pending.setdefault(producer_id, []).append(record)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        for record in self.pending.pop(producer_id, ()):
            if committed:
                self.replay(record)

    def install(self, change: str) -> None:
        self.installed.append(change)

    def on_loaded(self, now_ms: int) -> CoordinatorResult[None]:
        self.is_loaded = True
        return CoordinatorResult(response=None)

    def on_timer(self, key: TimerKey, now_ms: int) -> CoordinatorResult[None]:
        return CoordinatorResult(response=None, records=[(str(key).encode(), b"fired")])


def park(coordinator: Coordinator[KeyValueShard], token: int, *completions: Completion) -> "asyncio.Future[Any]":
    return coordinator.write(
        "k", lambda shard, _: CoordinatorResult(response=PARKED, completions=completions), token=token
    )


def coordinator_of(
    broker: Broker,
    load_bytes: int = 500,
    on_committed: Callable[[Any, int], None] | None = None,
    executor: Executor | None = None,
) -> Coordinator[KeyValueShard]:
    services = broker.services
    return Coordinator(
        TOPIC,
        node_id=services.node_id,
        make_shard=lambda _: KeyValueShard(),
        replicas=services.replicas,
        pending=services.pending,
        clock=services.clock,
        commit_timeout_ms=60_000,
        load_bytes=load_bytes,
        on_committed=on_committed,
        executor=executor,
    )


def put(
    key: bytes, value: bytes | None, response: str = "done", **more: Any
) -> Callable[[KeyValueShard, int], CoordinatorResult[str]]:
    return lambda shard, now_ms: CoordinatorResult(response=response, records=[(key, value)], **more)


def play(
    path: Path, scene: Callable[[Broker, Coordinator[KeyValueShard]], Coroutine[Any, Any, None]], partitions: int = 3
) -> None:
    async def main() -> None:
        async with running(path) as broker:
            coordinator = coordinator_of(broker)
            await broker.create_topic(TOPIC, partitions, cleanup_policy="compact")
            coordinator.apply(broker.services.image)
            await scene(broker, coordinator)
            await coordinator.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("my-group", 1_906_497_762),
        ("polygenelubricants", 0),
        ("Grüße", 69_215_351),
        ("\U0001f600", 1_772_899),
    ],
)
def test_keys_are_hashed_as_java_does(key: str, hashed: int) -> None:
    assert abs_hash(key) == hashed


def test_a_write_is_replayed_and_resolved_within_the_call(tmp_path: Path) -> None:
    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        response = coordinator.write("k", put(b"a", b"1", volatile_changes=("change",)))
        assert response.done()
        assert response.result() == "done"
        seen = coordinator.read("k", lambda shard: (dict(shard.state), list(shard.installed), shard.is_loaded))
        assert seen.result() == ({b"a": b"1"}, ["change"], True)
        replica = broker.replica(TOPIC, coordinator.partition_of("k"))
        assert replica.log.end_offset == 1

    play(tmp_path, scene)


def test_without_a_topic_there_is_no_coordinator(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            coordinator = coordinator_of(broker)
            coordinator.apply(broker.services.image)
            assert coordinator.partition_count == 0
            assert coordinator.write("k", put(b"a", b"1")).result() is ErrorCode.COORDINATOR_NOT_AVAILABLE

    asyncio.run(main())


def test_a_failed_append_changes_nothing(tmp_path: Path) -> None:
    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        coordinator.write("k", put(b"a", b"1"))
        too_large = coordinator.write(
            "k", put(b"b", bytes(2_000_000), volatile_changes=("change",), timers=[Timer("t", 0)])
        )
        assert too_large.result() is ErrorCode.UNKNOWN_SERVER_ERROR
        broker.logs.directories[0].fail(OSError(5, "a broken disk"))
        assert (
            coordinator.write("k", put(b"b", b"2", volatile_changes=("change",))).result() is ErrorCode.NOT_COORDINATOR
        )
        await asyncio.sleep(0)
        assert coordinator.read("k", lambda shard: (shard.state, shard.installed)).result() == ({b"a": b"1"}, [])

    play(tmp_path, scene)


def test_a_parked_request_is_completed_by_a_later_decision(tmp_path: Path) -> None:
    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        token = coordinator.new_token()
        parked = park(coordinator, token)
        assert not parked.done()
        coordinator.write("k", put(b"a", b"1", completions=[Completion(token, "at last")]))
        assert parked.result() == "at last"
        # One whose connection was closed, and one that is completed by its own decision.
        gone, own = coordinator.new_token(), coordinator.new_token()
        park(coordinator, gone).cancel()
        response = park(coordinator, own, Completion(own, "now"))
        assert response.result() == "now"
        assert coordinator.write("k", put(b"a", b"2", completions=[Completion(gone, "late")])).result() == "done"

    play(tmp_path, scene)


def test_timers_run_decisions(tmp_path: Path) -> None:
    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        coordinator.write("k", put(b"a", b"1", timers=[Timer("later", 10), Timer("never", 20), Timer("never", None)]))
        while coordinator.read("k", lambda shard: b"later" in shard.state).result() is not True:
            await asyncio.sleep(0.01)
        state = coordinator.read("k", lambda shard: shard.state).result()
        assert state == {b"a": b"1", b"later": b"fired"}

    play(tmp_path, scene)


def test_responses_wait_for_the_high_watermark(tmp_path: Path) -> None:
    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        replica = broker.replica(TOPIC, coordinator.partition_of("k"))
        committed = hold_back(replica)
        written = coordinator.write("k", put(b"a", b"1"))
        read = coordinator.read("k", lambda shard: dict(shard.state))
        assert not written.done()
        assert not read.done()
        committed(1)
        broker.services.pending.wake(replica.state.topic_partition)
        assert await written == "done"
        assert await read == {b"a": b"1"}

    play(tmp_path, scene)


def test_waiting_requests_fail_when_the_coordinator_moves(tmp_path: Path) -> None:
    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        token = coordinator.new_token()
        parked = park(coordinator, token)
        hold_back(broker.replica(TOPIC, coordinator.partition_of("k")))
        written = coordinator.write("k", put(b"a", b"1"))
        response = await broker.call(20, 6, topics=[Message(name=TOPIC, topic_id=None)], timeout_ms=60_000)
        assert response.responses[0].error_code == 0
        coordinator.apply(broker.services.image)
        assert await parked is ErrorCode.NOT_COORDINATOR
        assert await written is ErrorCode.NOT_COORDINATOR
        assert coordinator.write("k", put(b"a", b"1")).result() is ErrorCode.COORDINATOR_NOT_AVAILABLE

    play(tmp_path, scene)


async def write_over_elections(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> tuple[Any, Any]:
    """Return the response to a write whose records were truncated, and the state when this node leads again."""
    replica = broker.replica(TOPIC, coordinator.partition_of("k"))
    set_leader(replica, leader=NODE_ID, leader_epoch=5)
    coordinator.apply(broker.services.image)
    written = coordinator.write("k", put(b"ours", b"1"))
    assert not written.done()
    lose_and_win_election(replica, batch(b"2", key=b"others"))
    coordinator.apply(broker.services.image)
    await coordinator.wait_until_loaded()
    return await written, await coordinator.read("k", lambda shard: dict(shard.state))


def test_records_of_a_former_epoch_are_not_committed_by_a_later_one(tmp_path: Path) -> None:
    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        response, state = await write_over_elections(broker, coordinator)
        assert response is ErrorCode.NOT_COORDINATOR
        assert state == {b"others": b"2"}

    play(tmp_path, scene)


def test_a_coordinator_that_forgets_its_epoch_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It acknowledges records that no log has, and continues with them."""
    forget_leader_epochs(monkeypatch)

    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        assert await write_over_elections(broker, coordinator) == ("done", {b"ours": b"1"})

    play(tmp_path, scene)


def test_a_shard_decides_nothing_after_its_epoch(tmp_path: Path) -> None:
    """The replica has applied the newest image, and the coordinator has not yet."""

    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        replica = broker.replica(TOPIC, coordinator.partition_of("k"))
        assert coordinator.leads("k", replica.state.leader_epoch)
        for leader in (FOLLOWER, NODE_ID):
            epoch = replica.state.leader_epoch
            set_leader(replica, leader=leader, leader_epoch=epoch + 1)
            assert coordinator.write("k", put(b"a", b"1")).result() is ErrorCode.NOT_COORDINATOR
            ended = coordinator.end_transaction(coordinator.partition_of("k"), Marker(7, 0, True, epoch))
            assert ended.result() is ErrorCode.NOT_COORDINATOR
            assert not coordinator.leads("k", epoch)
        assert replica.log.end_offset == 0
        coordinator.apply(broker.services.image)
        assert coordinator.leads("k", replica.state.leader_epoch)
        assert not coordinator.leads("k", replica.state.leader_epoch - 1)

    play(tmp_path, scene)


def test_a_log_is_loaded_in_slices(tmp_path: Path) -> None:
    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        for number in range(3000):
            coordinator.write("k", put(f"{number}".encode(), b"x" * 10))
        coordinator.write("k", put(b"7", None))
        coordinator.write("k", put(b"unknown", b"a record of a future version"))
        after = coordinator_of(broker)
        after.apply(broker.services.image)
        assert after.write("k", put(b"a", b"1")).result() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert after.read_all() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await after.wait_until_loaded()
        state = after.read("k", lambda shard: shard.state).result()
        assert state == {f"{number}".encode(): b"x" * 10 for number in range(3000) if number != 7}
        shards = after.read_all()
        assert not isinstance(shards, ErrorCode)
        assert all(shard.is_loaded for shard in shards)
        await after.close()

    play(tmp_path, scene, partitions=1)


def test_the_event_loop_runs_other_tasks_while_a_log_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds for any size of a read from the disk."""
    iterations: list[int] = []

    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        for number in range(3000):
            coordinator.write("k", put(f"{number}".encode(), b"x"))
        after = coordinator_of(broker, load_bytes=5_000_000)
        iteration = 0

        def decode(batch: Buffer) -> list[Record]:
            iterations.append(iteration)
            return decode_records(batch)

        monkeypatch.setattr("rookery.coordinators.log_replay.decode_records", decode)
        after.apply(broker.services.image)
        while after.read_all() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            iteration += 1
            await asyncio.sleep(0)
        await after.close()

    play(tmp_path, scene, partitions=1)
    assert len(iterations) == 3000
    assert max(Counter(iterations).values()) <= 1000


def test_a_large_batch_is_decoded_in_a_worker_and_replayed_in_slices(tmp_path: Path) -> None:
    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        count = COORDINATOR_RECORDS_PER_SLICE * 3
        records = [(f"{number}".encode(), b"x") for number in range(count)]
        coordinator.write("k", lambda _, now_ms: CoordinatorResult(response=None, records=records))
        after = coordinator_of(broker)
        with (
            counted_calls(log_replay, "decode_records") as decoded_on_loop,
            counted_calls(KeyValueShard, "replay") as replayed,
        ):
            after.apply(broker.services.image)
            await after.wait_until_loaded()
        assert decoded_on_loop.total == 0
        assert replayed.total == count
        assert replayed.longest <= COORDINATOR_RECORDS_PER_SLICE
        await after.close()

    play(tmp_path, scene, partitions=1)


class CountingExecutor(ThreadPoolExecutor):
    def __init__(self) -> None:
        super().__init__(1)
        self.calls = 0

    def submit(self, *args: Any, **kwargs: Any) -> "Future[Any]":
        self.calls += 1
        return super().submit(*args, **kwargs)


@pytest.mark.parametrize(
    ("records", "load_bytes", "reads"), [(1, 5_000_000, 1), (3000, 5_000_000, 1), (3000, 50_000, 5)]
)
def test_the_event_loop_reads_no_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: int, load_bytes: int, reads: int
) -> None:
    """The executor reads them, with one call per `load_bytes`; the event loop looks up where the batches are."""
    sizes: dict[bool, list[int]] = {True: [], False: []}
    original = OsFile.read_at

    def read_at(file: OsFile, position: int, size: int) -> bytes:
        sizes[threading.current_thread() is threading.main_thread()].append(size)
        return original(file, position, size)

    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        for number in range(records):
            coordinator.write("k", put(f"{number:04}".encode(), b"x"))
        log_size = broker.replica(TOPIC).log.size_bytes
        with CountingExecutor() as executor, monkeypatch.context() as patch:
            patch.setattr(OsFile, "read_at", read_at)
            after = coordinator_of(broker, load_bytes, executor=executor)
            after.apply(broker.services.image)
            await after.wait_until_loaded()
            assert executor.calls == reads
        # The last batch of a read may be cut off, and is read again.
        assert log_size <= sum(sizes[False]) <= log_size + reads * 100
        # A few headers per read, to find the position of its first batch.
        assert sum(sizes[True]) <= reads * 8192
        state = after.read("k", lambda shard: shard.state).result()
        assert not isinstance(state, ErrorCode)
        assert len(state) == records
        await after.close()

    play(tmp_path, scene, partitions=1)


def test_few_partitions_are_loaded_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a large buffer. All are loaded in the end, and a partition that is unloaded frees its place."""
    loading: list[int] = []
    most = 0

    async def load(shard: KeyValueShard, replica: Replica, *_: Any, **__: Any) -> Offset:
        nonlocal most
        loading.append(replica.state.topic_partition.partition)
        most = max(most, len(loading))
        try:
            await asyncio.sleep(0.001)
        finally:
            loading.remove(replica.state.topic_partition.partition)
        return replica.log.end_offset

    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        await coordinator.write_all(lambda _: iter([CoordinatorResult(response=None, records=[(b"a", b"1")])]))
        monkeypatch.setattr("rookery.coordinators.runtime.load", load)
        after = coordinator_of(broker)
        after.apply(broker.services.image)
        await asyncio.sleep(0)
        assert len(loading) == COORDINATOR_LOADS_AT_ONCE
        # A partition that is being loaded and one that waits lose their leader.
        for index in (0, 11):
            set_leader(broker.replica(TOPIC, index), leader=FOLLOWER, leader_epoch=1)
            set_leader(broker.replica(TOPIC, index), leader=NODE_ID, leader_epoch=2)
        after.apply(broker.services.image)
        await after.wait_until_loaded()
        assert after.read_all() is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await after.close()

    play(tmp_path, scene, partitions=12)
    assert (most, loading) == (COORDINATOR_LOADS_AT_ONCE, [])


def test_a_disk_that_fails_while_a_log_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        coordinator.write("k", put(b"a", b"1"))
        after = coordinator_of(broker)

        def fail(file: OsFile, position: int, size: int) -> bytes:
            raise OSError(5, "a broken disk")

        with monkeypatch.context() as patch:
            patch.setattr(OsFile, "read_at", fail)
            after.apply(broker.services.image)
            await after.wait_until_loaded()
        assert after.write("k", put(b"a", b"1")).result() is ErrorCode.NOT_COORDINATOR

    play(tmp_path, scene, partitions=1)


def test_a_log_that_cannot_be_read_is_not_coordinated(tmp_path: Path) -> None:
    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        coordinator.write("k", put(b"broken", b"1"))
        after = coordinator_of(broker)
        after.apply(broker.services.image)
        await after.wait_until_loaded()
        assert after.write("k", put(b"a", b"1")).result() is ErrorCode.NOT_COORDINATOR

    play(tmp_path, scene, partitions=1)


def test_every_shard_is_written_to(tmp_path: Path) -> None:
    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        await coordinator.write_all(lambda _: iter([CoordinatorResult(response=None, records=[(b"a", b"1")])]))
        ends = [broker.replica(TOPIC, index).log.end_offset for index in range(3)]
        assert ends == [1, 1, 1]

    play(tmp_path, scene)


def test_a_divisible_result_may_exceed_a_batch(tmp_path: Path) -> None:
    records = [(f"{number:0100}".encode(), b"x" * 100) for number in range(10_000)]

    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        def decide(shard: KeyValueShard, now_ms: int) -> CoordinatorResult[str]:
            return CoordinatorResult(response="done", records=records, divisible=True)

        assert coordinator.write("k", decide).result() == "done"
        assert coordinator.read("k", lambda shard: shard.state).result() == dict(records)
        assert broker.replica(TOPIC, coordinator.partition_of("k")).log.end_offset == len(records)

    play(tmp_path, scene)


def hold_back(replica: Replica) -> Callable[[Offset], None]:
    """Add a follower that fetches only when the returned function is called with its end offset."""
    state = replica.state
    state.set_leader(
        NODE_ID,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch + 1,
        replicas=(NODE_ID, 99),
        isr=(NODE_ID, 99),
    )

    def fetch_up_to(offset: Offset) -> None:
        state.follower_fetched(99, offset)

    return fetch_up_to


def test_the_partition_of_a_key_is_stable(tmp_path: Path) -> None:
    async def scene(broker: Broker, coordinator: Coordinator[KeyValueShard]) -> None:
        assert coordinator.partition_of("my-group") == 12
        assert isinstance(broker.services.replicas.find(TopicPartition(TOPIC, 12)), Replica)

    play(tmp_path, scene, partitions=50)
