"""/config: compatibility and what else is configured, for a subject or for the whole registry."""

from typing import Final

from rookery.registry import decisions, queries
from rookery.registry.decisions import Decision
from rookery.registry.entities import Config, ConfigUpdateRequest
from rookery.registry.rest.endpoints import Call, Endpoint, Writing
from rookery.registry.rest.parameters import DEFAULT_TO_GLOBAL
from rookery.registry.state import State

_UPDATE: Final = Writing("update config", "Failed to update compatibility level")
_DELETE: Final = Writing("delete config", "Failed to delete compatibility level")


def _get(state: State, call: Call) -> Config:
    return queries.get_config(state, call.subject, default_to_global=call.flag("defaultToGlobal"))


def _put(state: State, call: Call) -> Decision[ConfigUpdateRequest]:
    return decisions.put_config(state, call.subject, call.body)


def _delete(state: State, call: Call) -> Decision[Config]:
    return decisions.delete_config(state, call.subject)


ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/config",
        name="getTopLevelConfig",
        summary="What the whole registry is configured to",
        handler=_get,
        answer=Config,
        query=(DEFAULT_TO_GLOBAL,),
    ),
    Endpoint(
        method="PUT",
        path="/config",
        name="updateTopLevelConfig",
        summary="Configure the whole registry",
        handler=_put,
        answer=ConfigUpdateRequest,
        body=ConfigUpdateRequest,
        writing=_UPDATE,
        failures=(422,),
    ),
    Endpoint(
        method="DELETE",
        path="/config",
        name="deleteTopLevelConfig",
        summary="Return to the default for the whole registry; answers what it was",
        handler=_delete,
        answer=Config,
        writing=_DELETE,
        failures=(422,),
    ),
    Endpoint(
        method="GET",
        path="/config/{subject}",
        name="getSubjectLevelConfig",
        summary="What the subject is configured to",
        handler=_get,
        answer=Config,
        query=(DEFAULT_TO_GLOBAL,),
    ),
    Endpoint(
        method="PUT",
        path="/config/{subject}",
        name="updateSubjectLevelConfig",
        summary="Configure the subject",
        handler=_put,
        answer=ConfigUpdateRequest,
        body=ConfigUpdateRequest,
        writing=_UPDATE,
        failures=(422,),
    ),
    Endpoint(
        method="DELETE",
        path="/config/{subject}",
        name="deleteSubjectConfig",
        summary="Return to the registry's configuration for the subject; answers what it was",
        handler=_delete,
        answer=Config,
        writing=_DELETE,
        failures=(422,),
    ),
)
