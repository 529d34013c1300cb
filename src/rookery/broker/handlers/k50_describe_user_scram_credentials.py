"""DescribeUserScramCredentials (50): mechanisms and iterations of users, never their keys (KIP-554).

Null or an empty list stands for all users. RESOURCE_NOT_FOUND for a user without credentials, DUPLICATE_RESOURCE for
one that is in the request twice.
"""

from collections import Counter

from rookery.base.bounds import DESCRIPTIONS_PER_SLICE
from rookery.base.errors import ErrorCode
from rookery.broker.context import ClusterContext
from rookery.metadata.requests import OK, Outcome
from rookery.protocol.messages import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


async def handle(
    context: ClusterContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    known: dict[str, list[CredentialInfo]] = {}
    async for some in context.services.slices.of(context.services.image.scram.items(), DESCRIPTIONS_PER_SLICE):
        for (user, mechanism), credential in some:
            info = CredentialInfo(mechanism=int(mechanism), iterations=credential.iterations)
            known.setdefault(user, []).append(info)
    wanted = Counter(user.name for user in request.users) if request.users else dict.fromkeys(known, 1)
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        results=[_result(user, count, known.get(user)) for user, count in wanted.items()],
    )


def _result(user: str, count: int, infos: list[CredentialInfo] | None) -> DescribeUserScramCredentialsResult:
    outcome = OK
    if count > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        outcome = Outcome(ErrorCode.DUPLICATE_RESOURCE, text)
    elif infos is None:
        text = f"Attempt to describe a user credential that does not exist: {user}"
        outcome = Outcome(ErrorCode.RESOURCE_NOT_FOUND, text)
    return DescribeUserScramCredentialsResult(
        user=user,
        error_code=outcome.code,
        error_message=outcome.message,
        credential_infos=infos if infos is not None and outcome is OK else [],
    )
