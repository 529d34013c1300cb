"""The scenarios: each fixes the settings and the faults; the seed determines everything else.

Each scenario checks the guarantees of docs/durability.md for its settings:

    processes   nodes are killed, stopped and booted, networks fail: with default settings no acknowledged record is
                lost
    power       in addition, power losses: no record that waited for an fsync (flush.messages=1) is lost; the topic
                `clicks` does not wait and may lose the end of its log, but stores no record twice
    disks       fsync sometimes fails, which takes the node's directory offline until it is booted again
    bank        like processes, with transactions: see `bank`
    bank-power  like power, with transactions; all acknowledgements wait for an fsync

The scenarios of clusters have three replicas of each partition, of which two must be in sync:

    cluster        nodes are killed, stopped, paused and cut off: with default settings no acknowledged record is lost
    cluster-power  in addition, power losses of any number of machines; acknowledgements wait for fsyncs of the replicas
    cluster-loss   with default settings, one machine at a time loses power or its disk, when all replicas are in sync
    cluster-voters like cluster-loss, with voters in the metadata log that come and go
    cluster-bank   like cluster, with transactions
"""

from dataclasses import dataclass

from rookery.client.admin import NewTopic
from tests.simulation.bank_run import OFFSETS_PARTITION_COUNT, REQUESTS, BankRun
from tests.simulation.checkers import Violation
from tests.simulation.cluster import Topology
from tests.simulation.cluster_faults import LOSS_FAULTS, MACHINE_FAULTS, RENEWAL_FAULTS, lose_disk_of_one
from tests.simulation.cluster_faults import POWER_FAULTS as CLUSTER_POWER_FAULTS
from tests.simulation.cluster_operations import MOVES, VOTER_CHANGES
from tests.simulation.cluster_run import CLUSTER_TOPICS, ClusterRun
from tests.simulation.cluster_site import ClusterPlan
from tests.simulation.faults import DISK_FAULTS, POWER_FAULTS, PROCESS_FAULTS, TRANSACTION_FAULTS
from tests.simulation.log_run import LogRun
from tests.simulation.members import SESSION_TIMEOUT_MS
from tests.simulation.run import Counts, Scenario
from tests.simulation.world import World

