"""/schemas: the list of all schemas, and schemas by id."""

from typing import Final

from rookery.registry import queries
from rookery.registry.entities import Schema, SchemaString, SubjectVersion
from rookery.registry.rest.endpoints import Call, Endpoint
from rookery.registry.rest.parameters import (
    DELETED,
    FIND_TAGS,
    FORMAT,
    IN_SUBJECT,
    LIMIT,
    OFFSET,
    REFERENCE_FORMAT,
    Parameter,
    flag,
)
from rookery.registry.state import State

# In the order of Confluent's registry.
_TYPES: Final = ("JSON", "PROTOBUF", "AVRO")


def _list(state: State, call: Call) -> list[Schema]:
    return queries.list_schemas(
        state,
        prefix=call.text("subjectPrefix"),
        aliases=call.flag("aliases"),
        deleted=call.flag("deleted"),
        latest_only=call.flag("latestOnly"),
        rule_type=call.text("ruleType"),
        **call.page(call.settings.schema_limit),
    )


def _get(state: State, call: Call) -> SchemaString:
    return queries.get_by_id(
        state,
        call.number("id"),
        subject=call.optional_text("subject"),
        format=call.text("format"),
        reference_format=call.text("referenceFormat"),
        fetch_max_id=call.flag("fetchMaxId"),
    )


def _get_text(state: State, call: Call) -> str:
    return queries.get_by_id(
        state, call.number("id"), subject=call.optional_text("subject"), format=call.text("format")
    ).schema


def _subjects(state: State, call: Call) -> list[str]:
    return queries.subjects_of(
        state,
        call.number("id"),
        subject=call.optional_text("subject"),
        deleted=call.flag("deleted"),
        **call.page(call.settings.subject_limit),
    )


def _versions(state: State, call: Call) -> list[SubjectVersion]:
    return queries.versions_of(
        state,
        call.number("id"),
        subject=call.optional_text("subject"),
        deleted=call.flag("deleted"),
        **call.page(call.settings.version_limit),
    )


def _types(_: State, __: Call) -> tuple[str, ...]:
    return _TYPES


ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/schemas",
        name="getSchemas",
        summary="The schemas of all subjects, or of those with a prefix",
        handler=_list,
        response=list[Schema],
        query=(
            Parameter("subjectPrefix", 'The prefix of the subjects; ":*:" means any context.', default=""),
            flag("aliases", "Include subjects whose aliases have the prefix."),
            DELETED,
            flag("latestOnly", "Return only the latest version of each subject."),
            Parameter("ruleType", "Return only schemas with a rule of this type.", default=""),
            OFFSET,
            LIMIT,
        ),
        error_statuses=(422,),
    ),
    Endpoint(
        method="GET",
        path="/schemas/types",
        name="getSchemaTypes",
        summary="The supported types of schemas",
        handler=_types,
        response=list[str],
    ),
    Endpoint(
        method="GET",
        path="/schemas/ids/{id}",
        name="getSchema",
        summary="A schema by its id",
        handler=_get,
        response=SchemaString,
        query=(
            IN_SUBJECT,
            FORMAT,
            REFERENCE_FORMAT,
            FIND_TAGS,
            flag("fetchMaxId", "Add the highest id that was assigned."),
        ),
        error_statuses=(422,),
    ),
    Endpoint(
        method="GET",
        path="/schemas/ids/{id}/schema",
        name="getSchemaOnlyById",
        summary="The text of a schema by its id",
        handler=_get_text,
        response=str,
        query=(IN_SUBJECT, FORMAT),
        raw=True,
        error_statuses=(422,),
    ),
    Endpoint(
        method="GET",
        path="/schemas/ids/{id}/subjects",
        name="getSubjects",
        summary="The subjects that have the schema",
        handler=_subjects,
        response=list[str],
        query=(IN_SUBJECT, DELETED, OFFSET, LIMIT),
    ),
    Endpoint(
        method="GET",
        path="/schemas/ids/{id}/versions",
        name="getVersions",
        summary="The versions that have the schema",
        handler=_versions,
        response=list[SubjectVersion],
        query=(IN_SUBJECT, DELETED, OFFSET, LIMIT),
    ),
)
