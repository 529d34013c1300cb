"""Registration of brokers and controllers.

A broker's epoch is the offset of its registration record. A registered broker is fenced until a heartbeat says that it
has applied the metadata (`brokers`).

A new incarnation, that is, a new process, takes over the registration of the old one:

- If it has a log directory of the old one, the old process is gone, because directories are locked. It is accepted
  immediately. Otherwise two processes have the same node id, and the new one is rejected until the lease of the old one
  has ended.
- It leaves the ISR of every partition that another replica can lead, as a fenced broker must. A partition that only it
  can lead keeps it as leader: a node that restarts alone writes no record per partition.
- After an unclean shutdown its logs may have lost their unsynced ends. It leaves the ISR and the ELR. A partition that
  has no other eligible replica keeps it, with a new leader epoch, so that clients and followers can see where the old
  one ended. Without it, new records would get the offsets and the epoch of lost ones, and a consumer that had read the
  lost ones would not notice.

The records of the partitions come before the registration: one batch has them all, and none takes effect alone.
"""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from uuid import UUID

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NO_LEADER, NodeId, Offset
from rookery.controller.decision import ControllerResult, Steps, duplicates, error_outcome
from rookery.controller.elections import Rules, TopicRules, partition_change
from rookery.controller.scan import scan_partitions
from rookery.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage, changed_partition
from rookery.metadata.records import (
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from rookery.metadata.requests import OK, ControllerRegistration, Outcome, Registered, Registration

# Directory ids below this number have a meaning of their own in Kafka (unassigned, lost, migrating).
_RESERVED_DIRECTORIES = 100


def steps_to_register_broker(
    image: ClusterImage,
    registration: Registration,
    *,
    cluster_id: str,
    static: Mapping[str, str],
    next_offset: Offset,
    is_alive: bool,
) -> Steps[Registered]:
    """Register a broker.

    `next_offset` is the offset of the decision's first record. `is_alive` is whether the broker with this id was heard
    of within the time of a lease.
    """
    before = image.brokers.get(registration.node_id)
    try:
        _check(image, registration, cluster_id)
        if before is not None and before.incarnation_id != registration.incarnation_id and is_alive:
            _check_successor(before, registration)
    except ApiError as error:
        return ControllerResult((), Registered(error_outcome(error)))
    if before is not None and before.incarnation_id == registration.incarnation_id:
        return _amend(before, registration)
    records: list[MetadataRecord] = []
    if before is not None:
        records += yield from _leave_partitions(image, before, registration, static)
    broker_epoch = next_offset + len(records)
    records.append(_record(registration, broker_epoch))
    return ControllerResult(tuple(records), Registered(OK, broker_epoch))


def decide_register_controller(image: ClusterImage, registration: ControllerRegistration) -> ControllerResult[Outcome]:
    before = image.controllers.get(registration.node_id)
    if not registration.endpoints:
        return ControllerResult((), Outcome(ErrorCode.INVALID_REGISTRATION, "A controller must have a listener."))
    record = RegisterControllerRecord(
        controller_id=registration.node_id,
        incarnation_id=registration.incarnation_id,
        endpoints=registration.endpoints,
        features=registration.features,
    )
    is_known = before is not None and (before.incarnation_id, before.endpoints, before.features) == (
        registration.incarnation_id,
        registration.endpoints,
        registration.features,
    )
    return ControllerResult(() if is_known else (record,), OK)


def _check(image: ClusterImage, registration: Registration, cluster_id: str) -> None:
    node_id = registration.node_id
    if registration.cluster_id != cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"broker {node_id} belongs to cluster {registration.cluster_id}, and this is cluster {cluster_id}: correct "
            "its controller.quorum.voters or controller.quorum.bootstrap.servers, or format its directories for this "
            "cluster",
        )
    if not registration.endpoints:
        raise _invalid(f"broker {node_id} has no listener: set its listeners or advertised.listeners")
    for problem in _directory_problems(image, registration):
        raise _invalid(problem)
    for name, level in image.features.items():
        if level and not any(
            feature.name == name and feature.min_supported_version <= level <= feature.max_supported_version
            for feature in registration.features
        ):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"broker {node_id} does not support {name} at level {level}: install a version that does, or change "
                "the level with `rookery features`",
            )


