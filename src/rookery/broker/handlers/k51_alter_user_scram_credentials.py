"""AlterUserScramCredentials (51): set and delete the SCRAM credentials of users (KIP-554).

The client hashes the password with salt and iterations. UNACCEPTABLE_CREDENTIAL for an empty user or a number of
iterations outside of 4096 to 16384, UNSUPPORTED_SASL_MECHANISM, RESOURCE_NOT_FOUND for the deletion of a credential
that does not exist, DUPLICATE_RESOURCE for a user that is in the request twice.
"""

from rookery.broker.context import ClusterContext
from rookery.metadata.security_requests import ScramDeletion, ScramUpsertion
from rookery.protocol.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


async def handle(
    context: ClusterContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    altered = await context.services.controller.security.alter_scram(
        [ScramDeletion(deletion.name, deletion.mechanism) for deletion in request.deletions],
        [
            ScramUpsertion(
                user=upsertion.name,
                mechanism=upsertion.mechanism,
                iterations=upsertion.iterations,
                salt=upsertion.salt,
                salted_password=upsertion.salted_password,
            )
            for upsertion in request.upsertions
        ],
    )
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=each.user, error_code=each.outcome.code, error_message=each.outcome.message
            )
            for each in altered
        ]
    )
