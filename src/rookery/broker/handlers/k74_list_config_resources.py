"""ListConfigResources (74): the names of the resources that have a configuration.

Topics and brokers are listed as they exist; groups and client-metrics subscriptions if a config was set for them.

Versions: v0 (once ListClientMetricsResources) lists client-metrics subscriptions only. v1 takes resource types, none
meaning all; a type that cannot be listed is UNSUPPORTED_VERSION.
"""

from collections.abc import Iterable
from typing import Final

from rookery.base.codes import ResourceType
from rookery.base.errors import ErrorCode
from rookery.broker.context import RequestContext
from rookery.protocol.messages import ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse

_TYPES: Final = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


def handle(context: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    if context.api_version == 0:
        wanted: Iterable[int] = (ResourceType.CLIENT_METRICS,)
    else:
        wanted = dict.fromkeys(request.get("resource_types", ())) or _TYPES
    if any(resource_type not in _TYPES for resource_type in wanted):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    return ListConfigResourcesResponse(
        error_code=ErrorCode.NONE,
        config_resources=[
            ConfigResource(resource_name=name, resource_type=int(resource_type))
            for resource_type in wanted
            for name in _names(context, resource_type)
        ],
    )


def _names(context: RequestContext, resource_type: int) -> list[str]:
    image = context.services.image
    if resource_type == ResourceType.TOPIC:
        return sorted(image.topics)
    if resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(node_id) for node_id in sorted(image.brokers)]
    return sorted(resource.name for resource in image.configs if resource.type == resource_type)
