"""/subjects/{subject}/versions: register a schema, read and delete versions."""

from typing import Final

from rookery.registry import commands, queries
from rookery.registry.commands import PlannedWrite
from rookery.registry.entities import RegisterSchemaRequest, RegisterSchemaResponse, Schema
from rookery.registry.rest.endpoints import Call, Endpoint, Write
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


def _register(state: State, call: Call) -> PlannedWrite[RegisterSchemaResponse]:
    return commands.register(
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


def _delete(state: State, call: Call) -> PlannedWrite[int]:
    return commands.delete_version(state, call.text("subject"), call.text("version"), permanent=call.flag("permanent"))


ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/subjects/{subject}/versions",
        name="listVersions",
        summary="The versions of the subject",
        handler=_list,
        response=list[int],
        query=(
            DELETED,
            DELETED_ONLY,
            flag("deletedAsNegative", "Include soft-deleted versions, as negative numbers."),
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
        response=RegisterSchemaResponse,
        body=RegisterSchemaRequest,
        query=(NORMALIZE, FORMAT),
        write=Write("register schema", checks_locally=True),
        error_statuses=(409, 422),
    ),
    Endpoint(
        method="GET",
        path="/subjects/{subject}/versions/{version}",
        name="getSchemaByVersion",
        summary="A version of the subject",
        handler=_get,
        response=Schema,
        query=(FORMAT, REFERENCE_FORMAT, FIND_TAGS, DELETED),
        error_statuses=(422,),
    ),
    Endpoint(
        method="DELETE",
        path="/subjects/{subject}/versions/{version}",
        name="deleteSchemaVersion",
        summary="Delete a version of the subject",
        handler=_delete,
        response=int,
        query=(PERMANENT,),
        write=Write("delete schema version"),
        error_statuses=(422,),
    ),
    Endpoint(
        method="GET",
        path="/subjects/{subject}/versions/{version}/schema",
        name="getSchemaOnly",
        summary="The text of a version's schema",
        handler=_get_text,
        response=str,
        query=(FORMAT, DELETED),
        raw=True,
        error_statuses=(422,),
    ),
    Endpoint(
        method="GET",
        path="/subjects/{subject}/versions/{version}/referencedby",
        name="getReferencedBy",
        summary="The ids of the schemas that refer to the version",
        handler=_referenced_by,
        response=list[int],
        query=(DELETED, OFFSET, LIMIT),
        error_statuses=(422,),
    ),
)
