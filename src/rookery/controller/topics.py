"""CreateTopics, DeleteTopics and CreatePartitions: the same checks as in Kafka, and the resulting records."""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

from rookery.base.codes import ResourceType
from rookery.base.config import BrokerLayers, ConfigEntry, describe_topic, validate_topic
from rookery.base.errors import ApiError, ConfigError, ErrorCode
from rookery.base.topic_names import name_problem
from rookery.base.types import NO_TOPIC_ID, NodeId, PartitionIndex, TopicId, TopicName
from rookery.controller.decision import (
    RECORDS_PER_REQUEST_MAX,
    TOO_LARGE,
    Context,
    ControllerResult,
    Steps,
    duplicates,
    error_outcome,
    run_steps,
)
from rookery.controller.placement import place, replica_counts
from rookery.metadata.image import ClusterImage, TopicImage
from rookery.metadata.internal_topics import METADATA_TOPIC
from rookery.metadata.records import (
    UNASSIGNED_DIRECTORY,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from rookery.metadata.requests import (
    OK,
    USE_DEFAULT,
    ChangedTopic,
    CreatedTopic,
    DeletedTopic,
    MorePartitions,
    NewTopic,
    Outcome,
    Replicas,
)

# About 5 microseconds each: a step is not longer than the description of a topic's configs.
_RECORDS_PER_STEP = 50


def decide_create_topics(
    image: ClusterImage, topics: Sequence[NewTopic], context: Context, *, validate_only: bool = False
) -> ControllerResult[list[CreatedTopic]]:
    """Return one result per topic name; a name that appears twice gets one error."""
    return run_steps(steps_to_create_topics(image, topics, context, validate_only=validate_only))


def steps_to_create_topics(
    image: ClusterImage, topics: Sequence[NewTopic], context: Context, *, validate_only: bool = False
) -> Steps[list[CreatedTopic]]:
    twice = duplicates(topic.name for topic in topics)
    names_taken = {_collision_key(name): name for name in image.topics}
    records: list[MetadataRecord] = []
    results: dict[TopicName, CreatedTopic] = {}
    configs = _TopicConfigs(context.broker(image))
    counts = replica_counts(image)
    for topic in topics:
        yield
        if topic.name in twice:
            results[topic.name] = CreatedTopic(topic.name, _invalid_request("Duplicate topic name."))
            continue
        try:
            _check_name(image, topic.name, names_taken)
            new_records, results[topic.name] = yield from _create_topic(image, topic, context, configs, counts)
        except ApiError as error:
            results[topic.name] = CreatedTopic(topic.name, error_outcome(error))
            continue
        records += new_records
        names_taken[_collision_key(topic.name)] = topic.name
        if len(records) > RECORDS_PER_REQUEST_MAX:
            return ControllerResult((), [CreatedTopic(other.name, TOO_LARGE) for other in topics])
    return ControllerResult(() if validate_only else tuple(records), list(results.values()))


def decide_delete_topics(
    image: ClusterImage, topics: Sequence[tuple[TopicName | None, TopicId]], context: Context
) -> ControllerResult[list[DeletedTopic]]:
    """Delete topics by name (with the zero id) or by id (without a name); each duplicate gets one error."""
    return run_steps(steps_to_delete_topics(image, topics, context))


def steps_to_delete_topics(
    image: ClusterImage, topics: Sequence[tuple[TopicName | None, TopicId]], context: Context
) -> Steps[list[DeletedTopic]]:
    if not context.broker(image).boolean("delete.topic.enable"):
        return ControllerResult(
            (), [DeletedTopic(*item, Outcome(ErrorCode.TOPIC_DELETION_DISABLED)) for item in topics]
        )
    names_twice = duplicates(name for name, _ in topics if name is not None)
    ids_twice = duplicates(str(topic_id) for _, topic_id in topics if topic_id != NO_TOPIC_ID)
    results: dict[tuple[TopicName | None, TopicId], DeletedTopic] = {}
    chosen: dict[TopicId, DeletedTopic] = {}
    for name, topic_id in topics:
        yield
        try:
            if name in names_twice or str(topic_id) in ids_twice:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {'id' if name is None else 'name'}.")
            topic = _find_topic(image, name, topic_id)
            if topic.topic_id in chosen:
                raise ApiError(ErrorCode.INVALID_REQUEST, "The topic is named by its name and by its id.")
            result = chosen[topic.topic_id] = DeletedTopic(topic.name, topic.topic_id, OK)
        except ApiError as error:
            result = DeletedTopic(name, topic_id, error_outcome(error))
        results[name, topic_id] = result
    return ControllerResult(tuple(RemoveTopicRecord(topic_id) for topic_id in chosen), list(results.values()))


def decide_create_partitions(
    image: ClusterImage, topics: Sequence[MorePartitions], context: Context, *, validate_only: bool = False
) -> ControllerResult[list[ChangedTopic]]:
    return run_steps(steps_to_create_partitions(image, topics, context, validate_only=validate_only))


def steps_to_create_partitions(
    image: ClusterImage, topics: Sequence[MorePartitions], context: Context, *, validate_only: bool = False
) -> Steps[list[ChangedTopic]]:
    twice = duplicates(topic.name for topic in topics)
    records: list[MetadataRecord] = []
    results: dict[TopicName, ChangedTopic] = {}
    counts = replica_counts(image)
    for topic in topics:
        yield
        outcome = OK
        try:
            if topic.name in twice:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            records += yield from _add_partitions(image, topic, context, counts)
        except ApiError as error:
            outcome = error_outcome(error)
        results[topic.name] = ChangedTopic(topic.name, outcome)
        if len(records) > RECORDS_PER_REQUEST_MAX:
            return ControllerResult((), [ChangedTopic(other.name, TOO_LARGE) for other in topics])
    return ControllerResult(() if validate_only else tuple(records), list(results.values()))


def _check_name(image: ClusterImage, name: TopicName, names_taken: Mapping[str, TopicName]) -> None:
    problem = name_problem(name)
    if problem:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name == METADATA_TOPIC:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in image.topics:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = names_taken.get(_collision_key(name))
    if other:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")


def _collision_key(name: TopicName) -> str:
    """Return the same key for names that differ only in '.' and '_': in metric names they would be equal."""
    return name.replace(".", "_")


class _TopicConfigs:
    """Validates and describes topic configs, once for all topics of a request that have the same configs.

    A description takes a third of a millisecond: one per topic would block the event loop if there are thousands.
    """

    def __init__(self, broker: BrokerLayers) -> None:
        self.broker = broker
        self._described: dict[tuple[tuple[str, str], ...], tuple[ConfigEntry, ...]] = {}

    def describe(self, configs: Mapping[str, str]) -> tuple[ConfigEntry, ...]:
        """Return all config values of a topic; raises ApiError if one of `configs` is invalid."""
        key = tuple(configs.items())
        described = self._described.get(key)
        if described is None:
            try:
                validate_topic(configs, self.broker)
            except ConfigError as error:
                raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
            described = self._described[key] = tuple(describe_topic(configs, self.broker))
        return described


def _create_topic(
    image: ClusterImage, topic: NewTopic, context: Context, topic_configs: _TopicConfigs, counts: Counter[NodeId]
) -> Generator[None, None, tuple[list[MetadataRecord], CreatedTopic]]:
    configs = _given_configs(topic)
    described = topic_configs.describe(configs)
    partitions = yield from _new_partitions(image, topic, context, topic_configs.broker, counts)
    topic_id = context.new_id()
    records: list[MetadataRecord] = [TopicRecord(topic.name, topic_id)]
    records += [ConfigRecord(ResourceType.TOPIC, topic.name, name, value) for name, value in configs.items()]
    for count, record in enumerate(_partition_records(image, topic_id, partitions), 1):
        records.append(record)
        if count % _RECORDS_PER_STEP == 0:
            yield
    return records, CreatedTopic(topic.name, OK, topic_id, len(partitions), len(partitions[0]), described)


def _given_configs(topic: NewTopic) -> dict[str, str]:
    without_value = [name for name, value in topic.configs if value is None]
    if without_value:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(without_value)}"
        )
    return {name: value for name, value in topic.configs if value is not None}


