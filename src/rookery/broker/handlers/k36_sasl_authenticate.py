"""SaslAuthenticate (36): a message of a SASL mechanism (KIP-152).

Logins are handled before requests reach the handlers (`net.login`). Here arrive only those without a SaslHandshake.

Versions: v0; v1 has the lifetime of the session (KIP-368); v2 is flexible.
"""

from rookery.base.errors import ErrorCode
from rookery.broker.context import ClusterContext
from rookery.protocol.messages import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(context: ClusterContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )
