"""AlterConfigs and IncrementalAlterConfigs for topics and brokers.

All changes of a resource are applied, or none. A topic accepts every topic config. A broker accepts only the keys that
can change at run time, for one broker (`BROKER`, node id) or for all (`BROKER`, empty name). Groups, client metrics and
loggers have no configs, and requests for them are rejected.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from rookery.base.codes import ConfigOperation, ResourceType
from rookery.base.config import (
    BrokerLayers,
    can_update,
    find_broker_key,
    find_topic_key,
    validate_topic,
)
from rookery.base.config_key import ConfigKey, ConfigType, Update, format_value, parse_value
from rookery.base.errors import ApiError, ConfigError, ErrorCode
from rookery.base.topic_names import name_problem
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
from rookery.controller.features import has_elr
from rookery.metadata.image import ClusterImage, ConfigResource
from rookery.metadata.records import ClearElrRecord, ConfigRecord, MetadataRecord
from rookery.metadata.requests import OK, AlteredResource, ConfigChange, ResourceChange

_MIN_ISR = "min.insync.replicas"

_Apply = Callable[[Mapping[str, str], ResourceChange], dict[str, str]]


def decide_alter_configs(
    image: ClusterImage, resources: Sequence[ResourceChange], context: Context, *, validate_only: bool = False
) -> ControllerResult[list[AlteredResource]]:
    """Replace all configs of each resource by those of the request."""
    return run_steps(steps_to_alter_configs(image, resources, context, validate_only=validate_only))


def steps_to_alter_configs(
    image: ClusterImage, resources: Sequence[ResourceChange], context: Context, *, validate_only: bool = False
) -> Steps[list[AlteredResource]]:
    return _decide(image, resources, context, _replace, validate_only=validate_only)


def decide_incremental_alter_configs(
    image: ClusterImage, resources: Sequence[ResourceChange], context: Context, *, validate_only: bool = False
) -> ControllerResult[list[AlteredResource]]:
    """Change single keys; for lists, single items can be added or removed."""
    return run_steps(steps_to_incremental_alter_configs(image, resources, context, validate_only=validate_only))


def steps_to_incremental_alter_configs(
    image: ClusterImage, resources: Sequence[ResourceChange], context: Context, *, validate_only: bool = False
) -> Steps[list[AlteredResource]]:
    return _decide(image, resources, context, _increment, validate_only=validate_only)


def _decide(
    image: ClusterImage,
    resources: Sequence[ResourceChange],
    context: Context,
    apply: _Apply,
    *,
    validate_only: bool,
) -> Steps[list[AlteredResource]]:
    given = Counter(change.resource for change in resources)
    records: list[MetadataRecord] = []
    results: list[AlteredResource] = []
    for change in resources:
        outcome = OK
        try:
            if given[change.resource] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            records += _alter(image, change, context, apply)
        except ApiError as error:
            outcome = error_outcome(error)
        results.append(AlteredResource(change.resource, outcome))
        yield
    if len(records) > RECORDS_PER_REQUEST_MAX:
        return ControllerResult((), [AlteredResource(change.resource, TOO_LARGE) for change in resources])
    return ControllerResult(() if validate_only else tuple(records), results)


def _alter(image: ClusterImage, change: ResourceChange, context: Context, apply: _Apply) -> list[MetadataRecord]:
    if duplicates(item.name for item in change.changes):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    check = _CHECKS.get(change.resource.type)
    if check is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Configs of resource type {change.resource.type} are not supported.")
    before = image.configs.get(change.resource, {})
    after = apply(before, change)
    check(image, change.resource, after, context)
    kind, name = change.resource
    changed = [key for key in sorted(before.keys() | after.keys()) if before.get(key) != after.get(key)]
    records: list[MetadataRecord] = [ConfigRecord(kind, name, key, after.get(key)) for key in changed]
    if _MIN_ISR in changed and has_elr(image):
        records.append(_forget_eligible_leaders(change.resource))
    return records


def _forget_eligible_leaders(resource: ConfigResource) -> ClearElrRecord:
    """Return the record that empties the ELRs when `min.insync.replicas` changes.

    They were computed with the old number: with a lower one, records were perhaps committed without their members.
    """
    if resource.type == ResourceType.TOPIC:
        return ClearElrRecord(resource.name)
    if resource.name:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{_MIN_ISR} can be set only for topics or for all brokers: leader and controller must agree on it",
        )
    return ClearElrRecord("")


def _replace(before: Mapping[str, str], change: ResourceChange) -> dict[str, str]:
    return {item.name: _value(item) for item in change.changes}


def _increment(before: Mapping[str, str], change: ResourceChange) -> dict[str, str]:
    after = dict(before)
    for item in change.changes:
        if item.operation == ConfigOperation.DELETE:
            after.pop(item.name, None)
        elif item.operation == ConfigOperation.SET:
            after[item.name] = _value(item)
        elif item.operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
            after[item.name] = _changed_list(change.resource, before.get(item.name), item)
        else:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {item.operation}")
    return after


def _changed_list(resource: ConfigResource, before: str | None, item: ConfigChange) -> str:
    """Return the list with items added or removed. A list that is not set has its default value."""
    key = _find_key(resource, item.name)
    if key.type is not ConfigType.LIST:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"Can't change the items of key {key.name} because its type is not LIST."
        )
    text = before if before is not None else format_value(key.default) or ""
    items = [part for part in text.split(",") if part]
    for part in _value(item).split(","):
        if item.operation == ConfigOperation.SUBTRACT:
            items = [other for other in items if other != part]
        elif part not in items:
            items.append(part)
    return ",".join(items)


def _value(item: ConfigChange) -> str:
    if item.value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {item.name}")
    return item.value


def _find_key(resource: ConfigResource, name: str) -> ConfigKey:
    try:
        return find_topic_key(name) if resource.type == ResourceType.TOPIC else find_broker_key(name)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _check_topic(image: ClusterImage, resource: ConfigResource, after: Mapping[str, str], context: Context) -> None:
    if not resource.name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    problem = name_problem(resource.name)
    if problem:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    try:
        validate_topic(after, context.broker(image))
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if resource.name not in image.topics:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist.")


def _check_broker(image: ClusterImage, resource: ConfigResource, after: Mapping[str, str], context: Context) -> None:
    if resource.name:
        _check_broker_name(image, resource.name)
    for name, text in after.items():
        key = _find_key(resource, name)
        if not can_update(name):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: {name}")
        if not resource.name and key.update is Update.PER_BROKER:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} can be set only for a single broker, by its id")
        try:
            parse_value(key, text)
        except ConfigError as error:
            # As in Kafka, the error for a broker's value is INVALID_REQUEST, not INVALID_CONFIG (KAFKA-13609).
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
    _check_topic_defaults(image, resource, after, context)


def _check_broker_name(image: ClusterImage, name: str) -> None:
    if not name.isascii() or not name.isdigit():
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if int(name) not in image.brokers:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {name} found.")


def _check_topic_defaults(
    image: ClusterImage, resource: ConfigResource, after: Mapping[str, str], context: Context
) -> None:
    """Raise ApiError if the topic defaults of the broker would contradict each other after the change."""
    before = context.broker(image)
    layers = BrokerLayers(
        dynamic=after if resource.name else before.dynamic,
        dynamic_default=before.dynamic_default if resource.name else after,
        static=before.static,
    )
    try:
        validate_topic({}, layers)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None


_CHECKS: dict[int, Callable[[ClusterImage, ConfigResource, Mapping[str, str], Context], None]] = {
    ResourceType.TOPIC: _check_topic,
    ResourceType.BROKER: _check_broker,
}
