"""/config: the compatibility level and other settings of a subject or of the whole registry."""

from typing import Final

from rookery.registry import commands, queries
from rookery.registry.commands import PlannedWrite
from rookery.registry.entities import Config, ConfigUpdateRequest
from rookery.registry.rest.endpoints import Call, Endpoint, Write
from rookery.registry.rest.parameters import DEFAULT_TO_GLOBAL
from rookery.registry.state import State

_UPDATE: Final = Write("update config", "Failed to update compatibility level")
_DELETE: Final = Write("delete config", "Failed to delete compatibility level")


def _get(state: State, call: Call) -> Config:
    return queries.get_config(state, call.subject, default_to_global=call.flag("defaultToGlobal"))


def _put(state: State, call: Call) -> PlannedWrite[ConfigUpdateRequest]:
    return commands.put_config(state, call.subject, call.body)


def _delete(state: State, call: Call) -> PlannedWrite[Config]:
    return commands.delete_config(state, call.subject)


ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/config",
        name="getTopLevelConfig",
        summary="The config of the whole registry",
        handler=_get,
        response=Config,
        query=(DEFAULT_TO_GLOBAL,),
    ),
    Endpoint(
        method="PUT",
        path="/config",
        name="updateTopLevelConfig",
        summary="Change the config of the whole registry",
        handler=_put,
        response=ConfigUpdateRequest,
        body=ConfigUpdateRequest,
        write=_UPDATE,
        error_statuses=(422,),
    ),
    Endpoint(
        method="DELETE",
        path="/config",
        name="deleteTopLevelConfig",
        summary="Reset the config of the whole registry to the default; returns the deleted config",
        handler=_delete,
        response=Config,
        write=_DELETE,
        error_statuses=(422,),
    ),
    Endpoint(
        method="GET",
        path="/config/{subject}",
        name="getSubjectLevelConfig",
        summary="The config of the subject",
        handler=_get,
        response=Config,
        query=(DEFAULT_TO_GLOBAL,),
    ),
    Endpoint(
        method="PUT",
        path="/config/{subject}",
        name="updateSubjectLevelConfig",
        summary="Change the config of the subject",
        handler=_put,
        response=ConfigUpdateRequest,
        body=ConfigUpdateRequest,
        write=_UPDATE,
        error_statuses=(422,),
    ),
    Endpoint(
        method="DELETE",
        path="/config/{subject}",
        name="deleteSubjectConfig",
        summary="Delete the config of the subject, so that the registry's applies; returns the deleted config",
        handler=_delete,
        response=Config,
        write=_DELETE,
        error_statuses=(422,),
    ),
)
