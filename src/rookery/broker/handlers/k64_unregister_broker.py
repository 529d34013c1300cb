"""UnregisterBroker (64): remove the registration of a broker that will not return (KIP-631).

Versions: v0.
"""

from rookery.broker.context import ClusterContext
from rookery.protocol.messages import UnregisterBrokerRequest, UnregisterBrokerResponse


async def handle(context: ClusterContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    code, message = await context.services.controller.unregister_broker(request.broker_id)
    return UnregisterBrokerResponse(error_code=code, error_message=message)
