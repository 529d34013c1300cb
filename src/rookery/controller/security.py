"""The requests to the active controller about ACLs, users, quotas and tokens."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from rookery.base.clock import Clock
from rookery.controller.acls import steps_to_create_acls, steps_to_delete_acls
from rookery.controller.decision import Context, ControllerResult, Steps
from rookery.controller.quotas import steps_to_alter_client_quotas
from rookery.controller.scram import steps_to_alter_scram
from rookery.controller.tokens import TokenRules, decide_create_token, steps_to_expire_token, steps_to_renew_token
from rookery.metadata.image import ClusterImage
from rookery.metadata.outcomes import Outcome
from rookery.metadata.security_requests import (
    AlteredQuota,
    AlteredUser,
    CreatedToken,
    DeletedAcls,
    NewToken,
    QuotaAlteration,
    ScramDeletion,
    ScramUpsertion,
    TokenExpiry,
)
from rookery.protocol.principal import Principal
from rookery.security.acl_filters import AclFilter
from rookery.security.acls import AclBinding

ResultT = TypeVar("ResultT")


class Submit(Protocol):
    """`Controller.submit`, as far as it is used here."""

    async def __call__(
        self,
        decide: Callable[[ClusterImage], ControllerResult[ResultT] | Steps[ResultT]],
        failed: Callable[[Outcome], ResultT] | None = None,
    ) -> ResultT: ...


class SecurityController:
    """Implements `metadata.security_requests.SecurityRequests` for the active controller."""

    def __init__(
        self, submit: Submit, *, context: Callable[[], Context], static: Mapping[str, str], clock: Clock
    ) -> None:
        self._submit = submit
        self._context = context
        self._clock = clock
        self._token_rules = TokenRules.of(static)

    async def create_acls(self, acls: Sequence[AclBinding]) -> list[Outcome]:
        return await self._submit(
            lambda image: steps_to_create_acls(image, acls, self._context()),
            lambda outcome: [outcome for _ in acls],
        )

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[DeletedAcls]:
        return await self._submit(
            lambda image: steps_to_delete_acls(image, filters),
            lambda outcome: [DeletedAcls(outcome) for _ in filters],
        )

    async def alter_scram(
        self, deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]
    ) -> list[AlteredUser]:
        users = dict.fromkeys([*(each.user for each in deletions), *(each.user for each in upsertions)])
        return await self._submit(
            lambda image: steps_to_alter_scram(image, deletions, upsertions),
            lambda outcome: [AlteredUser(user, outcome) for user in users],
        )

    async def alter_client_quotas(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
    ) -> list[AlteredQuota]:
        return await self._submit(
            lambda image: steps_to_alter_client_quotas(image, alterations, validate_only=validate_only),
            lambda outcome: [AlteredQuota(alteration.entity, outcome) for alteration in alterations],
        )

    async def create_token(self, request: NewToken) -> CreatedToken:
        return await self._submit(
            lambda image: decide_create_token(request, self._token_rules, self._context(), self._clock.now_ms()),
            CreatedToken,
        )

    async def renew_token(self, requester: Principal, hmac: bytes, period_ms: int) -> TokenExpiry:
        return await self._submit(
            lambda image: steps_to_renew_token(
                image, requester, hmac, period_ms, self._token_rules, self._clock.now_ms()
            ),
            TokenExpiry,
        )

    async def expire_token(self, requester: Principal, hmac: bytes, period_ms: int) -> TokenExpiry:
        return await self._submit(
            lambda image: steps_to_expire_token(
                image, requester, hmac, period_ms, self._token_rules, self._clock.now_ms()
            ),
            TokenExpiry,
        )
