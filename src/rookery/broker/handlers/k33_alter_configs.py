"""AlterConfigs (33): replace all configs of topics or brokers by the given ones.

The older API: a config that is not given gets its default. A resource changes as a whole or not at all.

Versions: v0 and v1 are the same, v2 flexible.
"""

from rookery.broker.context import ClusterContext
from rookery.metadata.image import ConfigResource
from rookery.metadata.requests import AlteredResource, ConfigChange, ResourceChange
from rookery.protocol.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterConfigsResponseAlterConfigsResourceResponse,
)


async def handle(context: ClusterContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    changes = [
        ResourceChange(
            ConfigResource(resource.resource_type, resource.resource_name),
            tuple(ConfigChange(config.name, config.value) for config in resource.configs),
        )
        for resource in request.resources
    ]
    altered = await context.services.controller.alter_configs(changes, validate_only=request.validate_only)
    return AlterConfigsResponse(responses=[_answer(resource) for resource in altered])


def _answer(altered: AlteredResource) -> AlterConfigsResponseAlterConfigsResourceResponse:
    return AlterConfigsResponseAlterConfigsResourceResponse(
        error_code=altered.outcome.code,
        error_message=altered.outcome.message,
        resource_type=altered.resource.type,
        resource_name=altered.resource.name,
    )
