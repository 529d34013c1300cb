"""IncrementalAlterConfigs (44): change single configs of topics or brokers (KIP-339).

Each config is set, deleted (back to its default), or, where it is a list, has items appended or subtracted. A resource
changes as a whole or not at all.

Versions: v0, v1 flexible.
"""

from rookery.broker.context import ClusterContext
from rookery.metadata.image import ConfigResource
from rookery.metadata.requests import AlteredResource, ConfigChange, ResourceChange
from rookery.protocol.messages import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseAlterConfigsResourceResponse,
)


async def handle(context: ClusterContext, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    changes = [
        ResourceChange(
            ConfigResource(resource.resource_type, resource.resource_name),
            tuple(ConfigChange(config.name, config.value, config.config_operation) for config in resource.configs),
        )
        for resource in request.resources
    ]
    altered = await context.services.controller.incremental_alter_configs(changes, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(responses=[_answer(resource) for resource in altered])


def _answer(altered: AlteredResource) -> IncrementalAlterConfigsResponseAlterConfigsResourceResponse:
    return IncrementalAlterConfigsResponseAlterConfigsResourceResponse(
        error_code=altered.outcome.code,
        error_message=altered.outcome.message,
        resource_type=altered.resource.type,
        resource_name=altered.resource.name,
    )
