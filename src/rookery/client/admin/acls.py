"""Describes, creates and deletes access control entries (ACLs)."""

from collections.abc import Iterable
from enum import IntEnum
from functools import partial
from typing import Self, TypeVar

from rookery.base.codes import AclOperation, AclPermission, AclResourceType, PatternType
from rookery.base.errors import ErrorCode
from rookery.base.values import value_class
from rookery.client.admin.base import AdminPart, as_list
from rookery.client.admin.outcomes import check
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from rookery.security.acl_filters import AclFilter
from rookery.security.acls import AclBinding, ResourcePattern

_CodeT = TypeVar("_CodeT", bound=IntEnum)
EVERY_ACL = AclFilter()


@value_class
class CreatedAcl:
    """The outcome of creating one entry; an entry that existed already has no error."""

    acl: AclBinding
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None

    def check(self) -> Self:
        """Return this outcome, or raise its error as ApiError."""
        check(self.error, self.message or str(self.acl))
        return self


@value_class
class DeletedAcls:
    """The entries that a filter has matched and that were deleted, or the error of deleting them."""

    filter: AclFilter
    acls: tuple[AclBinding, ...]
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None

    def check(self) -> Self:
        """Return this outcome, or raise its error as ApiError."""
        check(self.error, self.message or str(self.filter))
        return self


class AclAdmin(AdminPart):
    async def describe_acls(self, acl_filter: AclFilter = EVERY_ACL) -> list[AclBinding]:
        """Return the entries that match a filter. Raises ApiError: SECURITY_DISABLED without an authorizer."""
        return await self._retry(partial(self._describe_acls, acl_filter))

    async def _describe_acls(self, wanted: AclFilter) -> list[AclBinding]:
        request = DescribeAclsRequest(
            resource_type_filter=wanted.resource_type,
            resource_name_filter=wanted.resource_name,
            pattern_type_filter=wanted.pattern_type,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        )
        response = await self._call(ApiKey.DESCRIBE_ACLS, request)
        check(response.error_code, response.error_message or "ACLs")
        return [
            AclBinding(
                _pattern(resource.resource_type, resource.resource_name, resource.pattern_type),
                acl.principal,
                acl.host,
                _code(AclOperation, acl.operation),
                _code(AclPermission, acl.permission_type),
            )
            for resource in response.resources
            for acl in resource.acls
        ]

    async def create_acls(self, acls: Iterable[AclBinding]) -> list[CreatedAcl]:
        """Create entries; the outcomes are in the order of `acls`."""
        wanted = as_list(acls, "acls")
        creations = [
            AclCreation(
                resource_type=acl.pattern.type,
                resource_name=acl.pattern.name,
                resource_pattern_type=acl.pattern.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in wanted
        ]
        rows = await self._call_controller(
            ApiKey.CREATE_ACLS, CreateAclsRequest(creations=creations), lambda response: response.results
        )
        return [
            CreatedAcl(acl, ErrorCode(row.error_code), row.error_message) for acl, row in zip(wanted, rows, strict=True)
        ]

    async def delete_acls(self, filters: Iterable[AclFilter]) -> list[DeletedAcls]:
        """Delete the entries that match filters; the outcomes are in the order of `filters`.

        If the first response is lost, the retry does not report the entries that are gone already.
        """
        wanted = as_list(filters, "filters")
        request = DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=each.resource_type,
                    resource_name_filter=each.resource_name,
                    pattern_type_filter=each.pattern_type,
                    principal_filter=each.principal,
                    host_filter=each.host,
                    operation=each.operation,
                    permission_type=each.permission,
                )
                for each in wanted
            ]
        )
        rows = await self._call_controller(ApiKey.DELETE_ACLS, request, lambda response: response.filter_results)
        return [
            DeletedAcls(each, tuple(map(_deleted, row.matching_acls)), ErrorCode(row.error_code), row.error_message)
            for each, row in zip(wanted, rows, strict=True)
        ]


def _deleted(row: DeleteAclsMatchingAcl) -> AclBinding:
    return AclBinding(
        _pattern(row.resource_type, row.resource_name, row.pattern_type),
        row.principal,
        row.host,
        _code(AclOperation, row.operation),
        _code(AclPermission, row.permission_type),
    )


def _pattern(resource_type: int, name: str, pattern_type: int) -> ResourcePattern:
    return ResourcePattern(_code(AclResourceType, resource_type), name, _code(PatternType, pattern_type))


def _code(kind: type[_CodeT], number: int) -> _CodeT:
    """Return the code for a number, UNKNOWN if it is one of a later version of Kafka."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)
