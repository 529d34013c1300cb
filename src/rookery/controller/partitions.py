"""AlterPartition, AssignReplicasToDirs and the elections that clients and the controller itself begin.

AlterPartition is how a leader changes the ISR. The controller compares epochs before anything else: a former leader, or
one that has not seen the newest change, must not overwrite it. A member of the proposed ISR must be active, in the
registration in which it fetched: a broker that has restarted since then may have lost what the leader saw it fetch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rookery.base.codes import ElectionType, RecoveryState
from rookery.base.errors import ErrorCode
from rookery.base.types import NO_BROKER_EPOCH, NO_LEADER, NodeId, PartitionIndex, TopicName
from rookery.controller.decision import ControllerResult, Steps, registered_epoch_problem
from rookery.controller.elections import Election, Rules, TopicRules, partition_change
from rookery.metadata.image import ClusterImage, PartitionImage, TopicImage, changed_partition
from rookery.metadata.records import MetadataRecord, PartitionChangeRecord
from rookery.metadata.requests import (
    OK,
    AlteredPartition,
    AlteredPartitions,
    AssignedReplica,
    AssignedReplicas,
    Outcome,
    PartitionAlteration,
    PartitionOutcome,
)

# So many leaders are moved in one decision of the controller's own; the rest follows in the next.
ELECTIONS_PER_PASS = 1000


def steps_to_alter_partitions(
    image: ClusterImage,
    node_id: NodeId,
    broker_epoch: int,
    alterations: Sequence[PartitionAlteration],
    *,
    static: Mapping[str, str],
) -> Steps[AlteredPartitions]:
    problem = registered_epoch_problem(image, node_id, broker_epoch)
    if problem:
        return ControllerResult((), AlteredPartitions(Outcome(ErrorCode.STALE_BROKER_EPOCH, problem.message)))
    rules = TopicRules(image, static)
    records: list[MetadataRecord] = []
    results: list[AlteredPartition] = []
    for alteration in alterations:
        record, result = _alter(image, node_id, alteration, rules)
        if record is not None:
            records.append(record)
        results.append(result)
        yield
    return ControllerResult(tuple(records), AlteredPartitions(OK, results))


def _alter(
    image: ClusterImage, node_id: NodeId, alteration: PartitionAlteration, rules: TopicRules
) -> tuple[PartitionChangeRecord | None, AlteredPartition]:
    topic_id, index = alteration.topic_id, alteration.index
    topic = image.topic_by_id(topic_id)
    if topic is None:
        return None, AlteredPartition(topic_id, index, ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(index)
    if partition is None:
        return None, AlteredPartition(topic_id, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    code = _alteration_problem(image, node_id, partition, alteration)
    if code is not None:
        return None, AlteredPartition(topic_id, index, code)
    record = partition_change(
        topic_id,
        partition,
        rules.of(topic.name),
        isr=[member for member, _ in alteration.isr],
        recovery_state=alteration.recovery_state,
    )
    after = partition if record is None else changed_partition(partition, record)
    # The change completed a reassignment, and the sender is not among the new replicas. It is written nevertheless.
    is_moved = after.leader != node_id
    return record, AlteredPartition(
        topic_id,
        index,
        ErrorCode.NEW_LEADER_ELECTED if is_moved else ErrorCode.NONE,
        after.leader,
        after.leader_epoch,
        after.isr,
        after.recovery_state,
        after.partition_epoch,
    )


def _alteration_problem(
    image: ClusterImage, node_id: NodeId, partition: PartitionImage, alteration: PartitionAlteration
) -> ErrorCode | None:
    if alteration.leader_epoch > partition.leader_epoch or alteration.partition_epoch > partition.partition_epoch:
        # The sender has seen a change that this controller has not: a newer controller made it.
        return ErrorCode.NOT_CONTROLLER
    if alteration.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if node_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    # Without this check, a leader that has not seen a fenced broker leave the ISR would bring it back.
    if alteration.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = [member for member, _ in alteration.isr]
    if len(set(members)) < len(members) or not set(members) <= set(partition.replicas) or node_id not in members:
        return ErrorCode.INVALID_REQUEST
    recovering = alteration.recovery_state == RecoveryState.RECOVERING
    if recovering and (len(members) > 1 or partition.recovery_state == RecoveryState.RECOVERED):
        return ErrorCode.INVALID_REQUEST
    return None if all(_is_eligible(image, *member) for member in alteration.isr) else ErrorCode.INELIGIBLE_REPLICA


def _is_eligible(image: ClusterImage, node_id: NodeId, broker_epoch: int) -> bool:
    broker = image.brokers.get(node_id)
    return broker is not None and broker.is_active and broker_epoch in (NO_BROKER_EPOCH, broker.broker_epoch)


def steps_to_assign_replicas(
    image: ClusterImage,
    node_id: NodeId,
    broker_epoch: int,
    replicas: Sequence[AssignedReplica],
    *,
    static: Mapping[str, str],
) -> Steps[AssignedReplicas]:
    """Note in which log directory the replicas of a broker are, so that a failed directory takes only its own away."""
    problem = registered_epoch_problem(image, node_id, broker_epoch)
    if problem:
        return ControllerResult((), AssignedReplicas(problem))
    rules = TopicRules(image, static)
    records: list[MetadataRecord] = []
    codes: list[ErrorCode] = []
    for replica in replicas:
        yield
        topic = image.topic_by_id(replica.topic_id)
        if topic is None:
            codes.append(ErrorCode.UNKNOWN_TOPIC_ID)
            continue
        partition = topic.partitions.get(replica.index)
        if partition is None:
            codes.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            continue
        if node_id not in partition.replicas:
            codes.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            continue
        records += _assign(topic, partition, node_id, replica, rules.of(topic.name))
        codes.append(ErrorCode.NONE)
    return ControllerResult(tuple(records), AssignedReplicas(OK, codes))


def _assign(
    topic: TopicImage, partition: PartitionImage, node_id: NodeId, replica: AssignedReplica, rules: Rules
) -> list[PartitionChangeRecord]:
    if partition.directory_of(node_id) == replica.directory:
        return []
    directories = tuple(
        replica.directory if member == node_id else partition.directory_of(member) for member in partition.replicas
    )
    moved = PartitionChangeRecord(partition_id=partition.index, topic_id=topic.topic_id, directories=directories)
    after = changed_partition(partition, moved)
    isr = [member for member in after.isr if member != node_id or rules.can_lead(after, member)]
    change = partition_change(topic.topic_id, after, rules, isr=isr, election=rules.election)
    return [moved if change is None else replace(change, directories=directories)]


def steps_to_elect_leaders(
    image: ClusterImage,
    election: ElectionType,
    partitions: Sequence[tuple[TopicName, PartitionIndex]] | None,
    *,
    static: Mapping[str, str],
) -> Steps[list[PartitionOutcome]]:
    """Elect leaders of the given partitions. None stands for all: then partitions without need of one are left out."""
    rules = TopicRules(image, static)
    records: list[MetadataRecord] = []
    results: list[PartitionOutcome] = []
    wanted = partitions if partitions is not None else _all_partitions(image)
    for count, (name, index) in enumerate(wanted, 1):
        record, outcome = _elect(image, election, name, index, rules)
        if record is not None:
            records.append(record)
        if partitions is not None or outcome.code is not ErrorCode.ELECTION_NOT_NEEDED:
            results.append(PartitionOutcome(name, index, outcome))
        if count % 10 == 0:
            yield
    return ControllerResult(tuple(records), results)


def _all_partitions(image: ClusterImage) -> list[tuple[TopicName, PartitionIndex]]:
    return [(topic.name, index) for topic in image.topics.values() for index in topic.partitions]


def _elect(
    image: ClusterImage, election: ElectionType, name: TopicName, index: PartitionIndex, rules: TopicRules
) -> tuple[PartitionChangeRecord | None, Outcome]:
    topic = image.topics.get(name)
    partition = None if topic is None else topic.partitions.get(index)
    if topic is None or partition is None:
        return None, Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {name}-{index}.")
    is_preferred = election is ElectionType.PREFERRED
    if partition.leader == partition.replicas[0] if is_preferred else partition.leader != NO_LEADER:
        return None, Outcome(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    how = Election.PREFERRED if is_preferred else Election.UNCLEAN
    record = partition_change(topic.topic_id, partition, rules.of(name), election=how)
    leader = partition.leader if record is None else changed_partition(partition, record).leader
    if leader == partition.replicas[0] if is_preferred else leader != NO_LEADER:
        return record, OK
    if is_preferred:
        code, message = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
    else:
        code, message = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica of the partition is available."
    return None, Outcome(code, message)


def steps_to_elect_unclean(image: ClusterImage, *, static: Mapping[str, str]) -> Steps[int]:
    """Elect any active replica of leaderless partitions whose topic allows it; the result is their number."""
    rules = TopicRules(image, static)
    records: list[MetadataRecord] = []
    for topic in image.topics.values():
        topic_rules = rules.of(topic.name)
        yield
        if topic_rules.allows_unclean:
            for partition in topic.partitions.values():
                if partition.leader == NO_LEADER and len(records) < ELECTIONS_PER_PASS:
                    record = partition_change(topic.topic_id, partition, topic_rules, election=Election.UNCLEAN)
                    records += [] if record is None else [record]
    return ControllerResult(tuple(records), len(records))


def can_return(partition: PartitionImage, rules: Rules) -> bool:
    """Return whether the preferred replica of a partition does not lead it, and can."""
    preferred = partition.replicas[0]
    if partition.leader in (preferred, NO_LEADER) or preferred not in partition.isr:
        return False
    return rules.can_lead(partition, preferred)


def decide_return_leaders(
    image: ClusterImage, partitions: Sequence[tuple[TopicName, PartitionIndex]], *, static: Mapping[str, str]
) -> ControllerResult[int]:
    """Elect the preferred replicas of the given partitions, as far as they can lead; the result is their number."""
    rules = TopicRules(image, static)
    records = []
    for name, index in partitions[:ELECTIONS_PER_PASS]:
        topic = image.topics.get(name)
        partition = None if topic is None else topic.partitions.get(index)
        if topic is None or partition is None or not can_return(partition, rules.of(name)):
            continue
        record = partition_change(topic.topic_id, partition, rules.of(name), election=Election.PREFERRED)
        assert record is not None, "another replica leads"
        records.append(record)
    return ControllerResult(tuple(records), len(records))
