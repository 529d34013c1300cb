"""DescribeCluster (60): the cluster's id, its brokers and its controller.

A broker describes brokers, a controller controllers: those that have registered, and the voters of the quorum that have
not. A broker's `controller_id` is that of a live broker, as in Metadata; a controller's is the active controller.

Versions: v1 the type of the requested endpoints: 1 brokers, 2 controllers. The other type than the listener's is
MISMATCHED_ENDPOINT_TYPE, anything else UNSUPPORTED_ENDPOINT_TYPE (in v0, which has no such field, a controller responds
with INVALID_REQUEST). v2 also fenced brokers, if requested.
"""

from rookery.base.errors import ErrorCode
from rookery.broker.context import ClusterContext, RequestContext
from rookery.broker.visibility import cluster_operations
from rookery.metadata.image import BrokerImage
from rookery.protocol.messages import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from rookery.quorum.voters import Endpoint

_BROKERS = 1
_CONTROLLERS = 2
_NAMES = {_BROKERS: "BROKER", _CONTROLLERS: "CONTROLLER"}


def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    refusal = _check_type(context, request, _BROKERS)
    if refusal is not None:
        return refusal
    services = context.services
    with_fenced = request.get("include_fenced_brokers", False)
    brokers = [
        described
        for _, broker in sorted(services.image.brokers.items())
        if (described := _describe(broker, context.listener)) is not None and (with_fenced or not broker.fenced)
    ]
    live = [broker.broker_id for broker in brokers if not broker.get("is_fenced")]
    return _respond(context, request, brokers, controller_id=services.controller_id(live))


def handle_on_controller(context: ClusterContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    refusal = _check_type(context, request, _CONTROLLERS)
    if refusal is not None:
        return refusal
    leader = context.services.quorum.leader_id
    return _respond(context, request, _controllers(context), controller_id=-1 if leader is None else leader)


def _check_type(
    context: ClusterContext, request: DescribeClusterRequest, expected: int
) -> DescribeClusterResponse | None:
    requested = request.get("endpoint_type", _BROKERS)
    if requested == expected:
        return None
    if requested not in _NAMES:
        return _refuse(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {requested}")
    code = ErrorCode.INVALID_REQUEST if context.api_version == 0 else ErrorCode.MISMATCHED_ENDPOINT_TYPE
    types = f"{_NAMES[expected]}, but we wanted an endpoint of type {_NAMES[requested]}"
    return _refuse(code, f"The request was sent to an endpoint of type {types}")


def _respond(
    context: ClusterContext, request: DescribeClusterRequest, nodes: list[DescribeClusterBroker], *, controller_id: int
) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        endpoint_type=request.get("endpoint_type", _BROKERS),
        cluster_id=context.services.cluster_id,
        controller_id=controller_id,
        brokers=nodes,
        cluster_authorized_operations=cluster_operations(
            context, requested=request.include_cluster_authorized_operations
        ),
    )


def _controllers(context: ClusterContext) -> list[DescribeClusterBroker]:
    # A static voter has one endpoint, whose listener may have another name on that node.
    found = {
        voter.key.node_id: voter.endpoints.get(context.listener) or next(iter(voter.endpoints.values()), None)
        for voter in context.services.quorum.voters
    }
    for node_id, controller in context.services.image.controllers.items():
        endpoints = (each for each in controller.endpoints if each.name == context.listener)
        endpoint = next((Endpoint(each.host, each.port) for each in endpoints), None)
        found[node_id] = endpoint or found.get(node_id)
    return [
        DescribeClusterBroker(broker_id=node_id, host=endpoint.host, port=endpoint.port, rack=None, is_fenced=False)
        for node_id, endpoint in sorted(found.items())
        if endpoint is not None
    ]


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


def _refuse(code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=message, cluster_id="", brokers=[])
