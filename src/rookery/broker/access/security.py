"""Guards of requests about ACLs, users, quotas and delegation tokens."""

from typing import Any, Final

from rookery.base.codes import AclOperation, AclResourceType
from rookery.base.errors import ErrorCode
from rookery.broker.access.guards import Restricted, Unguarded, Verdict, refuse, with_fields
from rookery.broker.context import ClusterContext
from rookery.broker.handlers.k38_create_delegation_token import owner_of
from rookery.broker.permissions import Client
from rookery.broker.token_access import may_use_tokens
from rookery.protocol.message import Struct
from rookery.protocol.messages import (
    AclCreationResult,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CreateAclsRequest,
    CreateAclsResponse,
    CreateDelegationTokenRequest,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribedDelegationToken,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from rookery.protocol.principal import Principal
from rookery.security.authorizer import principal_text

_DENIED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_MESSAGE: Final = "Cluster authorization failed."

of_owners: Final = Unguarded(
    "the handler asks whether the client is the owner or a renewer of the token, as Kafka does"
)


def create_acls(client: Client, _: ClusterContext, request: CreateAclsRequest) -> Verdict:
    if client.allows_on_cluster(AclOperation.ALTER):
        return None
    results = [AclCreationResult(error_code=_DENIED, error_message=_MESSAGE) for _ in request.creations]
    return CreateAclsResponse(results=results)


def delete_acls(client: Client, _: ClusterContext, request: DeleteAclsRequest) -> Verdict:
    if client.allows_on_cluster(AclOperation.ALTER):
        return None
    results = [
        DeleteAclsFilterResult(error_code=_DENIED, error_message=_MESSAGE, matching_acls=[]) for _ in request.filters
    ]
    return DeleteAclsResponse(filter_results=results)


def alter_client_quotas(client: Client, _: ClusterContext, request: AlterClientQuotasRequest) -> Verdict:
    if client.allows_on_cluster(AclOperation.ALTER_CONFIGS):
        return None
    entries = [
        AlterClientQuotasResponseEntryData(
            error_code=_DENIED,
            error_message=_MESSAGE,
            entity=[
                AlterClientQuotasResponseEntityData(entity_type=each.entity_type, entity_name=each.entity_name)
                for each in entry.entity
            ],
        )
        for entry in request.entries
    ]
    return AlterClientQuotasResponse(entries=entries)


def alter_users(client: Client, _: ClusterContext, request: AlterUserScramCredentialsRequest) -> Verdict:
    if client.allows_on_cluster(AclOperation.ALTER):
        return None
    users = dict.fromkeys([*(each.name for each in request.deletions), *(each.name for each in request.upsertions)])
    results = [AlterUserScramCredentialsResult(user=user, error_code=_DENIED, error_message=_MESSAGE) for user in users]
    return AlterUserScramCredentialsResponse(results=results)


def create_token(client: Client, context: ClusterContext, request: CreateDelegationTokenRequest) -> Verdict:
    """A client may always create tokens for itself."""
    requester, owner = context.connection.principal, owner_of(context, request)
    if not may_use_tokens(context) or _is_same(owner, requester):
        return None
    if client.allows(AclOperation.CREATE_TOKENS, AclResourceType.USER, principal_text(owner)):
        return None
    refused = refuse(context, request, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    return with_fields(
        refused,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
    )


def _is_same(one: Principal, other: Principal) -> bool:
    """Compare principals without regard to how they logged in."""
    return (one.type, one.name) == (other.type, other.name)


def describe_tokens(client: Client, context: ClusterContext, request: DescribeDelegationTokenRequest) -> Verdict:
    """Show tokens to those who own, requested or may renew them, and to clients with a permission for them."""
    principal = context.connection.principal

    def finish(response: DescribeDelegationTokenResponse) -> Struct:
        tokens = [token for token in response.tokens if _is_visible(client, principal, token)]
        return with_fields(response, tokens=tokens)

    return Restricted(request, finish)


def _is_visible(client: Client, principal: Principal, token: DescribedDelegationToken) -> bool:
    names: list[tuple[Any, Any]] = [
        (token.principal_type, token.principal_name),
        (token.get("token_requester_principal_type"), token.get("token_requester_principal_name")),
        *((each.principal_type, each.principal_name) for each in token.renewers),
    ]
    if (principal.type, principal.name) in names:
        return True
    owner = f"{token.principal_type}:{token.principal_name}"
    return client.allows(
        AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, token.token_id, is_logged=False
    ) or client.allows(AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, owner, is_logged=False)
