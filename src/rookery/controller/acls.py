"""CreateAcls and DeleteAcls."""

from collections.abc import Sequence
from uuid import UUID

from rookery.base.codes import AclOperation, AclPermission, AclResourceType, PatternType
from rookery.base.errors import ApiError, ErrorCode
from rookery.controller.decision import (
    RECORDS_PER_REQUEST_MAX,
    TOO_LARGE,
    Context,
    ControllerResult,
    Steps,
    error_outcome,
)
from rookery.metadata.image import ClusterImage
from rookery.metadata.image.acls import acl_record
from rookery.metadata.outcomes import OK, Outcome
from rookery.metadata.records import MetadataRecord, RemoveAccessControlEntryRecord
from rookery.metadata.security_requests import DeletedAcls
from rookery.security.acl_filters import AclFilter
from rookery.security.acls import CLUSTER_NAME, AclBinding


def steps_to_create_acls(image: ClusterImage, acls: Sequence[AclBinding], context: Context) -> Steps[list[Outcome]]:
    """Create the entries that do not exist; an entry that exists, or is in the request twice, is created once."""
    existing = set()
    for acl in image.acls.values():
        existing.add(acl)
        yield
    records: list[MetadataRecord] = []
    results: list[Outcome] = []
    for acl in acls:
        outcome = OK
        try:
            _check(acl)
            if acl not in existing:
                existing.add(acl)
                records.append(acl_record(_new_id(image, context), acl))
        except ApiError as error:
            outcome = error_outcome(error)
        results.append(outcome)
        yield
    if len(records) > RECORDS_PER_REQUEST_MAX:
        return ControllerResult((), [TOO_LARGE for _ in acls])
    return ControllerResult(tuple(records), results)


def steps_to_delete_acls(image: ClusterImage, filters: Sequence[AclFilter]) -> Steps[list[DeletedAcls]]:
    """Delete the entries that the filters match. One that two filters match is in the results of both."""
    deleted: dict[UUID, MetadataRecord] = {}
    results: list[DeletedAcls] = []
    for acl_filter in filters:
        problem = _filter_problem(acl_filter)
        found: list[AclBinding] = []
        for acl_id, acl in image.acls.items() if problem is None else ():
            if acl_filter.matches(acl):
                found.append(acl)
                deleted[acl_id] = RemoveAccessControlEntryRecord(acl_id)
            yield
        results.append(DeletedAcls(problem or OK, found))
    if len(deleted) > RECORDS_PER_REQUEST_MAX:
        # No part of them: that some entries stayed is easily overlooked in so long a response.
        text = f"Cannot remove more than {RECORDS_PER_REQUEST_MAX} acls in a single delete operation."
        return ControllerResult((), [DeletedAcls(Outcome(ErrorCode.INVALID_REQUEST, text)) for _ in filters])
    return ControllerResult(tuple(deleted.values()), results)


def _new_id(image: ClusterImage, context: Context) -> UUID:
    while (acl_id := context.new_id()) in image.acls:
        pass
    return acl_id


def _check(acl: AclBinding) -> None:
    pattern = acl.pattern
    if pattern.type in (AclResourceType.UNKNOWN, AclResourceType.ANY):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid resourceType {pattern.type.name}")
    if not pattern.name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    if pattern.type is AclResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if pattern.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid patternType {pattern.pattern_type.name}")
    if acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid operation {acl.operation.name}")
    if acl.permission not in (AclPermission.ALLOW, AclPermission.DENY):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid permissionType {acl.permission.name}")
    if ":" not in acl.principal:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type "
            "from the principal name)",
        )


def _filter_problem(acl_filter: AclFilter) -> Outcome | None:
    if AclResourceType.UNKNOWN is acl_filter.resource_type or PatternType.UNKNOWN is acl_filter.pattern_type:
        return Outcome(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    if AclOperation.UNKNOWN is acl_filter.operation or AclPermission.UNKNOWN is acl_filter.permission:
        return Outcome(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
    return None