def _new_partitions(
    image: ClusterImage, topic: NewTopic, context: Context, broker: BrokerLayers, counts: Counter[NodeId]
) -> Generator[None, None, list[Replicas]]:
    """Return the replicas of each partition of a new topic."""
    if topic.assignments:
        return _manual_partitions(image, topic)
    count, factor = topic.partition_count, topic.replication_factor
    if factor < USE_DEFAULT or factor == 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if count < USE_DEFAULT or count == 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    return (
        yield from _placed(
            image,
            context,
            counts,
            first_partition=0,
            partition_count=broker.integer("num.partitions") if count == USE_DEFAULT else count,
            replication_factor=broker.integer("default.replication.factor") if factor == USE_DEFAULT else factor,
        )
    )


def _manual_partitions(image: ClusterImage, topic: NewTopic) -> list[Replicas]:
    for given, what in ((topic.replication_factor, "replication factor"), (topic.partition_count, "numPartitions")):
        if given != USE_DEFAULT:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    by_index: dict[PartitionIndex, Replicas] = {}
    factor = len(topic.assignments[0][1])
    for index, replicas in topic.assignments:
        if index in by_index:
            raise _bad_assignment(f"Found multiple manual partition assignments for partition {index}")
        _check_assignment(image, index, replicas, factor=factor)
        by_index[index] = replicas
    if sorted(by_index) != list(range(len(by_index))):
        raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
    return [by_index[index] for index in range(len(by_index))]


