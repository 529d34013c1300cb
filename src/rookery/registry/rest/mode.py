"""/mode: the mode of a subject or of the whole registry, which allows or forbids writes and imports."""

from typing import Final

from rookery.registry import commands, queries
from rookery.registry.commands import PlannedWrite
from rookery.registry.entities import Mode, ModeUpdateRequest
from rookery.registry.rest.endpoints import Call, Endpoint, Write
from rookery.registry.rest.parameters import DEFAULT_TO_GLOBAL, FORCE
from rookery.registry.state import State

_UPDATE: Final = Write("update mode", "Failed to update mode")
_DELETE: Final = Write("delete mode", "Failed to delete mode")


def _get(state: State, call: Call) -> Mode:
    return queries.get_mode(state, call.subject, default_to_global=call.flag("defaultToGlobal"))


def _put(state: State, call: Call) -> PlannedWrite[ModeUpdateRequest]:
    return commands.put_mode(state, call.subject, call.body, force=call.flag("force"))


def _delete(state: State, call: Call) -> PlannedWrite[Mode]:
    return commands.delete_mode(state, call.subject)


ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/mode",
        name="getTopLevelMode",
        summary="The mode of the whole registry",
        handler=_get,
        response=Mode,
        query=(DEFAULT_TO_GLOBAL,),
    ),
    Endpoint(
        method="PUT",
        path="/mode",
        name="updateTopLevelMode",
        summary="Change the mode of the whole registry",
        handler=_put,
        response=ModeUpdateRequest,
        body=ModeUpdateRequest,
        query=(FORCE,),
        write=_UPDATE,
        error_statuses=(422,),
    ),
    Endpoint(
        method="DELETE",
        path="/mode",
        name="deleteGlobalMode",
        summary="Reset the mode of the whole registry to the default; returns the deleted mode",
        handler=_delete,
        response=Mode,
        write=_DELETE,
        error_statuses=(422,),
    ),
    Endpoint(
        method="GET",
        path="/mode/{subject}",
        name="getMode",
        summary="The mode of the subject",
        handler=_get,
        response=Mode,
        query=(DEFAULT_TO_GLOBAL,),
    ),
    Endpoint(
        method="PUT",
        path="/mode/{subject}",
        name="updateMode",
        summary="Change the mode of the subject",
        handler=_put,
        response=ModeUpdateRequest,
        body=ModeUpdateRequest,
        query=(FORCE,),
        write=_UPDATE,
        error_statuses=(422,),
    ),
    Endpoint(
        method="DELETE",
        path="/mode/{subject}",
        name="deleteSubjectMode",
        summary="Delete the mode of the subject, so that the registry's applies; returns the deleted mode",
        handler=_delete,
        response=Mode,
        write=_DELETE,
        error_statuses=(422,),
    ),
)