_NEVER = str(2**63 - 1)
_SMALL_SEGMENTS = {"segment.ms": "4000", "index.interval.bytes": "500"}
_ORDERS = NewTopic(name="orders", partitions=3, configs=_SMALL_SEGMENTS)
_CLICKS = NewTopic(name="clicks", partitions=2, configs=_SMALL_SEGMENTS | {"flush.messages": _NEVER})
_BANK_TOPICS = (
    *(NewTopic(name=name, partitions=2, configs=_SMALL_SEGMENTS) for name in ("cash", "savings", "loans")),
    NewTopic(name=REQUESTS, partitions=2, configs=_SMALL_SEGMENTS),
)
# Fewer partitions to load, groups that form quickly, and transactions that end soon.
_SETTINGS = (
    f"offsets.topic.num.partitions={OFFSETS_PARTITION_COUNT}",
    "transaction.state.log.num.partitions=3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
    "group.initial.rebalance.delay.ms=300",
    f"group.consumer.min.session.timeout.ms={SESSION_TIMEOUT_MS}",
    f"group.consumer.session.timeout.ms={SESSION_TIMEOUT_MS}",
    "group.consumer.min.heartbeat.interval.ms=500",
    "group.consumer.heartbeat.interval.ms=500",
)
# The coordinators' topics are compacted continuously, and tombstones and markers are removed soon.
_BANK_SETTINGS = (
    *_SETTINGS,
    "log.roll.ms=2000",
    "log.cleaner.backoff.ms=300",
    "log.cleaner.min.cleanable.ratio=0.01",
    "log.cleaner.delete.retention.ms=1500",
)
_CLUSTER_SETTINGS = (
    "default.replication.factor=3",
    "min.insync.replicas=2",
    "offsets.topic.replication.factor=3",
    "transaction.state.log.replication.factor=3",
    "transaction.state.log.min.isr=2",
)
_TOPOLOGIES = (Topology(), Topology(), Topology(combined=0, controllers=3, brokers=3), Topology(combined=3, brokers=1))
_DYNAMIC_TOPOLOGIES = (
    Topology(combined=3, controllers=1, first_voters=3),
    Topology(combined=0, controllers=4, brokers=3, first_voters=3),
    Topology(combined=4, first_voters=1),
)
_FLUSH = "log.flush.interval.messages=1"

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            name="processes",
            run=LogRun,
            faults=PROCESS_FAULTS,
            settings=_SETTINGS,
            topics=(_ORDERS, _CLICKS),
            unsynced_topics=frozenset({"orders", "clicks"}),
        ),
        Scenario(
            name="power",
            run=LogRun,
            faults=PROCESS_FAULTS + 3 * POWER_FAULTS,
            settings=(*_SETTINGS, _FLUSH),
            topics=(_ORDERS, _CLICKS),
            unsynced_topics=frozenset({"clicks"}),
            loses_power=True,
        ),
        Scenario(
            name="disks",
            run=LogRun,
            faults=DISK_FAULTS,
            settings=(*_SETTINGS, _FLUSH),
            topics=(_ORDERS,),
        ),
        Scenario(
            name="bank",
            run=BankRun,
            faults=TRANSACTION_FAULTS,
            settings=_BANK_SETTINGS,
            topics=_BANK_TOPICS,
        ),
        Scenario(
            name="bank-power",
            run=BankRun,
            faults=TRANSACTION_FAULTS + 2 * POWER_FAULTS,
            settings=(*_BANK_SETTINGS, _FLUSH),
            topics=_BANK_TOPICS,
        ),
        Scenario(
            name="cluster",
            run=ClusterRun,
            cluster=ClusterPlan(
                topologies=_TOPOLOGIES, machine_faults=(*MACHINE_FAULTS, *RENEWAL_FAULTS), operations=MOVES
            ),
            settings=(*_SETTINGS, *_CLUSTER_SETTINGS),
            topics=CLUSTER_TOPICS,
        ),
        Scenario(
            name="cluster-power",
            run=ClusterRun,
            cluster=ClusterPlan(
                topologies=_TOPOLOGIES,
                machine_faults=(*MACHINE_FAULTS, *2 * CLUSTER_POWER_FAULTS),
                operations=MOVES,
            ),
            settings=(*_SETTINGS, *_CLUSTER_SETTINGS, _FLUSH),
            topics=CLUSTER_TOPICS,
        ),
        Scenario(
            name="cluster-loss",
            run=ClusterRun,
            cluster=ClusterPlan(
                topologies=_TOPOLOGIES, machine_faults=(*MACHINE_FAULTS, *2 * LOSS_FAULTS), operations=MOVES
            ),
            settings=(*_SETTINGS, *_CLUSTER_SETTINGS),
            topics=CLUSTER_TOPICS,
        ),
        Scenario(
            name="cluster-voters",
            run=ClusterRun,
            cluster=ClusterPlan(
                topologies=_DYNAMIC_TOPOLOGIES,
                machine_faults=(*MACHINE_FAULTS, lose_disk_of_one),
                operations=VOTER_CHANGES,
            ),
            settings=(*_SETTINGS, *_CLUSTER_SETTINGS),
            topics=CLUSTER_TOPICS,
        ),
        Scenario(
            name="cluster-bank",
            run=BankRun,
            cluster=ClusterPlan(topologies=_TOPOLOGIES, machine_faults=MACHINE_FAULTS, operations=MOVES),
            settings=(*_BANK_SETTINGS, *_CLUSTER_SETTINGS),
            topics=_BANK_TOPICS,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    scenario: str
    faults_s: float
    violations: tuple[Violation, ...]
    digest: str
    step_count: int
    simulated_s: float
    counts: Counts
    lines: tuple[str, ...]


def scenario_for(seed: int) -> Scenario:
    return list(SCENARIOS.values())[seed % len(SCENARIOS)]


def simulate(seed: int, scenario: Scenario | None = None, *, until: str | None = None) -> Outcome:
    """Run one world from its beginning to its end, or until the checker `until` finds something."""
    chosen = scenario or scenario_for(seed)
    world = World(seed, until=until)
    run = chosen.run(world, chosen)
    world.run(run.main())
    return Outcome(
        seed=seed,
        scenario=chosen.name,
        faults_s=chosen.faults_s,
        violations=tuple(world.violations.found),
        digest=world.trace.digest,
        step_count=world.trace.step_count,
        simulated_s=world.loop.time(),
        counts=run.counts,
        lines=tuple(world.trace.lines),
    )
