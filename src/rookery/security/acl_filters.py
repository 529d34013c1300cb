"""Filters of access control entries, as DescribeAcls and DeleteAcls have them. Pure."""

from rookery.base.codes import AclOperation, AclPermission, AclResourceType, PatternType
from rookery.base.values import value_class
from rookery.security.acls import WILDCARD, AclBinding, ResourcePattern


@value_class(kw_only=True)
class AclFilter:
    """What an entry must have; ANY, and a name, principal or host of None, match everything.

    A pattern type of MATCH selects the patterns that cover the resource `resource_name`: the literal one, the prefixed
    ones, and the wildcard.
    """

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def matches(self, acl: AclBinding) -> bool:
        return (
            self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
            and self._matches_pattern(acl.pattern)
        )

    def _matches_pattern(self, pattern: ResourcePattern) -> bool:
        if self.resource_type not in (AclResourceType.ANY, pattern.type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.resource_name == pattern.name
        if pattern.pattern_type is PatternType.PREFIXED:
            return self.resource_name.startswith(pattern.name)
        return pattern.name in (self.resource_name, WILDCARD)
