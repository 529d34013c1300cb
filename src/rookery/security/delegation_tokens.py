"""Delegation tokens: credentials that a user requests for jobs, which log in with SCRAM as the token's owner. Pure.

The user name of such a login is the token's id, and the password is its HMAC, in base64. The HMAC is computed with
`delegation.token.secret.key`, which all nodes of a cluster share, so that the metadata log holds no secret of a token.
"""

import base64
import hmac

from rookery.base.values import value_class
from rookery.protocol.principal import Principal


@value_class(kw_only=True)
class DelegationToken:
    """A token. Times are in ms since 1970: it ends at `expiry_ms`, and may be renewed up to `max_ms`."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expiry_ms < now_ms

    def may_be_renewed_by(self, principal: Principal) -> bool:
        """Return whether a principal may renew the token, end it, and see it. Only type and name count."""
        return any((each.type, each.name) == (principal.type, principal.name) for each in (self.owner, *self.renewers))


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """Return the HMAC of a token: the owner's proof, and the key by which the APIs name a token."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def token_password(secret_key: str, token_id: str) -> str:
    """Return the password of a login with the token."""
    return base64.b64encode(token_hmac(secret_key, token_id)).decode()
