"""DescribeCluster (60): the cluster's id, its brokers and its controller.

Versions: v1 the type of the requested endpoints: 1 brokers, 2 controllers. Controllers are MISMATCHED_ENDPOINT_TYPE on
a broker's listener, anything else UNSUPPORTED_ENDPOINT_TYPE (in v0, which has no such field, INVALID_REQUEST). v2 also
fenced brokers, if requested.
"""

from rookery.base.codes import AclResourceType
from rookery.base.errors import ErrorCode
from rookery.broker.access import authorized_operations
from rookery.broker.context import RequestContext
from rookery.metadata.image import BrokerImage
from rookery.protocol.messages import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

_BROKERS = 1
_CONTROLLERS = 2


def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    endpoint_type = request.get("endpoint_type", _BROKERS)
    if endpoint_type == _CONTROLLERS:
        return _refuse(context, ErrorCode.MISMATCHED_ENDPOINT_TYPE, "This endpoint is a broker's, not a controller's.")
    if endpoint_type != _BROKERS:
        return _refuse(context, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}")
    services = context.services
    with_fenced = request.get("include_fenced_brokers", False)
    brokers = [
        described
        for _, broker in sorted(services.image.brokers.items())
        if (described := _describe(broker, context.listener)) is not None and (with_fenced or not broker.fenced)
    ]
    nodes = [broker.broker_id for broker in brokers if not broker.get("is_fenced")]
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        endpoint_type=_BROKERS,
        cluster_id=services.cluster_id,
        controller_id=services.node_id if services.node_id in nodes else min(nodes, default=-1),
        brokers=brokers,
        cluster_authorized_operations=authorized_operations(
            AclResourceType.CLUSTER, requested=request.include_cluster_authorized_operations
        ),
    )


def _describe(broker: BrokerImage, listener: str) -> DescribeClusterBroker | None:
    for endpoint in broker.endpoints:
        if endpoint.name == listener:
            return DescribeClusterBroker(
                broker_id=broker.broker_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
    return None


def _refuse(context: RequestContext, code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        error_code=code,
        error_message=message,
        cluster_id=context.services.cluster_id,
        brokers=[],
    )
