"""DescribeConfigs (32): configs of topics and brokers, with their sources, synonyms and documentation.

The result for a topic has every topic config in force; that for a broker, named by its id, every broker config; that
for the broker with an empty name, the configs that were set at run time for all brokers. Keys limit the result; null or
none mean all. Passwords have no value. Resources without configs here (loggers, groups) are INVALID_REQUEST; a
client-metrics subscription that does not exist has no configs. The error message is empty, not null, if there is no
error.

Versions: v1 sources and synonyms. v3 types and documentation. v4 flexible.
"""

from rookery.base.codes import ResourceType
from rookery.base.config import ConfigEntry, describe_broker, describe_broker_defaults, describe_topic
from rookery.base.errors import ErrorCode
from rookery.base.topic_names import name_problem
from rookery.broker.context import ClusterContext
from rookery.metadata.requests import OK, Outcome
from rookery.protocol.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(context: ClusterContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    remove_repeated(request)
    return DescribeConfigsResponse(results=[_describe(context, request, each) for each in request.resources])


def remove_repeated(request: DescribeConfigsRequest) -> None:
    """Remove resources that are requested twice with the same keys: a description is large."""
    if len(request.resources) > 1:
        distinct = {_identity(resource): resource for resource in request.resources}
        request.resources = list(distinct.values())


def _identity(resource: DescribeConfigsResource) -> tuple[int, str, tuple[str, ...] | None]:
    keys = resource.configuration_keys
    return resource.resource_type, resource.resource_name, None if keys is None else tuple(keys)


def _describe(
    context: ClusterContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    outcome, entries = _find(context, resource)
    keys = resource.configuration_keys
    return DescribeConfigsResult(
        error_code=outcome.code,
        error_message=outcome.message or "",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_config(entry, request) for entry in entries if not keys or entry.name in keys],
    )


def _find(context: ClusterContext, resource: DescribeConfigsResource) -> tuple[Outcome, list[ConfigEntry]]:
    name = resource.resource_name
    if resource.resource_type == ResourceType.TOPIC:
        return _find_topic(context, name)
    if resource.resource_type == ResourceType.BROKER:
        return _find_broker(context, name)
    if resource.resource_type == ResourceType.CLIENT_METRICS and name:
        return OK, []
    message = f"Configs of resource type {resource.resource_type} are not supported."
    return Outcome(ErrorCode.INVALID_REQUEST, message), []


def _find_topic(context: ClusterContext, name: str) -> tuple[Outcome, list[ConfigEntry]]:
    problem = name_problem(name)
    if problem is not None:
        return Outcome(ErrorCode.INVALID_TOPIC_EXCEPTION, problem), []
    image = context.services.image
    if name not in image.topics:
        return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), []
    return OK, describe_topic(image.topic_config(name), context.services.config())


def _find_broker(context: ClusterContext, name: str) -> tuple[Outcome, list[ConfigEntry]]:
    services = context.services
    if not name:
        return OK, describe_broker_defaults(services.image.broker_default_config())
    if name != str(services.node_id):
        message = f"Unexpected broker id, expected {services.node_id} or empty string, but received {name}"
        return Outcome(ErrorCode.INVALID_REQUEST, message), []
    return OK, describe_broker(services.config())


def _config(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=int(entry.source),
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=int(synonym.source))
            for synonym in entry.synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=int(entry.type),
        documentation=entry.documentation if request.get("include_documentation", False) else None,
    )
