"""Gathers a snapshot of a cluster by the client's admin API, from any Kafka-compatible cluster. A shell.

A part that the cluster refuses or does not know is left out, with a sentence that says so.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from rookery.base.clock import Clock, SystemClock
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import Offset, TimestampMs, TopicName, TopicPartition
from rookery.client.admin import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Admin,
    Broker,
    ClusterDescription,
    ConfigResource,
    LogDirectory,
    ResourceType,
    Topic,
)
from rookery.doctor.machine import read_machine
from rookery.doctor.snapshot import ClusterSnapshot, SeenBroker, SeenMachine, SeenPartition, SeenTopic
from rookery.doctor.tls import read_certificates
from rookery.lag import LagMonitor, LagReport

Result = TypeVar("Result")

_TOPICS_PER_REQUEST = 500
# Small logs say nothing about the disk, and each costs a fetch.
_OLDEST_FROM_BYTES = 10_000_000
_TRANSACTION_MS = 15 * 60_000
_LOOKS = 4
_TOPIC_KEYS = (
    "cleanup.policy",
    "max.message.bytes",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
    "unclean.leader.election.enable",
)
_BROKER_KEYS = ("auto.create.topics.enable", "default.replication.factor", "socket.request.max.bytes")


async def gather(
    admin: Admin,
    *,
    observe_s: float = 0.0,
    uses_tls: bool = False,
    machine: bool | None = None,
    clock: Clock | None = None,
) -> ClusterSnapshot:
    """Look at the cluster, and at its groups for `observe_s` seconds.

    `uses_tls`: read the certificates of the listeners. `machine`: read this machine's settings; None: if a broker's
    address is one of this machine. Raises ApiError if the brokers and topics cannot be read.
    """
    gathering = _Gathering(admin, clock or SystemClock())
    return await gathering.run(observe_s, uses_tls=uses_tls, machine=machine)


class _Gathering:
    def __init__(self, admin: Admin, clock: Clock) -> None:
        self._admin = admin
        self._clock = clock
        self._unseen: list[str] = []
        self._starts: dict[TopicPartition, Offset] = {}

    async def run(self, observe_s: float, *, uses_tls: bool, machine: bool | None) -> ClusterSnapshot:
        admin = self._admin
        description = await self._describe()
        topics = await admin.list_topics()
        alive = {broker.node_id for broker in description.brokers} - description.fenced
        # A partition whose leader is not alive would make each request wait for its time-out.
        led = [TopicPartition(t.name, each.index) for t in topics for each in t.partitions if each.leader in alive]
        hanging = partial(
            admin.find_hanging_transactions, led, longer_than_ms=_TRANSACTION_MS, now_ms=self._clock.now_ms()
        )
        # Together, so that a cluster that answers slowly costs one time-out and not all of them.
        loads = asyncio.gather(
            self._try("groups", partial(self._observe, observe_s)),
            self._try("log directories", admin.describe_log_dirs),
            self._try("hanging transactions", hanging),
            self._try("quotas", admin.describe_client_quotas),
            self._try("rules (ACLs)", admin.describe_acls),
            self._try("users", admin.describe_scram_users),
        )
        views = asyncio.gather(self._brokers(description), self._topics(topics, led))
        loaded, (brokers, seen_topics) = await asyncio.gather(loads, views)
        lags, log_dirs, transactions, quotas, acls, users = loaded
        return ClusterSnapshot(
            at_ms=self._clock.now_ms(),
            brokers=brokers,
            topics=await self._with_oldest(seen_topics, log_dirs or ()),
            log_dirs=tuple(log_dirs or ()),
            lags=lags,
            hanging=tuple(transactions or ()),
            quotas=quotas or {},
            acls=tuple(acls or ()),
            scram_users=tuple(users or ()),
            certificates=await read_certificates(description.brokers, self._unseen) if uses_tls else (),
            machine=self._machine(description.brokers, log_dirs or (), machine),
            unseen=tuple(self._unseen),
        )

    async def _try(self, what: str, load: Callable[[], Awaitable[Result]]) -> Result | None:
        """Return what `load` loads; None if the cluster refuses it."""
        try:
            return await load()
        except ApiError as error:
            # Without an authorizer there are no rules, and nothing is missing.
            if error.code != ErrorCode.SECURITY_DISABLED:
                self._unseen.append(f"{what}: {error.code.name}")
            return None

    async def _describe(self) -> ClusterDescription:
        try:
            return await self._admin.describe_cluster(include_fenced=True)
        except ApiError as error:
            if error.code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            self._unseen.append("fenced brokers: the brokers are too old to report them")
            return await self._admin.describe_cluster()

    async def _observe(self, observe_s: float) -> LagReport:
        """Look at the groups several times over `observe_s` seconds; once if it is zero."""
        monitor = LagMonitor(self._admin, window_s=observe_s or 1.0)
        report = await monitor.observe_for(observe_s, observe_s / _LOOKS)
        if not observe_s:
            self._unseen.append("whether groups are stuck or falling behind: add --for 30")
        return report

    async def _brokers(self, description: ClusterDescription) -> tuple[SeenBroker, ...]:
        alive = [str(each.node_id) for each in description.brokers if each.node_id not in description.fenced]
        configs = await self._configs(ResourceType.BROKER, alive, _BROKER_KEYS)
        return tuple(
            SeenBroker(
                node_id=each.node_id,
                address=str(each.address),
                rack=each.rack,
                is_fenced=each.node_id in description.fenced,
                configs=configs.get(str(each.node_id), {}),
            )
            for each in description.brokers
        )

    async def _configs(
        self, kind: ResourceType, names: Sequence[str], keys: Sequence[str]
    ) -> dict[str, Mapping[str, str | None]]:
        found: dict[str, Mapping[str, str | None]] = {}
        for start in range(0, len(names), _TOPICS_PER_REQUEST):
            resources = [ConfigResource(kind, name) for name in names[start : start + _TOPICS_PER_REQUEST]]
            load = partial(self._admin.describe_configs, resources, names=keys)
            for each in await self._try(f"configs of {kind.name.lower()}s", load) or ():
                if each.error == ErrorCode.NONE:
                    found[each.resource.name] = each.values()
        return found

    async def _topics(self, topics: Sequence[Topic], led: Sequence[TopicPartition]) -> tuple[SeenTopic, ...]:
        configs = await self._configs(ResourceType.TOPIC, [topic.name for topic in topics], _TOPIC_KEYS)
        starts, ends = await self._offsets(led, EARLIEST), await self._offsets(led, LATEST)
        empty = {tp for tp in led if tp in starts and tp in ends and starts[tp][0] >= ends[tp][0]}
        newest = {tp: at_ms for tp, (_, at_ms) in (await self._offsets(led, MAX_TIMESTAMP)).items() if at_ms >= 0}
        self._starts = {tp: offset for tp, (offset, _) in starts.items() if tp not in empty}
        return tuple(_seen_topic(topic, configs.get(topic.name, {}), newest, empty) for topic in topics)

    async def _with_oldest(
        self, topics: tuple[SeenTopic, ...], log_dirs: Iterable[LogDirectory]
    ) -> tuple[SeenTopic, ...]:
        """Return `topics` with the timestamps of the first records of large logs."""
        large = {tp for each in log_dirs for tp, size in each.partition_sizes.items() if size >= _OLDEST_FROM_BYTES}
        wanted = {tp: offset for tp, offset in self._starts.items() if tp in large}
        if not wanted:
            return topics
        first = await self._try("oldest records", partial(self._admin.first_records, wanted)) or {}
        oldest = {tp: record.timestamp_ms for tp, record in first.items()}
        return tuple(
            replace(topic, partitions=tuple(replace(p, oldest_ms=oldest.get(p.partition)) for p in topic.partitions))
            for topic in topics
        )

    async def _offsets(
        self, partitions: Sequence[TopicPartition], timestamp_ms: TimestampMs
    ) -> dict[TopicPartition, tuple[Offset, TimestampMs]]:
        found = await self._try(
            "newest records" if timestamp_ms == MAX_TIMESTAMP else "offsets",
            partial(self._admin.list_offsets, dict.fromkeys(partitions, timestamp_ms)),
        )
        return {
            tp: (each.offset, each.timestamp_ms) for tp, each in (found or {}).items() if each.error == ErrorCode.NONE
        }

    def _machine(
        self, brokers: Iterable[Broker], log_dirs: Iterable[LogDirectory], wanted: bool | None
    ) -> SeenMachine | None:
        found = None if wanted is False else read_machine(brokers, log_dirs, always=wanted is True)
        if found is None:
            self._unseen.append("the machine of a broker: run this on it")
        return found


def _seen_topic(
    topic: Topic,
    configs: Mapping[str, str | None],
    newest: Mapping[TopicPartition, TimestampMs],
    empty: set[TopicPartition],
) -> SeenTopic:
    name: TopicName = topic.name
    return SeenTopic(
        name=name,
        is_internal=topic.is_internal,
        configs=configs,
        partitions=tuple(
            SeenPartition(
                partition=(tp := TopicPartition(name, each.index)),
                leader=each.leader,
                replicas=each.replicas,
                in_sync=each.in_sync_replicas,
                newest_ms=newest.get(tp),
                is_empty=tp in empty,
            )
            for each in topic.partitions
        ),
    )
