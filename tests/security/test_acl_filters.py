"""Filters of ACLs, with the semantics of Kafka's AclBindingFilter."""

import pytest

from rookery.base.codes import AclOperation, AclPermission, AclResourceType, PatternType
from rookery.security.acl_filters import AclFilter
from rookery.security.acls import AclBinding, ResourcePattern

TOPIC = AclResourceType.TOPIC


def acl(name: str, pattern_type: PatternType = PatternType.LITERAL) -> AclBinding:
    pattern = ResourcePattern(TOPIC, name, pattern_type)
    return AclBinding(pattern, "User:alice", "10.0.0.1", AclOperation.READ, AclPermission.ALLOW)


ACLS = [acl("orders"), acl("ord", PatternType.PREFIXED), acl("*"), acl("orders", PatternType.PREFIXED), acl("other")]


@pytest.mark.parametrize(
    ("pattern_type", "name", "expected"),
    [
        (PatternType.ANY, None, [0, 1, 2, 3, 4]),
        (PatternType.ANY, "orders", [0, 3]),
        (PatternType.LITERAL, None, [0, 2, 4]),
        (PatternType.LITERAL, "orders", [0]),
        (PatternType.LITERAL, "*", [2]),
        (PatternType.PREFIXED, "orders", [3]),
        (PatternType.PREFIXED, None, [1, 3]),
        (PatternType.MATCH, "orders", [0, 1, 2, 3]),
        (PatternType.MATCH, "ord", [1, 2]),
        (PatternType.MATCH, None, [0, 1, 2, 3, 4]),
    ],
)
def test_patterns(pattern_type: PatternType, name: str | None, expected: list[int]) -> None:
    acl_filter = AclFilter(resource_type=TOPIC, resource_name=name, pattern_type=pattern_type)
    assert [index for index, each in enumerate(ACLS) if acl_filter.matches(each)] == expected


@pytest.mark.parametrize(
    ("acl_filter", "expected"),
    [
        (AclFilter(), True),
        (AclFilter(resource_type=AclResourceType.GROUP), False),
        (AclFilter(principal="User:alice"), True),
        (AclFilter(principal="User:*"), False),
        (AclFilter(host="10.0.0.1"), True),
        (AclFilter(host="*"), False),
        (AclFilter(operation=AclOperation.READ), True),
        (AclFilter(operation=AclOperation.ALL), False),
        (AclFilter(permission=AclPermission.DENY), False),
        (AclFilter(permission=AclPermission.ALLOW), True),
    ],
)
def test_entries(acl_filter: AclFilter, expected: bool) -> None:
    assert acl_filter.matches(ACLS[0]) is expected
