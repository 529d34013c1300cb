"""BrokerRegistration (62): a broker that starts registers with the controller and gets its epoch (KIP-631).

The response has an error code only; the controller logs the reason of a rejection.

Versions: v1 was for the migration from ZooKeeper. v2 ids of the log directories (KIP-858). v3 the epoch at the last
clean shutdown (KIP-966). v4 features whose lowest version is 0.
"""

from rookery.base.types import NO_BROKER_EPOCH
from rookery.broker.context import ClusterContext
from rookery.metadata.records import BrokerEndpoint, BrokerFeature
from rookery.metadata.requests import Registration
from rookery.protocol.messages import BrokerRegistrationRequest, BrokerRegistrationResponse


async def handle(context: ClusterContext, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
    registered = await context.services.controller.register_broker(
        Registration(
            node_id=request.broker_id,
            cluster_id=request.cluster_id,
            incarnation_id=request.incarnation_id,
            endpoints=tuple(
                BrokerEndpoint(each.name, each.host, each.port, each.security_protocol) for each in request.listeners
            ),
            features=tuple(
                BrokerFeature(each.name, each.min_supported_version, each.max_supported_version)
                for each in request.features
            ),
            rack=request.rack,
            log_directories=tuple(request.get("log_dirs", ())),
            previous_broker_epoch=request.get("previous_broker_epoch", NO_BROKER_EPOCH),
        )
    )
    return BrokerRegistrationResponse(error_code=registered.outcome.code, broker_epoch=registered.broker_epoch)
