"""Requests to the active controller about ACLs, users, quotas and tokens, and their results, as plain values."""

from collections.abc import Sequence
from dataclasses import field
from typing import NamedTuple, Protocol

from rookery.base.values import value_class
from rookery.metadata.outcomes import Outcome
from rookery.protocol.principal import Principal
from rookery.security.acl_filters import AclFilter
from rookery.security.acls import AclBinding
from rookery.security.delegation_tokens import DelegationToken


class DeletedAcls(NamedTuple):
    """The entries that one filter has matched, and that no longer exist."""

    outcome: Outcome
    acls: Sequence[AclBinding] = ()


class ScramDeletion(NamedTuple):
    """`mechanism` is the number from the request: it may not be a valid ScramMechanism."""

    user: str
    mechanism: int


@value_class(kw_only=True)
class ScramUpsertion:
    """A new credential of a user. The client hashes the password: the cluster never sees it."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


class AlteredUser(NamedTuple):
    user: str
    outcome: Outcome


class QuotaChange(NamedTuple):
    """A value of None removes the quota."""

    key: str
    value: float | None


@value_class
class QuotaAlteration:
    """The changes to one entity: types and names as in the request, where a name of None is the default."""

    entity: tuple[tuple[str, str | None], ...]
    changes: tuple[QuotaChange, ...]


class AlteredQuota(NamedTuple):
    entity: tuple[tuple[str, str | None], ...]
    outcome: Outcome


@value_class(kw_only=True)
class NewToken:
    """A request for a delegation token. `max_lifetime_ms` of 0 or less stands for the longest possible."""

    requester: Principal
    owner: Principal
    renewers: tuple[Principal, ...] = ()
    max_lifetime_ms: int = -1


@value_class
class CreatedToken:
    outcome: Outcome
    token: DelegationToken | None = None
    hmac: bytes = field(repr=False, default=b"")


class TokenExpiry(NamedTuple):
    """When a token ends now, in ms since 1970; -1 with an error."""

    outcome: Outcome
    expiry_ms: int = -1


class SecurityRequests(Protocol):
    """The part of `metadata.requests.ControllerRequests` that is about security, with the same promises."""

    async def create_acls(self, acls: Sequence[AclBinding]) -> list[Outcome]:
        """Create entries; those that exist stay as they are, which is success."""
        ...

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[DeletedAcls]: ...

    async def alter_scram(
        self, deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]
    ) -> list[AlteredUser]: ...

    async def alter_client_quotas(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
    ) -> list[AlteredQuota]: ...

    async def create_token(self, request: NewToken) -> CreatedToken: ...

    async def renew_token(self, requester: Principal, hmac: bytes, period_ms: int) -> TokenExpiry:
        """Move the end of the token with this HMAC; `period_ms` of 0 or less stands for the longest possible."""
        ...

    async def expire_token(self, requester: Principal, hmac: bytes, period_ms: int) -> TokenExpiry:
        """End the token with this HMAC after `period_ms`, or at once if that is negative."""
        ...
