"""The users of SCRAM that an embedded broker or cluster is formatted with."""

import secrets
from collections.abc import Mapping

from rookery.metadata.image.scram import ScramKey
from rookery.security.scram_credentials import MIN_ITERATIONS, ScramCredential, ScramMechanism, derive_credential

_SALT_BYTES = 18


def scram_credentials(users: Mapping[str, str]) -> dict[ScramKey, ScramCredential]:
    """Return the credentials of users, by their passwords, for all mechanisms of SCRAM."""
    return {
        (user, mechanism): derive_credential(mechanism, password, secrets.token_bytes(_SALT_BYTES), MIN_ITERATIONS)
        for user, password in users.items()
        for mechanism in ScramMechanism
    }
