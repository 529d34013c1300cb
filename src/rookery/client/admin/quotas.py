"""Describes and alters client quotas (KIP-546)."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.quota_entities import DEFAULT, QuotaEntity, QuotaName
from rookery.client.admin.base import AdminPart
from rookery.client.admin.outcomes import Outcome, check
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    OpData,
)

_EXACT: Final = 0
_DEFAULT: Final = 1
_SPECIFIED: Final = 2
_EVERY_ENTITY: Final[Mapping[str, QuotaName | None]] = MappingProxyType({})


class QuotaAdmin(AdminPart):
    async def describe_client_quotas(
        self, parts: Mapping[str, QuotaName | None] = _EVERY_ENTITY, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas by entity. Raises ApiError.

        `parts` selects entities by their parts `user`, `client-id` and `ip`: each a name, DEFAULT, or None for any.
        With `strict`, entities with other parts are left out.
        """
        return await self._retry(partial(self._describe_client_quotas, dict(parts), strict))

    async def _describe_client_quotas(
        self, parts: Mapping[str, QuotaName | None], strict: bool
    ) -> dict[QuotaEntity, dict[str, float]]:
        components = [_component(kind, name) for kind, name in parts.items()]
        response = await self._call(
            ApiKey.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest(components=components, strict=strict)
        )
        check(response.error_code, response.error_message or "client quotas")
        return {
            _entity([(part.entity_type, part.entity_name) for part in entry.entity]): {
                value.key: value.value for value in entry.values
            }
            for entry in response.entries or ()
        }

    async def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> list[Outcome]:
        """Set quotas of entities; None removes one. For one entity, all changes are made or none."""
        entries = [
            AlterClientQuotasRequestEntryData(
                entity=[
                    AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity.parts()
                ],
                ops=[
                    OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
                    for key, value in theirs.items()
                ],
            )
            for entity, theirs in changes.items()
        ]
        rows = await self._call_controller(
            ApiKey.ALTER_CLIENT_QUOTAS,
            AlterClientQuotasRequest(entries=entries, validate_only=validate_only),
            lambda response: response.entries,
        )
        return [
            Outcome.of(
                str(_entity([(part.entity_type, part.entity_name) for part in row.entity])),
                row.error_code,
                row.error_message,
            )
            for row in rows
        ]


def _component(kind: str, name: QuotaName | None) -> ComponentData:
    if name is None:
        return ComponentData(entity_type=kind, match_type=_SPECIFIED, match=None)
    if name is DEFAULT:
        return ComponentData(entity_type=kind, match_type=_DEFAULT, match=None)
    return ComponentData(entity_type=kind, match_type=_EXACT, match=str(name))


def _entity(parts: list[tuple[str, str | None]]) -> QuotaEntity:
    try:
        return QuotaEntity.of_parts(parts)
    except ValueError as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker's answer is not understood: {error}") from error
