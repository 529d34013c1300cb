"""Reads from a cluster what `rookery acls explain` needs: the rules, and the settings of the authorizer."""

from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from rookery.base.codes import AclOperation, PatternType, ResourceType
from rookery.base.errors import ApiError, ErrorCode
from rookery.cli.acl_tables import Question
from rookery.client.admin import AclFilter, ConfigResource
from rookery.security.authorizer import Authorizer
from rookery.security.explanations import Explanation, explain

if TYPE_CHECKING:
    from rookery.client.admin import Admin

_SUPER_USERS = "super.users"
_ALLOW = "allow.everyone.if.no.acl.found"
# The errors of a user that may not see the settings, and of a broker that has no such API.
_NOT_READABLE = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION)


async def explain_question(
    admin: "Admin", question: Question, operation: AclOperation
) -> tuple[Explanation, Mapping[str, str] | None]:
    """Return the explanation, and the settings that it is made with; None if they could not be read."""
    pattern = question.pattern
    covering = AclFilter(resource_type=pattern.type, resource_name=pattern.name, pattern_type=PatternType.MATCH)
    entries = await admin.describe_acls(covering)
    settings = await _settings(admin)
    known = settings or {}
    authorizer = Authorizer(
        super_users=[name.strip() for name in known.get(_SUPER_USERS, "").split(";") if name.strip()],
        allow_if_no_acl=known.get(_ALLOW, "").strip().lower() == "true",
    )
    authorizer.load({UUID(int=index): entry for index, entry in enumerate(entries)})
    found = explain(authorizer, question.principal, question.host, operation, pattern.type, pattern.name)
    return found, settings


async def _settings(admin: "Admin") -> Mapping[str, str] | None:
    try:
        brokers = (await admin.describe_cluster()).brokers
        resource = ConfigResource(ResourceType.BROKER, str(brokers[0].node_id))
        (described,) = await admin.describe_configs([resource], names=[_SUPER_USERS, _ALLOW])
        entries = {entry.name: entry for entry in described.check().entries if not entry.sensitive}
    except ApiError as error:
        if error.code in _NOT_READABLE:
            return None
        raise
    # Apache Kafka leaves these keys out, or hides their values: they are its authorizer's, not its own.
    if not entries.keys() >= {_SUPER_USERS, _ALLOW}:
        return None
    return {name: entry.value for name, entry in entries.items() if entry.value is not None}
