"""/subjects: list subjects, look up a schema in a subject, delete a subject."""

from typing import Final

from rookery.registry import commands, queries
from rookery.registry.commands import PlannedWrite
from rookery.registry.entities import RegisterSchemaRequest, Schema
from rookery.registry.rest.endpoints import Call, Endpoint, Write
from rookery.registry.rest.parameters import (
    DELETED,
    DELETED_ONLY,
    FORMAT,
    LIMIT,
    NORMALIZE,
    OFFSET,
    PERMANENT,
    Parameter,
)
from rookery.registry.state import State


def _list(state: State, call: Call) -> list[str]:
    return queries.list_subjects(
        state,
        prefix=call.text("subjectPrefix"),
        deleted=call.flag("deleted"),
        deleted_only=call.flag("deletedOnly"),
        **call.page(call.settings.subject_limit),
    )


def _look_up(state: State, call: Call) -> Schema:
    return queries.look_up(
        state,
        call.text("subject"),
        call.body,
        normalize=call.flag("normalize"),
        deleted=call.flag("deleted"),
        format=call.text("format"),
    )


def _latest_with_metadata(state: State, call: Call) -> Schema:
    return queries.get_latest_with_metadata(
        state,
        call.text("subject"),
        properties=dict(zip(call.texts("key"), call.texts("value"), strict=False)),
        deleted=call.flag("deleted"),
        format=call.text("format"),
    )


def _delete(state: State, call: Call) -> PlannedWrite[list[int]]:
    return commands.delete_subject(state, call.text("subject"), permanent=call.flag("permanent"))


ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/subjects",
        name="list",
        summary="The names of the subjects",
        handler=_list,
        response=list[str],
        query=(
            Parameter("subjectPrefix", 'The prefix of the names; ":*:" means any context.', default=":*:"),
            DELETED,
            DELETED_ONLY,
            OFFSET,
            LIMIT,
        ),
    ),
    Endpoint(
        method="POST",
        path="/subjects/{subject}",
        name="lookUpSchemaUnderSubject",
        summary="The version of the subject that has the schema in the request",
        handler=_look_up,
        response=Schema,
        body=RegisterSchemaRequest,
        query=(NORMALIZE, FORMAT, DELETED),
        error_statuses=(422,),
    ),
    Endpoint(
        method="DELETE",
        path="/subjects/{subject}",
        name="deleteSubject",
        summary="Delete all versions of the subject",
        handler=_delete,
        response=list[int],
        query=(PERMANENT,),
        write=Write("delete subject"),
        error_statuses=(422,),
    ),
    Endpoint(
        method="GET",
        path="/subjects/{subject}/metadata",
        name="getLatestWithMetadata",
        summary="The latest version of the subject whose metadata has the properties in the request",
        handler=_latest_with_metadata,
        response=Schema,
        query=(
            Parameter("key", "The name of a property.", "texts"),
            Parameter("value", "Its value: the first value belongs to the first key, and so on.", "texts"),
            FORMAT,
            DELETED,
        ),
        error_statuses=(422,),
    ),
)
