"""AlterClientQuotas (49): set or remove quotas of users, client ids, both, or addresses (KIP-546).

An entity changes as a whole or not at all. INVALID_REQUEST for an unknown entity type, key or combination, a value that
is not positive, and an entity or key that is there twice.

Versions: v0, v1 flexible.
"""

from rookery.broker.context import ClusterContext
from rookery.metadata.security_requests import AlteredQuota, QuotaAlteration, QuotaChange
from rookery.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)


async def handle(context: ClusterContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    alterations = [
        QuotaAlteration(
            tuple((part.entity_type, part.entity_name) for part in entry.entity),
            tuple(QuotaChange(op.key, None if op.remove else op.value) for op in entry.ops),
        )
        for entry in request.entries
    ]
    altered = await context.services.controller.security.alter_client_quotas(
        alterations, validate_only=request.validate_only
    )
    return AlterClientQuotasResponse(entries=[_entry(each) for each in altered])


def _entry(altered: AlteredQuota) -> AlterClientQuotasResponseEntryData:
    return AlterClientQuotasResponseEntryData(
        error_code=altered.outcome.code,
        error_message=altered.outcome.message,
        entity=[
            AlterClientQuotasResponseEntityData(entity_type=kind, entity_name=name) for kind, name in altered.entity
        ],
    )
