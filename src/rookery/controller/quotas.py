"""AlterClientQuotas (KIP-546)."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Final

from rookery.base.config_key import INT_MAX, LONG_MAX, ConfigType
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.quota_entities import DEFAULT, ENTITY_TYPES, QuotaEntity
from rookery.controller.decision import (
    RECORDS_PER_REQUEST_MAX,
    TOO_LARGE,
    ControllerResult,
    Steps,
    duplicates,
    error_outcome,
)
from rookery.metadata.image import ClusterImage
from rookery.metadata.image.quotas import quota_record
from rookery.metadata.outcomes import OK
from rookery.metadata.records import MetadataRecord
from rookery.metadata.security_requests import AlteredQuota, QuotaAlteration

# The keys of quotas, and the type of their values.
CLIENT_KEYS: Final[Mapping[str, ConfigType]] = {
    "producer_byte_rate": ConfigType.LONG,
    "consumer_byte_rate": ConfigType.LONG,
    "request_percentage": ConfigType.DOUBLE,
    "controller_mutation_rate": ConfigType.DOUBLE,
}
IP_KEYS: Final[Mapping[str, ConfigType]] = {"connection_creation_rate": ConfigType.INT}

_LIMITS: Final = {ConfigType.INT: (INT_MAX, "an INT"), ConfigType.LONG: (LONG_MAX, "a LONG")}
_FRACTION_MAX: Final = 1e-6


def steps_to_alter_client_quotas(
    image: ClusterImage, alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
) -> Steps[list[AlteredQuota]]:
    """Change the quotas of entities, each as a whole or not at all.

    An entity that is in the request twice changes not at all. Kafka applies the first change, and reports an error.
    """
    given = Counter(frozenset(alteration.entity) for alteration in alterations)
    records: list[MetadataRecord] = []
    results: list[AlteredQuota] = []
    for alteration in alterations:
        outcome = OK
        try:
            if given[frozenset(alteration.entity)] > 1:
                shown = _shown(alteration.entity)
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {shown}")
            records += _alter(image, alteration)
        except ApiError as error:
            outcome = error_outcome(error)
        results.append(AlteredQuota(alteration.entity, outcome))
        yield
    if len(records) > RECORDS_PER_REQUEST_MAX:
        return ControllerResult((), [AlteredQuota(alteration.entity, TOO_LARGE) for alteration in alterations])
    return ControllerResult(() if validate_only else tuple(records), results)


def _alter(image: ClusterImage, alteration: QuotaAlteration) -> list[MetadataRecord]:
    entity = _entity_of(alteration.entity)
    keys = CLIENT_KEYS if entity.ip is None else IP_KEYS
    if repeated := duplicates(change.key for change in alteration.changes):
        name, shown = min(map(str, repeated)), _shown(alteration.entity)
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Duplicate quota key {name} not updating quota for this entity {shown}"
        )
    before = image.client_quotas.get(entity, {})
    for key, value in alteration.changes:
        if value is not None:
            _check_value(keys, key, value)
    return [quota_record(entity, key, value) for key, value in alteration.changes if value != before.get(key)]


def _entity_of(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    if not parts:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    for kind, name in parts:
        if kind not in ENTITY_TYPES:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
    if repeated := duplicates(kind for kind, _ in parts):
        text = f"Invalid client quota entity, duplicate entity entry {min(map(str, repeated))}"
        raise ApiError(ErrorCode.INVALID_REQUEST, text)
    entity = QuotaEntity.of_parts(parts)
    if entity.ip is not None:
        if entity.user is not None or entity.client_id is not None:
            text = "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
            raise ApiError(ErrorCode.INVALID_REQUEST, text)
        if entity.ip is not DEFAULT and not _is_address(str(entity.ip)):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{entity.ip} is not a valid IP address.")
    return entity


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _check_value(keys: Mapping[str, ConfigType], key: str, value: float) -> None:
    kind = keys.get(key)
    if kind is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {key}")
    # Also false for NaN: a rate that is compared with it would never be throttled.
    if not value > 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Quota {key} must be greater than 0")
    if kind in _LIMITS:
        limit, type_name = _LIMITS[kind]
        if value > limit:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Proposed value for {key} is too large for {type_name}.")
        if math.fmod(value, 1.0) > _FRACTION_MAX:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{key} cannot be a fractional value.")


def _shown(parts: Sequence[tuple[str, str | None]]) -> str:
    return ", ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in parts)
