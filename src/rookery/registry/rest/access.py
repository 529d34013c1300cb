"""The role that each request needs: one table, and the guard through which every handler is called.

A request about a subject needs a role on that subject, or on the one that it is an alias for. Lists and look-ups by id
leave out what the user may not read. Schemas that a request refers to must be readable: a schema with references can
be returned together with them. An endpoint without a row cannot be served.
"""

from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from rookery.registry.entities import RegisterSchemaRequest
from rookery.registry.errors import RegistryError, denied, denied_id
from rookery.registry.rest.endpoints import Call, Endpoint
from rookery.registry.roles import INLINE_KEY, WHOLE_REGISTRY, Role, RoleSource
from rookery.registry.scopes import actual_subject, setting_name
from rookery.registry.state import State
from rookery.registry.subjects import GLOBAL_CONTEXT, context_of, qualify
from rookery.registry.visible_state import VisibleState

_SCHEMA_NOT_FOUND: Final = 40403


class Target(Enum):
    """On what the role is needed."""

    NOTHING = auto()
    """Every user may."""
    SUBJECT = auto()
    """The subject in the path, after its alias is resolved."""
    SETTING = auto()
    """The subject, the context or the whole registry whose config or mode is meant."""
    VISIBLE = auto()
    """The items of the response: others are left out."""
    SCHEMA_ID = auto()
    """At least one of the subjects that have the schema."""


class Access(NamedTuple):
    role: Role
    target: Target


_OPEN: Final = Access(Role.READ, Target.NOTHING)
_LIST: Final = Access(Role.READ, Target.VISIBLE)
_BY_ID: Final = Access(Role.READ, Target.SCHEMA_ID)
_READ: Final = Access(Role.READ, Target.SUBJECT)
_WRITE: Final = Access(Role.WRITE, Target.SUBJECT)
_DELETE: Final = Access(Role.ADMIN, Target.SUBJECT)
_READ_SETTING: Final = Access(Role.READ, Target.SETTING)
_CHANGE_SETTING: Final = Access(Role.ADMIN, Target.SETTING)

# By the names of the endpoints.
ACCESS: Final[Mapping[str, Access]] = {
    "get": _OPEN,
    "getClusterId": _OPEN,
    "getSchemaRegistryDeployment": _OPEN,
    "getSchemaRegistryVersion": _OPEN,
    "getSchemaTypes": _OPEN,
    "list": _LIST,
    "getSchemas": _LIST,
    "listContexts": _LIST,
    "getSchema": _BY_ID,
    "getSchemaOnlyById": _BY_ID,
    "getSubjects": _BY_ID,
    "getVersions": _BY_ID,
    "lookUpSchemaUnderSubject": _READ,
    "getLatestWithMetadata": _READ,
    "listVersions": _READ,
    "getSchemaByVersion": _READ,
    "getSchemaOnly": _READ,
    "getReferencedBy": _READ,
    "register": _WRITE,
    "testCompatibilityBySubjectName": _WRITE,
    "testCompatibilityForSubject": _WRITE,
    "deleteSubject": _DELETE,
    "deleteSchemaVersion": _DELETE,
    "getTopLevelConfig": _OPEN,
    "updateTopLevelConfig": _CHANGE_SETTING,
    "deleteTopLevelConfig": _CHANGE_SETTING,
    "getSubjectLevelConfig": _READ_SETTING,
    "updateSubjectLevelConfig": _CHANGE_SETTING,
    "deleteSubjectConfig": _CHANGE_SETTING,
    "getTopLevelMode": _OPEN,
    "updateTopLevelMode": _CHANGE_SETTING,
    "deleteGlobalMode": _CHANGE_SETTING,
    "getMode": _READ_SETTING,
    "updateMode": _CHANGE_SETTING,
    "deleteSubjectMode": _CHANGE_SETTING,
}


class Guard:
    """Calls handlers for users that may; without `roles`, for all."""

    def __init__(self, roles: RoleSource | None) -> None:
        self._roles = roles

    def run(self, endpoint: Endpoint, state: State, call: Call) -> Any:
        """Return what the handler returns. Raises RegistryError (40301) if the user lacks the role."""
        access = ACCESS[endpoint.name]
        if self._roles is None:
            return endpoint.handler(state, call)
        roles, principal = self._roles.current(), call.principal or ""
        for role, subject in _needed(access, state, call):
            if not roles.allows(principal, role, subject):
                raise _denial(principal, role, subject)
        if endpoint.write is not None:
            return endpoint.handler(state, call)
        visible = VisibleState(state, lambda subject: roles.allows(principal, Role.READ, subject))
        try:
            return endpoint.handler(visible, call)
        except RegistryError as error:
            if access.target is not Target.SCHEMA_ID or error.code != _SCHEMA_NOT_FOUND:
                raise
        # Fails in the same way if there is no such schema at all.
        endpoint.handler(state, call)
        raise denied_id(principal, call.number("id"))


def _needed(access: Access, state: State, call: Call) -> Iterator[tuple[Role, str | None]]:
    """Yield the roles that the call needs before its handler runs; a subject of None is the whole registry."""
    if access.target is Target.SETTING:
        yield access.role, _setting(call.subject)
    if access.target is not Target.SUBJECT:
        return
    subject = actual_subject(state, call.text("subject"))
    body = call.body
    if not isinstance(body, RegisterSchemaRequest):
        yield access.role, subject
        return
    # A request with an id is an import: it decides which schema the records with that id have.
    is_import = access.role is Role.WRITE and body.id is not None and body.id >= 0
    yield Role.ADMIN if is_import else access.role, subject
    for reference in body.references or ():
        if reference.subject is not None:
            yield Role.READ, qualify(reference.subject, subject)


def _setting(subject: str | None) -> str | None:
    name = setting_name(subject)
    # The settings of this context apply to all contexts.
    return None if name is None or context_of(name) == GLOBAL_CONTEXT else name


def _denial(principal: str, role: Role, subject: str | None) -> RegistryError:
    pattern = WHOLE_REGISTRY if subject is None else subject
    return denied(principal, role.word, subject, f"{INLINE_KEY}: {principal}={role.word}:{pattern}")
