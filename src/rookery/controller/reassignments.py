"""AlterPartitionReassignments and ListPartitionReassignments.

During a reassignment a partition has the target replicas and those that are removed at its end. New replicas fetch, and
join the ISR; the AlterPartition that brings the last of them completes the reassignment (`elections`). A new target
replaces the one in progress, and the same target again changes nothing. All partitions of a request change together, or
none if there would be too many records.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import PartitionIndex, TopicName
from rookery.controller.decision import (
    RECORDS_PER_REQUEST_MAX,
    TOO_LARGE,
    ControllerResult,
    Steps,
    error_outcome,
)
from rookery.controller.elections import Reassigned, Rules, TopicRules, partition_change
from rookery.metadata.image import ClusterImage, PartitionImage, TopicImage, changed_partition
from rookery.metadata.records import MetadataRecord, PartitionChangeRecord
from rookery.metadata.requests import OK, OngoingReassignment, PartitionOutcome, Reassignment, Replicas


def steps_to_alter_reassignments(
    image: ClusterImage,
    reassignments: Sequence[Reassignment],
    *,
    allow_factor_change: bool,
    static: Mapping[str, str],
) -> Steps[list[PartitionOutcome]]:
    rules = TopicRules(image, static)
    given = Counter((wanted.topic, wanted.index) for wanted in reassignments)
    records: list[MetadataRecord] = []
    results: list[PartitionOutcome] = []
    for wanted in reassignments:
        yield
        outcome = OK
        try:
            if given[wanted.topic, wanted.index] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each partition must appear at most once.")
            record = _reassign(image, wanted, rules, allow_factor_change=allow_factor_change)
            records += [] if record is None else [record]
        except ApiError as error:
            outcome = error_outcome(error)
        results.append(PartitionOutcome(wanted.topic, wanted.index, outcome))
    if len(records) > RECORDS_PER_REQUEST_MAX:
        return ControllerResult((), [PartitionOutcome(each.topic, each.index, TOO_LARGE) for each in reassignments])
    return ControllerResult(tuple(records), results)


def list_reassignments(
    image: ClusterImage, partitions: Sequence[tuple[TopicName, PartitionIndex]] | None
) -> list[OngoingReassignment]:
    """Return the reassignments in progress, of the given partitions or of all if it is None."""
    if partitions is None:
        topics = image.topics.values()
        chosen: Iterator[tuple[TopicImage, PartitionImage]] = (
            (topic, partition) for topic in topics for partition in topic.partitions.values()
        )
    else:
        chosen = (
            (topic, topic.partitions[index])
            for name, index in partitions
            for topic in [image.topics.get(name)]
            if topic is not None and index in topic.partitions
        )
    return [
        OngoingReassignment(
            topic.name, partition.index, partition.replicas, partition.adding_replicas, partition.removing_replicas
        )
        for topic, partition in chosen
        if partition.adding_replicas or partition.removing_replicas
    ]


def _reassign(
    image: ClusterImage, wanted: Reassignment, rules: TopicRules, *, allow_factor_change: bool
) -> PartitionChangeRecord | None:
    topic = image.topics.get(wanted.topic)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {wanted.topic}.")
    partition = topic.partitions.get(wanted.index)
    if partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {wanted.topic}:{wanted.index}.")
    if wanted.replicas is None:
        return _cancel(topic, partition, rules.of(topic.name))
    _check_target(image, partition, wanted.replicas, allow_factor_change=allow_factor_change)
    original = _original(partition)
    removing = tuple(node_id for node_id in original if node_id not in wanted.replicas)
    adding = tuple(node_id for node_id in wanted.replicas if node_id not in original)
    # Replicas that only the reassignment in progress added, and the new target does not have, leave immediately.
    reassigned = Reassigned(replicas=wanted.replicas + removing, adding=adding, removing=removing)
    if (reassigned.replicas, adding, removing) == (
        partition.replicas,
        partition.adding_replicas,
        partition.removing_replicas,
    ):
        return None
    return _change(topic, partition, rules.of(topic.name), reassigned)


def _cancel(topic: TopicImage, partition: PartitionImage, rules: Rules) -> PartitionChangeRecord | None:
    if not partition.adding_replicas and not partition.removing_replicas:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    return _change(topic, partition, rules, Reassigned(replicas=_original(partition)))


def _change(
    topic: TopicImage, partition: PartitionImage, rules: Rules, reassigned: Reassigned
) -> PartitionChangeRecord | None:
    stays = [member for member in partition.isr if member in reassigned.replicas]
    if not stays and partition.isr:
        # Only replicas that would leave are in sync: to go on without them would lose records.
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"none of the replicas {list(reassigned.replicas)} is in sync: wait until one has caught up",
        )
    record = partition_change(topic.topic_id, partition, rules, isr=stays, reassigned=reassigned)
    if record is not None and stays:
        after = changed_partition(partition, record)
        assert set(after.isr) <= set(after.replicas), "the ISR is a part of the replicas"
    return record


def _original(partition: PartitionImage) -> Replicas:
    """Return the replicas before the reassignment in progress, in an order that keeps its preferred leader."""
    kept = [node_id for node_id in partition.replicas if node_id not in partition.adding_replicas]
    return tuple(kept)


def _check_target(
    image: ClusterImage, partition: PartitionImage, replicas: Replicas, *, allow_factor_change: bool
) -> None:
    if not replicas:
        raise _invalid("The manual partition assignment includes an empty replica list.")
    if len(set(replicas)) < len(replicas):
        raise _invalid("The manual partition assignment includes a broker more than once.")
    for node_id in replicas:
        if node_id not in image.brokers:
            raise _invalid(
                f"The manual partition assignment includes broker {node_id}, but no such broker is registered."
            )
    factor = len(_original(partition))
    if not allow_factor_change and len(replicas) != factor:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor would change from {factor} to {len(replicas)}.",
        )


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
