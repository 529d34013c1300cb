"""The limits of one kind of client quota: which of them applies to a client, and which clients share it.

The first limit that exists applies:

    limit of                        shared by
    user and client id              the connections of this user with this client id
    user, default client id         the same
    user                            all connections of the user
    default user, client id         the connections of this user with this client id
    default user, default client id the same
    default user                    all connections of the user
    client id                       all users with this client id
    default client id               the same
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from rookery.base.quota_entities import DEFAULT, QuotaEntity, QuotaName

# The user and the client id that share a bucket; None: those of any user, or any client id.
BucketKey: TypeAlias = tuple[str | None, str | None]
# The hash of a member of an enumeration is computed in Python: this object stands for it.
_ANY = object()


class Limit(NamedTuple):
    key: BucketKey
    value: float


class Limits:
    """The limits of one kind of quota, for users and client ids."""

    def __init__(self, limits: Mapping[QuotaEntity, float]) -> None:
        self._values: dict[tuple[object, object], float] = {
            (_part(entity.user), _part(entity.client_id)): value
            for entity, value in limits.items()
            if entity.ip is None
        }

    def __bool__(self) -> bool:
        return bool(self._values)

    def find(self, user: str, client_id: str) -> Limit | None:
        """Return the limit that applies to a client, None if there is none."""
        values = self._values
        for some_user in (user, _ANY):
            for some_client in (client_id, _ANY):
                value = values.get((some_user, some_client))
                if value is not None:
                    return Limit((user, client_id), value)
            value = values.get((some_user, None))
            if value is not None:
                return Limit((user, None), value)
        for some_client in (client_id, _ANY):
            value = values.get((None, some_client))
            if value is not None:
                return Limit((None, client_id), value)
        return None


def _part(name: QuotaName | None) -> object:
    return _ANY if name is DEFAULT else name
