"""The credentials of SCRAM users and delegation tokens, as the cluster image has them."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from rookery.base.clock import Clock
from rookery.metadata.image import ClusterImage
from rookery.security.delegation_tokens import token_password
from rookery.security.sasl_server.scram import TokenCredential
from rookery.security.scram_credentials import MIN_ITERATIONS, ScramCredential, ScramMechanism, derive_credential

# How many credentials of tokens are kept: deriving one takes milliseconds.
_KEPT_MAX: Final = 1000


class ImageCredentials:
    """Implements `security.sasl_server.scram.CredentialSource`.

    `secret_key` is `delegation.token.secret.key`, None if the cluster has no tokens; `salt` is a random one of this
    node.
    """

    def __init__(self, image: Callable[[], ClusterImage], clock: Clock, *, secret_key: str | None, salt: bytes) -> None:
        self._image = image
        self._clock = clock
        self._secret_key = secret_key
        self._salt = salt
        self._kept: OrderedDict[tuple[str, ScramMechanism], ScramCredential] = OrderedDict()

    def user(self, name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return self._image().scram.get((name, mechanism))

    def token(self, token_id: str, mechanism: ScramMechanism) -> TokenCredential | None:
        token = self._image().tokens.get(token_id)
        if token is None or self._secret_key is None or token.is_expired(self._clock.now_ms()):
            return None
        return TokenCredential(
            credential=self._credential(token_password(self._secret_key, token_id), token_id, mechanism),
            owner=token.owner,
            expires_ms=token.expiry_ms,
        )

    def _credential(self, password: str, token_id: str, mechanism: ScramMechanism) -> ScramCredential:
        key = (token_id, mechanism)
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = derive_credential(mechanism, password, self._salt, MIN_ITERATIONS)
            if len(self._kept) > _KEPT_MAX:
                self._kept.popitem(last=False)
        return found
