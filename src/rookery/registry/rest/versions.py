"""/subjects/{subject}/versions: registering a schema, reading and deleting versions."""

from typing import Final

from rookery.registry import decisions, queries
from rookery.registry.decisions import Decision
from rookery.registry.entities import RegisterSchemaRequest, RegisterSchemaResponse, Schema
from rookery.registry.rest.endpoints import Call, Endpoint, Writing
from rookery.registry.rest.parameters import (
    DELETED,
    DELETED_ONLY,
    FIND_TAGS,
    FORMAT,
    LIMIT,
    NORMALIZE,
    OFFSET,
    PERMANENT,
    REFERENCE_FORMAT,
    flag,
)
from rookery.registry.state import State


def _list(state: State, call: Call) -> list[int]:
    return queries.list_versions(
        state,
        call.text("subject"),
        deleted=call.flag("deleted"),
        deleted_only=call.flag("deletedOnly"),
        deleted_as_negative=call.flag("deletedAsNegative"),
        **call.page(call.settings.version_limit),
    )


def _register(state: State, call: Call) -> Decision[RegisterSchemaResponse]:
    return decisions.register(
        state, call.text("subject"), call.body, normalize=call.flag("normalize"), format=call.text("format")
    )


def _get(state: State, call: Call) -> Schema:
    return queries.get_version(
        state,
        call.text("subject"),
        call.text("version"),
        deleted=call.flag("deleted"),
        format=call.text("format"),
        reference_format=call.text("referenceFormat"),
    )


def _get_text(state: State, call: Call) -> str:
    return queries.get_version(
        state, call.text("subject"), call.text("version"), deleted=call.flag("deleted"), format=call.text("format")
    ).schema


def _referenced_by(state: State, call: Call) -> list[int]:
    return queries.referenced_by(
        state,
        call.text("subject"),
        call.text("version"),
        deleted=call.flag("deleted"),
        **call.page(call.settings.schema_limit),
    )


def _delete(state: State, call: Call) -> Decision[int]:
    return decisions.delete_version(state, call.text("subject"), call.text("version"), permanent=call.flag("permanent"))


ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/subjects/{subject}/versions",
        name="listVersions",
        summary="The versions of the subject",
        handler=_list,
        answer=list[int],
        query=(
            DELETED,
            DELETED_ONLY,
            flag("deletedAsNegative", "Include what is soft-deleted, as negative numbers."),
            OFFSET,
            LIMIT,
        ),
    ),
    Endpoint(
        method="POST",
        path="/subjects/{subject}/versions",
        name="register",
        summary="Register a schema as the next version of the subject",
        handler=_register,
        answer=RegisterSchemaResponse,
        body=RegisterSchemaRequest,
        query=(NORMALIZE, FORMAT),
        writing=Writing("register schema", is_often_done=True),
        failures=(409, 422),
    ),
    Endpoint(
        method="GET",
        path="/subjects/{subject}/versions/{version}",
        name="getSchemaByVersion",
        summary="A version of the subject",
        handler=_get,
        answer=Schema,
        query=(FORMAT, REFERENCE_FORMAT, FIND_TAGS, DELETED),
        failures=(422,),
    ),
    Endpoint(
        method="DELETE",
        path="/subjects/{subject}/versions/{version}",
        name="deleteSchemaVersion",
        summary="Delete a version of the subject",
        handler=_delete,
        answer=int,
        query=(PERMANENT,),
        writing=Writing("delete schema version"),
        failures=(422,),
    ),
    Endpoint(
        method="GET",
        path="/subjects/{subject}/versions/{version}/schema",
        name="getSchemaOnly",
        summary="The text of a version's schema",
        handler=_get_text,
        answer=str,
        query=(FORMAT, DELETED),
        raw=True,
        failures=(422,),
    ),
    Endpoint(
        method="GET",
        path="/subjects/{subject}/versions/{version}/referencedby",
        name="getReferencedBy",
        summary="The ids of the schemas that refer to the version",
        handler=_referenced_by,
        answer=list[int],
        query=(DELETED, OFFSET, LIMIT),
        failures=(422,),
    ),
)
