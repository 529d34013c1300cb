"""SaslHandshake (17): choose a SASL mechanism (KIP-43).

Logins are handled before requests reach the handlers (`net.login`). Here arrive only those that are not expected: on a
listener without SASL, after a login without an end, or too early for its repetition.

Versions: v0, after which the messages of the mechanism follow without headers; v1.
"""

from rookery.base.errors import ErrorCode
from rookery.broker.context import ClusterContext
from rookery.protocol.messages import SaslHandshakeRequest, SaslHandshakeResponse


def handle(context: ClusterContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
