"""Which clients may request anything about delegation tokens."""

from rookery.broker.context import ClusterContext
from rookery.protocol.principal import ANONYMOUS


def may_use_tokens(context: ClusterContext) -> bool:
    """Return whether the client has logged in by itself.

    A token of the anonymous user would be a login for everyone. A client that logged in with a token must not get
    another one: it could outlive the end of its own by renewing its successors for ever.
    """
    principal = context.connection.principal
    return not principal.token_authenticated and principal != ANONYMOUS
