"""IncrementalAlterConfigs (44): change single configs of topics or brokers (KIP-339).

Each config is set, deleted (back to its default), or, where it is a list, has items appended or subtracted. A resource
changes as a whole or not at all.

Versions: v0, v1 flexible.
"""

from rookery.broker.context import RequestContext
from rookery.broker.handlers.k33_alter_configs import answer_altered
from rookery.controller.configs import ConfigChange, ResourceChange
from rookery.metadata.image import ConfigResource
from rookery.protocol.message import Message


async def handle(context: RequestContext, request: Message) -> Message:
    changes = [
        ResourceChange(
            ConfigResource(resource.resource_type, resource.resource_name),
            tuple(ConfigChange(config.name, config.value, config.config_operation) for config in resource.configs),
        )
        for resource in request.resources
    ]
    altered = await context.services.controller.incremental_alter_configs(changes, validate_only=request.validate_only)
    return Message(throttle_time_ms=0, responses=[answer_altered(resource) for resource in altered])
