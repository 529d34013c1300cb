"""ControllerRegistration (70): a controller that starts reports its endpoints and features (KIP-919).

Versions: v0.
"""

from rookery.broker.context import ClusterContext
from rookery.metadata.records import BrokerEndpoint, BrokerFeature
from rookery.metadata.requests import ControllerRegistration
from rookery.protocol.messages import ControllerRegistrationRequest, ControllerRegistrationResponse


async def handle(context: ClusterContext, request: ControllerRegistrationRequest) -> ControllerRegistrationResponse:
    code, message = await context.services.controller.register_controller(
        ControllerRegistration(
            node_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            endpoints=tuple(
                BrokerEndpoint(each.name, each.host, each.port, each.security_protocol) for each in request.listeners
            ),
            features=tuple(
                BrokerFeature(each.name, each.min_supported_version, each.max_supported_version)
                for each in request.features
            ),
        )
    )
    return ControllerRegistrationResponse(error_code=code, error_message=message)
