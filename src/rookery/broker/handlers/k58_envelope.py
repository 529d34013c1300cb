"""Envelope (58): a client's request that a broker forwards to the active controller (KIP-590).

The envelope has the bytes of the request with its header, the client's principal and address; the response has the
bytes of the response to the client, with the header. The errors of the envelope are for the broker: NOT_CONTROLLER if
another node is the active controller, UNSUPPORTED_VERSION if this node does not serve the version of the request or
cannot decode it, PRINCIPAL_DESERIALIZATION_FAILURE, and INVALID_REQUEST for an API that is not forwarded or an address
that is none.

Versions: v0.
"""

from ipaddress import ip_address

from rookery.base.errors import ApiError, ErrorCode, ProtocolError
from rookery.base.files import FileSlice
from rookery.broker.context import ClusterContext
from rookery.net.connection import ConnectionInfo, Handler
from rookery.net.send import Reply
from rookery.protocol.framing import SIZE_BYTES
from rookery.protocol.messages import EnvelopeRequest, EnvelopeResponse
from rookery.protocol.principal import decode_principal


async def handle(dispatch: Handler, context: ClusterContext, request: EnvelopeRequest) -> EnvelopeResponse:
    """Pass the request in the envelope to `dispatch`, which handles frames of forwarded requests."""
    try:
        principal = decode_principal(request.request_principal or b"")
    except ProtocolError:
        return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    try:
        host = str(ip_address(bytes(request.client_host_address)))
    except ValueError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        connection = ConnectionInfo(host, 0, context.listener, is_forwarded=True, principal=principal)
        result = dispatch(memoryview(request.request_data), connection)
        reply = result if result is None or isinstance(result, list) else await result
    except ApiError as error:
        return EnvelopeResponse(error_code=error.code)
    except ProtocolError:
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    assert reply is not None, "every forwarded request has a response"
    return EnvelopeResponse(error_code=ErrorCode.NONE, response_data=_join(reply)[SIZE_BYTES:])


def _join(reply: Reply) -> bytes:
    parts = [part for part in reply if not isinstance(part, FileSlice)]
    assert len(parts) == len(reply), "no forwarded request reads records"
    return b"".join(parts)
