"""The life of a registered broker: heartbeats, fencing, return, controlled shutdown, removal.

A broker that is fenced is in no ISR with other members, and leads no partition that another replica can lead. The
records of a decision keep this order: a broker is taken out of the ISRs before it is fenced, and unfenced before it is
elected.

A controlled shutdown moves the leaderships that another replica can take, and leaves the others. The broker may
stop when all other active brokers have applied the moves: a client then finds the new leader wherever it asks.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_LEADER, NodeId
from rookery.controller.decision import ControllerResult, Steps, registered_epoch_problem
from rookery.controller.elections import Rules, TopicRules, partition_change
from rookery.controller.scan import Change, scan_partitions
from rookery.metadata.features import METADATA_VERSION
from rookery.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage, changed_partition
from rookery.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    UnregisterBrokerRecord,
)
from rookery.metadata.requests import OK, BrokerHeartbeat, HeartbeatReply, Outcome

# The level of `metadata.version` whose records can hold cordoned directories.
_CORDON_LEVEL = 30


class HeartbeatPlan(NamedTuple):
    """The effects of a heartbeat on the cluster, before they are turned into records."""

    reply: HeartbeatReply
    fences: bool = False
    unfences: bool = False
    begins_shutdown: bool = False
    # The directories that are online from now on, and those that are cordoned; None if they do not change.
    directories: tuple[UUID, ...] | None = None
    cordoned: tuple[UUID, ...] | None = None

    @property
    def is_change(self) -> bool:
        changes = self.fences or self.unfences or self.begins_shutdown
        return changes or self.directories is not None or self.cordoned is not None


def plan_heartbeat(image: ClusterImage, heartbeat: BrokerHeartbeat, *, may_shut_down: bool) -> HeartbeatPlan:
    """Return what a heartbeat changes. Most change nothing, and need not wait for other decisions.

    `may_shut_down` is whether all other active brokers have applied the moves of a controlled shutdown.
    """
    problem = registered_epoch_problem(image, heartbeat.node_id, heartbeat.broker_epoch)
    if problem:
        return HeartbeatPlan(HeartbeatReply(problem))
    broker = image.brokers[heartbeat.node_id]
    reply = HeartbeatReply(OK, is_caught_up=heartbeat.metadata_offset >= broker.broker_epoch, is_fenced=broker.fenced)
    directories, cordoned = _changed_directories(image, broker, heartbeat)
    if directories == ():
        # The record cannot say that no directory is left. A broker without one serves nothing.
        reply = reply._replace(is_fenced=True, should_shut_down=heartbeat.wants_shut_down)
        return HeartbeatPlan(reply, fences=not broker.fenced)
    plan = HeartbeatPlan(reply, directories=directories, cordoned=cordoned)
    if broker.fenced:
        if heartbeat.wants_shut_down:
            return plan._replace(reply=reply._replace(should_shut_down=True))
        if heartbeat.wants_fence or not reply.is_caught_up:
            return plan
        return plan._replace(reply=reply._replace(is_fenced=False), unfences=True)
    if heartbeat.wants_fence:
        reply = reply._replace(is_fenced=True, should_shut_down=heartbeat.wants_shut_down)
        return plan._replace(reply=reply, fences=True)
    if not heartbeat.wants_shut_down:
        return plan
    # Without other brokers nothing can move, and a node that stops alone writes no record.
    if may_shut_down or not any(other.is_active for other in image.brokers.values() if other is not broker):
        return plan._replace(reply=reply._replace(should_shut_down=True))
    return plan._replace(begins_shutdown=not broker.in_controlled_shutdown)


def steps_to_heartbeat(
    image: ClusterImage, heartbeat: BrokerHeartbeat, *, static: Mapping[str, str], may_shut_down: bool
) -> Steps[HeartbeatReply]:
    plan = plan_heartbeat(image, heartbeat, may_shut_down=may_shut_down)
    if not plan.is_change:
        return ControllerResult((), plan.reply)
    broker = image.brokers[heartbeat.node_id]
    after = replace(
        broker,
        fenced=(broker.fenced or plan.fences) and not plan.unfences,
        in_controlled_shutdown=broker.in_controlled_shutdown or plan.begins_shutdown,
        log_directories=broker.log_directories if plan.directories is None else plan.directories,
    )
    record = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        fenced=1 if plan.fences else -1 if plan.unfences else 0,
        in_controlled_shutdown=int(plan.begins_shutdown),
        log_directories=plan.directories or (),
        cordoned_directories=plan.cordoned,
    )
    rules = TopicRules(image, static, brokers={**image.brokers, broker.broker_id: after})
    change = _changes_of(broker, after, keeps_leaders=plan.begins_shutdown)
    partitions = yield from scan_partitions(image, rules, change)
    records: tuple[MetadataRecord, ...] = (record, *partitions) if plan.unfences else (*partitions, record)
    return ControllerResult(records, plan.reply)


def steps_to_fence(
    image: ClusterImage, node_id: NodeId, broker_epoch: int, *, static: Mapping[str, str]
) -> Steps[bool]:
    """Fence a broker in the given epoch; the result is whether it has not registered again since.

    A broker that registered and was not heard of again is fenced already. It loses the partitions that it kept because
    no other replica could lead them.
    """
    broker = image.brokers.get(node_id)
    if broker is None or broker.broker_epoch != broker_epoch:
        return ControllerResult((), False)
    after = replace(broker, fenced=True)
    rules = TopicRules(image, static, brokers={**image.brokers, node_id: after})
    partitions = yield from scan_partitions(image, rules, _changes_of(broker, after))
    record = BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=broker.broker_epoch, fenced=1)
    return ControllerResult((*partitions, *(() if broker.fenced else (record,))), True)


def steps_to_unregister_broker(image: ClusterImage, node_id: NodeId, *, static: Mapping[str, str]) -> Steps[Outcome]:
    """Remove a broker: it leaves every ISR and ELR. Its replicas stay assigned to it."""
    broker = image.brokers.get(node_id)
    if broker is None:
        outcome = Outcome(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {node_id} is not currently registered")
        return ControllerResult((), outcome)
    others = {other: each for other, each in image.brokers.items() if other != node_id}
    rules = TopicRules(image, static, brokers=others)
    partitions = yield from scan_partitions(image, rules, _changes_of(broker, None))
    records: tuple[MetadataRecord, ...] = (*partitions, UnregisterBrokerRecord(node_id, broker.broker_epoch))
    return ControllerResult(records, OK)


def _changed_directories(
    image: ClusterImage, broker: BrokerImage, heartbeat: BrokerHeartbeat
) -> tuple[tuple[UUID, ...] | None, tuple[UUID, ...] | None]:
    online = tuple(each for each in broker.log_directories if each not in heartbeat.offline_directories)
    cordoned = heartbeat.cordoned_directories
    if cordoned == (broker.cordoned_directories or ()) or image.feature_level(METADATA_VERSION) < _CORDON_LEVEL:
        cordoned = None
    return (online if online != broker.log_directories else None), cordoned


def _changes_of(broker: BrokerImage, after: BrokerImage | None, *, keeps_leaders: bool = False) -> Change:
    """Return the change of each partition when `broker` becomes `after`, which is None if it is removed.

    `keeps_leaders`: a partition that no other replica can lead stays as it is.
    """
    node_id = broker.broker_id

    def change(topic: TopicImage, partition: PartitionImage, rules: Rules) -> PartitionChangeRecord | None:
        if not _concerns(partition, node_id, removed=after is None):
            return None
        stays = after is not None and rules.can_lead(partition, node_id)
        isr: Collection[NodeId] = partition.isr
        if not stays:
            isr = [member for member in isr if member != node_id]
        record = partition_change(
            topic.topic_id,
            partition,
            rules,
            election=rules.election,
            isr=isr,
            unclean=(node_id,) if after is None else (),
        )
        if keeps_leaders and record is not None and changed_partition(partition, record).leader == NO_LEADER:
            return None
        return record

    return change


def _concerns(partition: PartitionImage, node_id: NodeId, *, removed: bool) -> bool:
    """Return whether a partition can change when one of its replicas' brokers changes."""
    if node_id in partition.isr:
        return True
    if partition.leader == NO_LEADER and node_id in partition.replicas:
        return True
    return removed and node_id in partition.elr
