"""BrokerHeartbeat (63): a registered broker is alive, and what it wants: to serve, to be fenced, to stop (KIP-631).

The loss of the connection that heartbeats arrive on is reported to the controller: it need not wait for the end of the
lease to see whether the broker is gone.

Versions: v1 ids of log directories that have failed (KIP-858). v2 those of cordoned directories, which get no new
partitions (KIP-1066).
"""

from functools import partial

from rookery.base.errors import ErrorCode
from rookery.broker.context import ClusterContext
from rookery.metadata.requests import BrokerHeartbeat
from rookery.protocol.messages import BrokerHeartbeatRequest, BrokerHeartbeatResponse


async def handle(context: ClusterContext, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
    cordoned = request.get("cordoned_log_dirs")
    reply = await context.services.controller.heartbeat(
        BrokerHeartbeat(
            node_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            metadata_offset=request.current_metadata_offset,
            wants_fence=request.want_fence,
            wants_shut_down=request.want_shut_down,
            offline_directories=tuple(request.get("offline_log_dirs", ())),
            cordoned_directories=None if cordoned is None else tuple(cordoned),
        )
    )
    if context.connection.on_lost is None and reply.outcome.code is ErrorCode.NONE:
        context.connection.on_lost = partial(context.services.controller.connection_lost, request.broker_id)
    return BrokerHeartbeatResponse(
        error_code=reply.outcome.code,
        is_caught_up=reply.is_caught_up,
        is_fenced=reply.is_fenced,
        should_shut_down=reply.should_shut_down,
    )
