"""One transaction over four partitions of two topics and a group's offsets, and what is left of it afterwards.

The scenario needs only the addresses of brokers, so that it runs on one node, on brokers without a quorum, or on a
whole cluster. Faults are the caller's: whatever happened, `check_whole` demands that all of the transaction is visible
or none of it, and that no transaction hangs.
"""

from dataclasses import dataclass, field

from rookery.base.types import Offset, TopicPartition
from rookery.client.admin import Admin, NewTopic
from tests.simulation.bank_run import offsets_at_end
from tests.simulation.users import new_consumer, read_up_to
from tests.simulation.world import World
from tests.support.transactions import AbortableError, Ended, Protocol, TransactionalProducer, TransactionCluster

GROUP = "readers"
TRANSACTIONAL_ID = "transfers"
TOPICS = (NewTopic(name="debits", partitions=2), NewTopic(name="credits", partitions=2))
PARTITIONS = [TopicPartition(topic.name, index) for topic in TOPICS for index in range(topic.partitions)]
SOURCE = TopicPartition("debits", 0)
# The time-out of a transaction. A caller waits longer than that before it looks at what is left.
TIMEOUT_MS = 8_000
SETTLED_S = TIMEOUT_MS / 1000 + 5
_REQUEST_TIMEOUT_S = 2.0

BEFORE = dict.fromkeys(PARTITIONS, [b"before"] * 2)
BOTH = dict.fromkeys(PARTITIONS, [b"before"] * 2 + [b"new"] * 2)


@dataclass
class Seen:
    """The end of the transaction as the client saw it, and the final state."""

    ended: Ended | None = None
    was_aborted_on_error: bool = False
    values: dict[TopicPartition, list[bytes]] = field(default_factory=dict)
    committed: Offset = -1
    states: list[str] = field(default_factory=list)
    unstable: list[TopicPartition] = field(default_factory=list)


class Transfer:
    """`run_before` is a transaction without faults, `run` the one that is tested, `look` reads what is left of both."""

    def __init__(self, world: World, bootstrap: str, *, protocol: Protocol, commit: bool) -> None:
        self._world = world
        self._bootstrap = bootstrap
        self._protocol = protocol
        self._commit = commit
        self.seen = Seen()

    def cluster(self, client_id: str) -> TransactionCluster:
        return TransactionCluster.at(self._bootstrap, client_id=client_id, timeout_s=_REQUEST_TIMEOUT_S)

    async def run_before(self) -> None:
        await self._run(b"before", 1, commit=True)
        assert self.seen.ended is Ended.DONE
        self.seen = Seen()

    async def run(self) -> None:
        await self._run(b"new", 2, commit=self._commit)

    async def _run(self, value: bytes, offset: Offset, *, commit: bool) -> None:
        cluster = self.cluster("client")
        producer = TransactionalProducer(
            cluster, TRANSACTIONAL_ID, protocol=self._protocol, clock=self._world.clock, timeout_ms=TIMEOUT_MS
        )
        await producer.init()
        try:
            await producer.produce({partition: [value, value] for partition in PARTITIONS})
            await producer.send_offsets(GROUP, {SOURCE: offset})
            self.seen.ended = await producer.end(commit=commit)
        except AbortableError:
            self.seen.was_aborted_on_error = True
            self.seen.ended = await producer.end(commit=False)
        await cluster.close()

    async def look(self) -> None:
        """Read the final state after all open transactions have timed out."""
        cluster, seen = self.cluster("auditor"), self.seen
        ends = await offsets_at_end(cluster, PARTITIONS, read_committed=False)
        stable = await offsets_at_end(cluster, PARTITIONS, read_committed=True)
        seen.unstable = [partition for partition in PARTITIONS if ends[partition] != stable[partition]]
        settings = {"isolation.level": "read_committed"}
        async with new_consumer(self._world, name="auditor", bootstrap=self._bootstrap, settings=settings) as consumer:
            for record in await read_up_to(consumer, stable):
                seen.values.setdefault(record.partition, []).append(record.value)
        seen.committed = (await Admin.over(cluster).committed_offsets(GROUP))[SOURCE].offset
        seen.states = [each.state for each in await Admin.over(cluster).list_transactions()]
        await cluster.close()

    def check_whole(self, where: object, *, client_survived: bool) -> None:
        """Check what `look` has found; `where` describes the faults."""
        seen, text = self.seen, f"{where}: {self.seen}"
        assert seen.unstable == [], text
        assert seen.states, text
        assert seen.states[0] in ("CompleteCommit", "CompleteAbort", "Empty"), text
        # All or nothing, and the offsets with the records.
        assert (seen.values, seen.committed) in ((BEFORE, 1), (BOTH, 2)), text
        is_visible = seen.committed == 2
        if not self._commit or seen.was_aborted_on_error:
            assert not is_visible, text
        elif seen.ended is Ended.DONE:
            assert is_visible, text
        if client_survived:
            # No other client has the transactional id, and the brokers came back in time.
            assert seen.ended is Ended.DONE, text
