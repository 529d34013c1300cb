"""The client quotas of an image, by the entities that they apply to."""

from collections.abc import Mapping
from typing import TypeAlias

from rookery.base.errors import CorruptionError
from rookery.base.quota_entities import QuotaEntity
from rookery.metadata.records import ClientQuotaRecord, QuotaEntityPart

ClientQuotas: TypeAlias = Mapping[QuotaEntity, Mapping[str, float]]


class QuotaChanges:
    """Applies records to the client quotas of an image. An entity without a quota is not in it."""

    def __init__(self, before: ClientQuotas) -> None:
        self._before = before
        self._changed: dict[QuotaEntity, dict[str, float]] = {}

    def change(self, record: ClientQuotaRecord) -> None:
        try:
            entity = QuotaEntity.of_parts((part.entity_type, part.entity_name) for part in record.entity)
        except ValueError as error:
            raise CorruptionError(f"the metadata log has an unreadable quota: {error}") from error
        if entity not in self._changed:
            self._changed[entity] = dict(self._before.get(entity, {}))
        if record.remove:
            self._changed[entity].pop(record.key, None)
        else:
            self._changed[entity][record.key] = record.value

    def build(self) -> ClientQuotas:
        if not self._changed:
            return self._before
        return {entity: values for entity, values in {**self._before, **self._changed}.items() if values}

    def differences(self, after: ClientQuotas) -> frozenset[QuotaEntity]:
        return frozenset(key for key in self._changed if self._before.get(key) != after.get(key))


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> ClientQuotaRecord:
    """Return the record that sets a quota; one of None removes it."""
    parts = tuple(QuotaEntityPart(kind, name) for kind, name in entity.parts())
    return ClientQuotaRecord(entity=parts, key=key, value=value or 0.0, remove=value is None)
