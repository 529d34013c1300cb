"""What the broker passes to the audit log: decisions (see `permissions`), and the changes that requests make.

`broker.api_table` names a description for each API that changes ACLs, users, settings, quotas or tokens. If there is an
audit log, the dispatcher wraps the handlers of these APIs, so that the log learns of a change with its result and with
the client that made it: on the node that carries it out, which may be another one than the client's.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias, TypeVar

from rookery.base.codes import (
    AclOperation,
    AclPermission,
    AclResourceType,
    ConfigOperation,
    PatternType,
    ResourceType,
)
from rookery.base.config import BROKER_KEYS
from rookery.base.config_topic import TOPIC_KEYS
from rookery.base.errors import ErrorCode
from rookery.broker.context import ClusterContext
from rookery.protocol.message import Message, Struct

# One change of a request: what the log tells about it, without secrets.
Change: TypeAlias = dict[str, Any]
DescribeChanges: TypeAlias = Callable[[Any, Any], Iterable[Change]]
ContextT = TypeVar("ContextT", bound=ClusterContext)
HandlerOf: TypeAlias = Callable[[ContextT, Any], Struct | Awaitable[Struct]]

_HIDDEN: Final = "[hidden]"


def audited(describe: DescribeChanges, handle: HandlerOf[ContextT]) -> HandlerOf[ContextT]:
    """Return a handler that tells the audit log what it has changed."""

    def handle_audited(context: ContextT, request: Struct) -> Struct | Awaitable[Struct]:
        response = handle(context, request)
        if isinstance(response, Struct):
            return _note(context, request, response)
        return _note_later(context, request, response)

    def _note(context: ContextT, request: Struct, response: Struct) -> Struct:
        log = context.services.changes
        assert log is not None, "handlers are audited only if there is an audit log"
        log.changed(context, describe(request, response))
        return response

    async def _note_later(context: ContextT, request: Struct, response: Awaitable[Struct]) -> Struct:
        return _note(context, request, await response)

    return handle_audited


def created_acls(request: Any, response: Any) -> Iterator[Change]:
    for creation, result in zip(request.creations, response.results, strict=True):
        yield {
            "change": "CreateAcl",
            "error": _error(result),
            "acl": {
                "principal": creation.principal,
                "permission": AclPermission(creation.permission_type).name,
                "operation": AclOperation(creation.operation).name,
                "host": creation.host,
                "resourceType": AclResourceType(creation.resource_type).name,
                "resourceName": creation.resource_name,
                "patternType": PatternType(creation.get("resource_pattern_type", PatternType.LITERAL)).name,
            },
        }


def deleted_acls(_: Any, response: Any) -> Iterator[Change]:
    for result in response.filter_results:
        if result.error_code != ErrorCode.NONE:
            yield {"change": "DeleteAcl", "error": _error(result)}
        for acl in result.matching_acls:
            yield {
                "change": "DeleteAcl",
                "error": _error(acl),
                "acl": {
                    "principal": acl.principal,
                    "permission": AclPermission(acl.permission_type).name,
                    "operation": AclOperation(acl.operation).name,
                    "host": acl.host,
                    "resourceType": AclResourceType(acl.resource_type).name,
                    "resourceName": acl.resource_name,
                    "patternType": PatternType(acl.get("pattern_type", PatternType.LITERAL)).name,
                },
            }


def altered_configs(request: Any, response: Any) -> Iterator[Change]:
    """Describe the changes of both APIs. Only values of settings that are known not to be secret are shown."""
    errors = {(result.resource_type, result.resource_name): _error(result) for result in response.responses}
    for resource in request.resources:
        kind = resource.resource_type
        yield {
            "change": "AlterConfigs",
            "error": errors.get((kind, resource.resource_name), ErrorCode.UNKNOWN_SERVER_ERROR.name),
            "resourceType": ResourceType(kind).name if kind in list(ResourceType) else str(kind),
            "resourceName": resource.resource_name,
            "validateOnly": request.validate_only,
            "configs": [_config(kind, config) for config in resource.configs],
        }


def _config(kind: int, config: Message) -> dict[str, Any]:
    keys = TOPIC_KEYS if kind == ResourceType.TOPIC else BROKER_KEYS
    key = keys.get(config.name)
    is_shown = key is not None and not key.is_sensitive
    operation = config.get("config_operation", ConfigOperation.SET)
    return {
        "name": config.name,
        "operation": ConfigOperation(operation).name if operation in list(ConfigOperation) else str(operation),
        "value": config.value if is_shown or config.value is None else _HIDDEN,
    }


def altered_users(request: Any, response: Any) -> Iterator[Change]:
    """Describe changed SCRAM users by name and mechanism only."""
    errors = {result.user: _error(result) for result in response.results}
    for change, items in (("DeleteScramUser", request.deletions), ("UpsertScramUser", request.upsertions)):
        for item in items:
            yield {
                "change": change,
                "error": errors.get(item.name, ErrorCode.UNKNOWN_SERVER_ERROR.name),
                "user": item.name,
                "mechanism": item.mechanism,
            }


def altered_quotas(request: Any, response: Any) -> Iterator[Change]:
    for entry, result in zip(request.entries, response.entries, strict=False):
        yield {
            "change": "AlterClientQuotas",
            "error": _error(result),
            "entity": {each.entity_type: each.entity_name for each in entry.entity},
            "validateOnly": request.validate_only,
            "quotas": {each.key: None if each.remove else each.value for each in entry.ops},
        }


def created_token(_: Any, response: Any) -> Iterator[Change]:
    """Describe a new token by its id, never by its HMAC, which is a password."""
    yield {
        "change": "CreateDelegationToken",
        "error": _error(response),
        "tokenId": response.token_id,
        "owner": f"{response.principal_type}:{response.principal_name}",
    }


def renewed_token(_: Any, response: Any) -> Iterator[Change]:
    yield {"change": "RenewDelegationToken", "error": _error(response)}


def expired_token(_: Any, response: Any) -> Iterator[Change]:
    yield {"change": "ExpireDelegationToken", "error": _error(response)}


def _error(result: Any) -> str | None:
    """Return the name of an error, None if there was none."""
    return None if result.error_code == ErrorCode.NONE else ErrorCode(result.error_code).name
