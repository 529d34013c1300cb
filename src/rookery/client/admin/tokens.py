"""Creates, renews, ends and describes delegation tokens (KIP-48)."""

from collections.abc import Iterable
from dataclasses import field
from functools import partial

from rookery.base.values import value_class
from rookery.client.admin.base import AdminPart, as_list
from rookery.client.admin.outcomes import check
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from rookery.protocol.principal import Principal
from rookery.security.delegation_tokens import DelegationToken

_OWNER_SINCE = 3


@value_class
class IssuedToken:
    """A token and its HMAC. A client logs in with the token's id as its name, and the HMAC in base64 as password."""

    token: DelegationToken
    hmac: bytes = field(repr=False)


class TokenAdmin(AdminPart):
    async def create_delegation_token(
        self, *, owner: Principal | None = None, renewers: Iterable[Principal] = (), max_lifetime_ms: int = -1
    ) -> IssuedToken:
        """Create a token for `owner` (None: the client itself). Raises ApiError.

        Owner and `renewers` may renew and end it. `max_lifetime_ms` of 0 or less: as long as the broker allows. If the
        first response is lost, the retry creates a second token.
        """
        chosen = tuple(as_list(renewers, "renewers"))
        return await self._retry(partial(self._create_delegation_token, owner, chosen, max_lifetime_ms))

    async def _create_delegation_token(
        self, owner: Principal | None, renewers: tuple[Principal, ...], max_lifetime_ms: int
    ) -> IssuedToken:
        if owner is not None:
            await self._require(ApiKey.CREATE_DELEGATION_TOKEN, _OWNER_SINCE, "creates no tokens for other owners")
        request = CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else owner.type,
            owner_principal_name=None if owner is None else owner.name,
            renewers=[CreatableRenewers(principal_type=each.type, principal_name=each.name) for each in renewers],
            max_lifetime_ms=max_lifetime_ms,
        )
        response = await self._cluster.call_controller(ApiKey.CREATE_DELEGATION_TOKEN, request)
        check(response.error_code, "the token was not created")
        return _created(response, renewers)

    async def renew_delegation_token(self, hmac: bytes, *, period_ms: int = -1) -> int:
        """Move the end of a token to `period_ms` from now (0 or less: as far as possible). Raises ApiError.

        Returns the new end in ms since 1970.
        """
        return await self._retry(partial(self._renew_delegation_token, hmac, period_ms))

    async def _renew_delegation_token(self, hmac: bytes, period_ms: int) -> int:
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        response = await self._cluster.call_controller(ApiKey.RENEW_DELEGATION_TOKEN, request)
        check(response.error_code, "the token was not renewed")
        return response.expiry_timestamp_ms

    async def expire_delegation_token(self, hmac: bytes, *, period_ms: int = -1) -> int:
        """End a token `period_ms` from now, or at once if that is negative. Raises ApiError.

        Returns its end in ms since 1970. If the first response is lost, the retry may raise DELEGATION_TOKEN_NOT_FOUND.
        """
        return await self._retry(partial(self._expire_delegation_token, hmac, period_ms))

    async def _expire_delegation_token(self, hmac: bytes, period_ms: int) -> int:
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        response = await self._cluster.call_controller(ApiKey.EXPIRE_DELEGATION_TOKEN, request)
        check(response.error_code, "the token was not ended")
        return response.expiry_timestamp_ms

    async def describe_delegation_tokens(self, owners: Iterable[Principal] | None = None) -> list[IssuedToken]:
        """Return the tokens that the client may see, of `owners` (None: of all), sorted by id. Raises ApiError."""
        wanted = None if owners is None else as_list(owners, "owners")
        return await self._retry(partial(self._describe_delegation_tokens, wanted))

    async def _describe_delegation_tokens(self, owners: list[Principal] | None) -> list[IssuedToken]:
        request = DescribeDelegationTokenRequest(
            owners=None
            if owners is None
            else [DescribeDelegationTokenOwner(principal_type=each.type, principal_name=each.name) for each in owners]
        )
        response = await self._call(ApiKey.DESCRIBE_DELEGATION_TOKEN, request)
        check(response.error_code, "delegation tokens")
        return sorted(map(_described, response.tokens), key=lambda issued: issued.token.token_id)


def _created(row: CreateDelegationTokenResponse, renewers: tuple[Principal, ...]) -> IssuedToken:
    owner = Principal(row.principal_type, row.principal_name)
    token = DelegationToken(
        token_id=row.token_id,
        owner=owner,
        requester=Principal(
            row.get("token_requester_principal_type", owner.type), row.get("token_requester_principal_name", owner.name)
        ),
        renewers=renewers,
        issue_ms=row.issue_timestamp_ms,
        max_ms=row.max_timestamp_ms,
        expiry_ms=row.expiry_timestamp_ms,
    )
    return IssuedToken(token, row.hmac)


def _described(row: DescribedDelegationToken) -> IssuedToken:
    owner = Principal(row.principal_type, row.principal_name)
    token = DelegationToken(
        token_id=row.token_id,
        owner=owner,
        requester=Principal(
            row.get("token_requester_principal_type", owner.type), row.get("token_requester_principal_name", owner.name)
        ),
        renewers=tuple(Principal(each.principal_type, each.principal_name) for each in row.renewers),
        issue_ms=row.issue_timestamp,
        max_ms=row.max_timestamp,
        expiry_ms=row.expiry_timestamp,
    )
    return IssuedToken(token, row.hmac)
