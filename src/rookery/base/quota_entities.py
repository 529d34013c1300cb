"""The entities that a client quota applies to: a user, a client id, both, or an address; each by name or as default."""

from collections.abc import Iterable
from enum import Enum
from typing import Final, TypeAlias

from rookery.base.values import value_class


class DefaultName(Enum):
    """Stands for all names of an entity type that have no quota of their own."""

    DEFAULT = "<default>"


DEFAULT: Final = DefaultName.DEFAULT
QuotaName: TypeAlias = str | DefaultName

# The entity types as the protocol and the metadata log name them.
USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)


@value_class(kw_only=True)
class QuotaEntity:
    """What a quota is set for. A part that is None is no part of the entity; `DEFAULT` is the default of its type.

    Kafka allows `user`, `client_id` or both, or `ip` alone.
    """

    user: QuotaName | None = None
    client_id: QuotaName | None = None
    ip: QuotaName | None = None

    def __str__(self) -> str:
        return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in self.parts())

    def parts(self) -> tuple[tuple[str, str | None], ...]:
        """Return the type and name of each part, as protocol and log have them: a name of None is the default."""
        names = zip(ENTITY_TYPES, (self.user, self.client_id, self.ip), strict=True)
        return tuple((kind, None if name is DEFAULT else str(name)) for kind, name in names if name is not None)

    @classmethod
    def of_parts(cls, parts: Iterable[tuple[str, str | None]]) -> "QuotaEntity":
        """Build an entity from what `parts` returns, in any order. Raises ValueError for an unknown or doubled type."""
        names: dict[str, QuotaName] = {}
        for kind, name in parts:
            if kind not in ENTITY_TYPES or kind in names:
                raise ValueError(f"a quota entity has {'two parts of' if kind in names else 'no'} type {kind!r}")
            names[kind] = DEFAULT if name is None else name
        return cls(user=names.get(USER), client_id=names.get(CLIENT_ID), ip=names.get(IP))
