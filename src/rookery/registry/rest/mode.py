"""/mode: whether a subject or the whole registry may be written, and how."""

from typing import Final

from rookery.registry import decisions, queries
from rookery.registry.decisions import Decision
from rookery.registry.entities import Mode, ModeUpdateRequest
from rookery.registry.rest.endpoints import Call, Endpoint, Writing
from rookery.registry.rest.parameters import DEFAULT_TO_GLOBAL, FORCE
from rookery.registry.state import State

_UPDATE: Final = Writing("update mode", "Failed to update mode")
_DELETE: Final = Writing("delete mode", "Failed to delete mode")


def _get(state: State, call: Call) -> Mode:
    return queries.get_mode(state, call.subject, default_to_global=call.flag("defaultToGlobal"))


def _put(state: State, call: Call) -> Decision[ModeUpdateRequest]:
    return decisions.put_mode(state, call.subject, call.body, force=call.flag("force"))


def _delete(state: State, call: Call) -> Decision[Mode]:
    return decisions.delete_mode(state, call.subject)


ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/mode",
        name="getTopLevelMode",
        summary="The mode of the whole registry",
        handler=_get,
        answer=Mode,
        query=(DEFAULT_TO_GLOBAL,),
    ),
    Endpoint(
        method="PUT",
        path="/mode",
        name="updateTopLevelMode",
        summary="Change the mode of the whole registry",
        handler=_put,
        answer=ModeUpdateRequest,
        body=ModeUpdateRequest,
        query=(FORCE,),
        writing=_UPDATE,
        failures=(422,),
    ),
    Endpoint(
        method="DELETE",
        path="/mode",
        name="deleteGlobalMode",
        summary="Return to the default mode for the whole registry; answers what it was",
        handler=_delete,
        answer=Mode,
        writing=_DELETE,
        failures=(422,),
    ),
    Endpoint(
        method="GET",
        path="/mode/{subject}",
        name="getMode",
        summary="The mode of the subject",
        handler=_get,
        answer=Mode,
        query=(DEFAULT_TO_GLOBAL,),
    ),
    Endpoint(
        method="PUT",
        path="/mode/{subject}",
        name="updateMode",
        summary="Change the mode of the subject",
        handler=_put,
        answer=ModeUpdateRequest,
        body=ModeUpdateRequest,
        query=(FORCE,),
        writing=_UPDATE,
        failures=(422,),
    ),
    Endpoint(
        method="DELETE",
        path="/mode/{subject}",
        name="deleteSubjectMode",
        summary="Return to the registry's mode for the subject; answers what it was",
        handler=_delete,
        answer=Mode,
        writing=_DELETE,
        failures=(422,),
    ),
)