def _check_assignment(image: ClusterImage, index: PartitionIndex, replicas: Replicas, *, factor: int) -> None:
    if not replicas:
        raise _bad_assignment("The manual partition assignment includes an empty replica list.")
    for node_id in replicas:
        if node_id not in image.brokers:
            raise _bad_assignment(
                f"The manual partition assignment includes broker {node_id}, but no such broker is registered."
            )
    if len(set(replicas)) < len(replicas):
        raise _bad_assignment("The manual partition assignment includes a broker more than once.")
    if len(replicas) != factor:
        raise _bad_assignment(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {factor} replica(s)."
        )
    if not any(image.brokers[node_id].is_active for node_id in replicas):
        raise _bad_assignment(
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown."
        )


def _placed(
    image: ClusterImage,
    context: Context,
    counts: Counter[NodeId],
    *,
    first_partition: int,
    partition_count: int,
    replication_factor: int,
) -> Generator[None, None, list[Replicas]]:
    if partition_count > RECORDS_PER_REQUEST_MAX:
        raise ApiError(*TOO_LARGE)
    placed = yield from place(
        image.brokers.values(),
        start=context.placement_start,
        first_partition=first_partition,
        partition_count=partition_count,
        replication_factor=replication_factor,
        counts=counts,
    )
    if isinstance(placed, str):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): {placed}",
        )
    return placed


def _add_partitions(
    image: ClusterImage, request: MorePartitions, context: Context, counts: Counter[NodeId]
) -> Generator[None, None, list[MetadataRecord]]:
    topic = image.topics.get(request.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = len(topic.partitions)
    if request.count == present:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if request.count < present:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {present} partition(s); {request.count} would not be an increase.",
        )
    factor = len(topic.partitions[0].replicas)
    if request.assignments is None:
        added = yield from _placed(
            image,
            context,
            counts,
            first_partition=present,
            partition_count=request.count - present,
            replication_factor=factor,
        )
    else:
        added = _manual_additions(image, request, present=present, factor=factor)
    return list(_partition_records(image, topic.topic_id, added, first=present))


def _manual_additions(image: ClusterImage, request: MorePartitions, *, present: int, factor: int) -> list[Replicas]:
    assignments = request.assignments or ()
    if len(assignments) != request.count - present:
        raise _bad_assignment(
            f"Attempted to add {request.count - present} additional partition(s), but only {len(assignments)} "
            "assignment(s) were specified."
        )
    for index, replicas in enumerate(assignments, present):
        _check_assignment(image, index, replicas, factor=factor)
    return list(assignments)


def _partition_records(
    image: ClusterImage, topic_id: TopicId, partitions: Iterable[Replicas], *, first: PartitionIndex = 0
) -> Iterator[PartitionRecord]:
    for index, replicas in enumerate(partitions, first):
        isr = tuple(node_id for node_id in replicas if image.brokers[node_id].is_active)
        yield PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=replicas,
            isr=isr,
            leader=isr[0],
            directories=(UNASSIGNED_DIRECTORY,) * len(replicas),
        )


def _find_topic(image: ClusterImage, name: TopicName | None, topic_id: TopicId) -> TopicImage:
    if name is None and topic_id == NO_TOPIC_ID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if name is not None and topic_id != NO_TOPIC_ID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    topic = image.topics.get(name) if name is not None else image.topic_by_id(topic_id)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name is not None else ErrorCode.UNKNOWN_TOPIC_ID)
    return topic


def _invalid_request(message: str) -> Outcome:
    return Outcome(ErrorCode.INVALID_REQUEST, message)


def _bad_assignment(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
