"""The access control entries of an image, by their ids."""

from uuid import UUID

from rookery.base.codes import AclOperation, AclPermission, AclResourceType, PatternType
from rookery.base.errors import CorruptionError
from rookery.metadata.records import AccessControlEntryRecord
from rookery.security.acls import AclBinding, ResourcePattern


def acl_of(record: AccessControlEntryRecord) -> AclBinding:
    """Return the entry of a record. One with an unknown code is corruption: to ignore it could ignore a denial."""
    try:
        return AclBinding(
            ResourcePattern(
                AclResourceType(record.resource_type), record.resource_name, PatternType(record.pattern_type)
            ),
            record.principal,
            record.host,
            AclOperation(record.operation),
            AclPermission(record.permission_type),
        )
    except ValueError as error:
        raise CorruptionError(f"the metadata log has an unreadable ACL: {error}") from error


def acl_record(acl_id: UUID, acl: AclBinding) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.pattern.type,
        resource_name=acl.pattern.name,
        pattern_type=acl.pattern.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
