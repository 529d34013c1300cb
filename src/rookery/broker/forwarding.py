"""Forwards clients' requests to the active controller, if that is not this node (KIP-590).

A forwarded request is sent in an Envelope over the controller link, which looks for the active controller until it gets
a response. The response has the client's own correlation id, because the envelope contains the client's header. The
client gets REQUEST_TIMED_OUT if no active controller responds in time, and UNKNOWN_SERVER_ERROR if the controller
rejects the envelope. If the controller does not serve the version of the request, the client's connection is closed:
it then requests the API versions again.
"""

from collections.abc import Callable
from ipaddress import ip_address

from rookery.base.errors import ApiError, ErrorCode, UnsupportedVersionError
from rookery.base.types import NodeId
from rookery.broker.context import ClusterContext
from rookery.metadata.controller_link import ControllerLink
from rookery.net.send import Reply
from rookery.protocol.api import ApiKey
from rookery.protocol.codec import decode_request, encode_response
from rookery.protocol.error_responses import error_response
from rookery.protocol.framing import SIZE_BYTES, parse_request_header
from rookery.protocol.messages import EnvelopeRequest
from rookery.protocol.principal import encode_principal

_CORRELATION_BYTES = 4
_UNKNOWN_ADDRESS = bytes(4)


class Forwarder:
    """Implements `context.Forwarding`. `leader` returns the active controller, None while there is none."""

    def __init__(
        self,
        link: ControllerLink,
        *,
        node_id: NodeId,
        leader: Callable[[], NodeId | None],
        timeout_s: Callable[[], float],
    ) -> None:
        self._link = link
        self._node_id = node_id
        self._leader = leader
        self._timeout_s = timeout_s

    @property
    def is_needed(self) -> bool:
        return self._leader() != self._node_id

    async def forward(self, context: ClusterContext, frame: bytes) -> Reply:
        envelope = EnvelopeRequest(
            request_data=frame,
            request_principal=encode_principal(context.connection.principal),
            client_host_address=_address(context.connection.peer_host),
        )
        try:
            response = await self._link.send(ApiKey.ENVELOPE, envelope, timeout_s=self._timeout_s())
        except ApiError as error:
            return _fail(context, frame, error.code, error.message)
        code, data = ErrorCode(response.error_code), response.response_data
        if code is ErrorCode.UNSUPPORTED_VERSION:
            raise UnsupportedVersionError(
                f"the active controller does not serve API key {context.api_key} version {context.api_version}"
            )
        if code is not ErrorCode.NONE or data is None or not _is_answer(context, data):
            return _fail(context, frame, ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller did not respond: {code.name}")
        return [len(data).to_bytes(SIZE_BYTES, "big"), data]


def _is_answer(context: ClusterContext, data: bytes) -> bool:
    return int.from_bytes(data[:_CORRELATION_BYTES], "big", signed=True) == context.correlation_id


def _address(host: str) -> bytes:
    try:
        return ip_address(host.partition("%")[0]).packed
    except ValueError:
        return _UNKNOWN_ADDRESS


def _fail(context: ClusterContext, frame: bytes, code: ErrorCode, message: str | None) -> Reply:
    """Return the error response to a client's request. Raises ProtocolError if the request is malformed."""
    _, position = parse_request_header(frame)
    request = decode_request(context.api_key, context.api_version, frame, position)
    response = error_response(context.api_key, context.api_version, request, code, message)
    assert response is not None, "responses of all forwarded APIs can have errors"
    return context.reply([encode_response(context.api_key, context.api_version, response)])