def _directory_problems(image: ClusterImage, registration: Registration) -> Iterator[str]:
    node_id, directories = registration.node_id, registration.log_directories
    if not directories:
        yield f"broker {node_id} has no log directory"
    if any(directory.int < _RESERVED_DIRECTORIES for directory in directories):
        yield f"broker {node_id} has a log directory with a reserved id: format it again"
    if duplicates(map(str, directories)):
        yield f"broker {node_id} has two log directories with the same id: one is a copy, remove it from log.dirs"
    for other in image.brokers.values():
        if other.broker_id != node_id and not set(other.log_directories).isdisjoint(directories):
            yield (
                f"broker {node_id} has a log directory of broker {other.broker_id}: it is a copy, or node.id was "
                f"changed. Give the node its own directories, or unregister broker {other.broker_id}"
            )


def _check_successor(before: BrokerImage, registration: Registration) -> None:
    """Raise ApiError if the process that has the registration may still run."""
    if set(before.log_directories).isdisjoint(registration.log_directories):
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another process is registered as broker {before.broker_id}, with other log directories, and was heard of "
            "recently: give one of the two another node.id, or wait until its lease has ended",
        )


def _amend(before: BrokerImage, registration: Registration) -> ControllerResult[Registered]:
    """The same process registers again: its epoch and state stay."""
    after = replace(
        before,
        endpoints=registration.endpoints,
        features=registration.features,
        rack=registration.rack,
        log_directories=registration.log_directories,
    )
    record = replace(
        _record(registration, before.broker_epoch),
        fenced=before.fenced,
        in_controlled_shutdown=before.in_controlled_shutdown,
        cordoned_directories=before.cordoned_directories,
    )
    return ControllerResult(() if after == before else (record,), Registered(OK, before.broker_epoch))


def _record(registration: Registration, broker_epoch: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=registration.node_id,
        incarnation_id=registration.incarnation_id,
        broker_epoch=broker_epoch,
        endpoints=registration.endpoints,
        features=registration.features,
        rack=registration.rack,
        fenced=True,
        log_directories=registration.log_directories,
    )


def _leave_partitions(
    image: ClusterImage, before: BrokerImage, registration: Registration, static: Mapping[str, str]
) -> Generator[None, None, list[PartitionChangeRecord]]:
    """Return the records of the partitions of which the old incarnation was in the ISR or ELR."""
    node_id = before.broker_id
    after = replace(before, fenced=True, log_directories=registration.log_directories)
    rules = TopicRules(image, static, brokers={**image.brokers, node_id: after})
    is_clean = registration.previous_broker_epoch == before.broker_epoch
    same_disk = not set(before.log_directories).isdisjoint(registration.log_directories)

    def change(topic: TopicImage, partition: PartitionImage, topic_rules: Rules) -> PartitionChangeRecord | None:
        if node_id not in partition.isr and node_id not in (*partition.elr, *partition.last_known_elr):
            return None
        is_lost = not _has_log(partition.directory_of(node_id), registration, same_disk=same_disk)
        record = partition_change(
            topic.topic_id,
            partition,
            topic_rules,
            isr=[member for member in partition.isr if member != node_id],
            unclean=() if is_clean else (node_id,),
            lost=(node_id,) if is_lost else (),
        )
        if not _keeps_leader(partition, record, node_id, is_clean=is_clean, is_lost=is_lost):
            return record
        # A new epoch, also with the same leader: the log may end before what clients have read in the old one.
        bump = PartitionChangeRecord(partition_id=partition.index, topic_id=topic.topic_id, leader=node_id)
        return None if is_clean else bump

    return scan_partitions(image, rules, change)


def _has_log(directory: UUID, registration: Registration, *, same_disk: bool) -> bool:
    return directory in registration.log_directories or (directory.int < _RESERVED_DIRECTORIES and same_disk)


def _keeps_leader(
    partition: PartitionImage,
    record: PartitionChangeRecord | None,
    node_id: NodeId,
    *,
    is_clean: bool,
    is_lost: bool,
) -> bool:
    if partition.leader != node_id or record is None:
        return False
    after = changed_partition(partition, record)
    if after.leader != NO_LEADER:
        return False
    # After an unclean shutdown the others in the ELR have more of what was committed: the partition waits for them.
    has_others = any(member != node_id for member in (*after.isr, *after.elr))
    return is_clean or (not has_others and (not is_lost or len(partition.replicas) == 1))


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REGISTRATION, message)
