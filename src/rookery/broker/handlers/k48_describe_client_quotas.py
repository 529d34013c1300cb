"""DescribeClientQuotas (48): the quotas of the entities that match a filter (KIP-546).

The filter has one component per entity type: an exact name, the default, or any name. A strict filter matches only
entities without further types. INVALID_REQUEST for a filter that contradicts itself, UNSUPPORTED_VERSION for an unknown
entity type; `entries` is null then.

Versions: v0, v1 flexible.
"""

from collections.abc import Mapping
from typing import Final

from rookery.base.bounds import DESCRIPTIONS_PER_SLICE
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.quota_entities import CLIENT_ID, ENTITY_TYPES, IP, USER, QuotaEntity
from rookery.broker.context import RequestContext
from rookery.protocol.messages import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClientQuotasResponseEntityData,
    DescribeClientQuotasResponseEntryData,
    ValueData,
)

_EXACT: Final = 0
_DEFAULT: Final = 1
_SPECIFIED: Final = 2
# In a filter, stands for any name of the type.
_ANY: Final = object()


async def handle(context: RequestContext, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    try:
        wanted = _filter_of(request.components)
    except ApiError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    entries: list[DescribeClientQuotasResponseEntryData] = []
    async for some in context.services.slices.of(context.services.image.client_quotas.items(), DESCRIPTIONS_PER_SLICE):
        entries += (_entry(entity, quotas) for entity, quotas in some if _matches(entity, wanted, request.strict))
    return DescribeClientQuotasResponse(error_code=ErrorCode.NONE, error_message=None, entries=entries)


def _filter_of(components: list[ComponentData]) -> dict[str, object]:
    """Return the name of each type in the filter: a text, None for the default, or `_ANY`."""
    wanted: dict[str, object] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in wanted:
            text = f"Entity type {kind} cannot appear more than once in the filter."
            raise ApiError(ErrorCode.INVALID_REQUEST, text)
        if kind not in ENTITY_TYPES:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        wanted[kind] = _name_of(component)
    if IP in wanted and (USER in wanted or CLIENT_ID in wanted):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component.",
        )
    return wanted


def _name_of(component: ComponentData) -> object:
    if component.match_type == _EXACT:
        if component.match is None:
            text = "Request specified MATCH_TYPE_EXACT, but set match string to null."
            raise ApiError(ErrorCode.INVALID_REQUEST, text)
        return component.match
    if component.match_type not in (_DEFAULT, _SPECIFIED):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
    if component.match is not None:
        name = "MATCH_TYPE_DEFAULT" if component.match_type == _DEFAULT else "MATCH_TYPE_SPECIFIED"
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Request specified {name}, but also specified a match string.")
    return None if component.match_type == _DEFAULT else _ANY


def _matches(entity: QuotaEntity, wanted: Mapping[str, object], strict: bool) -> bool:
    parts = dict(entity.parts())
    if strict and len(parts) != len(wanted):
        return False
    return all(kind in parts and (name is _ANY or name == parts[kind]) for kind, name in wanted.items())


def _entry(entity: QuotaEntity, quotas: Mapping[str, float]) -> DescribeClientQuotasResponseEntryData:
    return DescribeClientQuotasResponseEntryData(
        entity=[
            DescribeClientQuotasResponseEntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts()
        ],
        values=[ValueData(key=key, value=value) for key, value in quotas.items()],
    )
