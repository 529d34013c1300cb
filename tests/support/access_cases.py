"""Rows of the table of access tests: a request of the user `alice`, the ACLs that exist meanwhile, and the outcome.

The outcome are the error codes in the response, by the names of their items, and the items without errors that are
shown.

ACLs are written as `READ topic mine`, several separated by commas. A name that ends with a star is a prefix, the star
alone a wildcard; a minus in front denies; `cluster` has no name.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from rookery.base.codes import AclOperation, AclPermission, AclResourceType, PatternType
from rookery.base.errors import ErrorCode
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.security.acls import CLUSTER_NAME, AclBinding, ResourcePattern

USER: Final = "alice"
ADMIN: Final = "admin"
TOPICS: Final = ("mine", "other")
# The words of the table for frequent errors.
SHORT: Final = {
    "TOPIC_AUTHORIZATION_FAILED": "NO_TOPIC",
    "GROUP_AUTHORIZATION_FAILED": "NO_GROUP",
    "CLUSTER_AUTHORIZATION_FAILED": "NO_CLUSTER",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "NO_TXN",
    "NONE": "ok",
}
_NO_OPERATIONS: Final = -(2**31)


class Case(NamedTuple):
    key: ApiKey
    version: int
    acls: str
    # Items as `name CODE`, sorted, and separated by commas.
    outcome: str
    fields: Mapping[str, Any]
    on_controller: bool = False

    @property
    def label(self) -> str:
        return f"{self.key.name}-v{self.version}-{self.acls or 'nothing'}"


def parse_acls(text: str) -> list[AclBinding]:
    return [_parse_acl(each.strip()) for each in text.split(",") if each.strip()]


def _parse_acl(text: str) -> AclBinding:
    permission = AclPermission.DENY if text.startswith("-") else AclPermission.ALLOW
    operation, kind, *names = text.removeprefix("-").split()
    name = names[0] if names else CLUSTER_NAME
    is_prefix = name.endswith("*") and name != "*"
    pattern_type = PatternType.PREFIXED if is_prefix else PatternType.LITERAL
    pattern = ResourcePattern(
        AclResourceType[kind.upper()], name.removesuffix("*") if is_prefix else name, pattern_type
    )
    return AclBinding(pattern, f"User:{USER}", "*", AclOperation[operation], permission)


_IDENTIFYING: Final = (
    "transactional_id",
    "group_id",
    "user",
    "name",
    "topic",
    "resource_name",
    "key",
    "topic_name",
    "topic_id",
    "principal_name",
)


def outcome(response: Message, ids: Mapping[str, UUID]) -> str:
    """Return the error codes of a response, and what it shows."""
    return ", ".join(sorted(set(_lines(response, "", {topic_id: name for name, topic_id in ids.items()}))))


def _lines(message: Message, path: str, names: Mapping[UUID, str]) -> Iterator[str]:
    for field in ("error_code", "partition_error_code", "topic_config_error_code"):
        code = message.get(field)
        if code is not None and (code or path or field == "error_code"):
            short = ErrorCode(code).name
            suffix = " configs" if field.startswith("topic_config") else ""
            if not suffix or code:
                yield f"{path}{suffix} {SHORT.get(short, short)}".strip()
    for field, value in vars(message).items():
        if field.endswith("authorized_operations") and value != _NO_OPERATIONS:
            yield f"{path} {value:b}".strip()
        if field == "configs" and value:
            yield f"{path}/configs"
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Message):
                    yield from _item_lines(item, path, names)
        elif isinstance(value, Message):
            yield from _lines(value, path, names)


def _item_lines(item: Message, path: str, names: Mapping[UUID, str]) -> Iterator[str]:
    identity = next((item.get(field) for field in _IDENTIFYING if item.get(field) not in (None, "")), None)
    if isinstance(identity, UUID):
        identity = f"id:{names.get(identity, '?')}"
    if identity is None:
        yield from _lines(item, path, names)
        return
    inner = f"{path}/{identity}" if path else str(identity)
    lines = list(_lines(item, inner, names))
    yield from lines or [inner]


def rows(key: ApiKey, version: int, fields: Mapping[str, Any], *outcomes: tuple[str, str]) -> list[Case]:
    """Return the rows of one request: `outcomes` are ACLs and what the request gets with them."""
    return [Case(key, version, acls, expected, fields) for acls, expected in outcomes]
