"""Error responses to any request, built from the schema.

By these rules, for every API and version:

- If the response has an error code for the whole request, the code is set there. Otherwise each item of the request (a
  topic, a partition, a group, a resource) gets an item with the error, under the names that identify it. If nothing
  does, as in CreateAcls, the items are in the order of the request.
- All other fields have their defaults, or a value that means "nothing": -1, empty, null.

Handlers build their own error responses where Kafka's are more specific. This is for errors that have nothing to do
with the request: a time-out, no active controller, an error that a test injects.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID
from rookery.protocol.api import ApiKey
from rookery.protocol.codec import FieldShape, request_shape, response_shape
from rookery.protocol.message import Message, Struct

Shape: TypeAlias = Sequence[FieldShape]

# Fields that identify the subject of an item; the first that the request has is copied.
IDENTIFYING: Final = {
    "name": ("name", "topic"),
    "topic": ("topic", "name"),
    "partition_index": ("partition_index", "partition", "index"),
} | {
    name: (name,)
    for name in (
        "endpoint_type",
        "entity",
        "group_id",
        "group_instance_id",
        "index",
        "key",
        "member_id",
        "partition",
        "partition_id",
        "producer_id",
        "resource_name",
        "resource_type",
        "session_id",
        "topic_id",
        "transactional_id",
    )
}
# The one API whose results are for two arrays of the request, so that `find_items` cannot find them.
RESULTS_BY_USER: Final = {ApiKey.ALTER_USER_SCRAM_CREDENTIALS}
_ERRORS: Final = {"error_code", "partition_error_code"}
_ERROR_FIELDS: Final = {*_ERRORS, "error_message"}


class Items(NamedTuple):
    """An array of the response whose items have error codes, and the corresponding array of the request."""

    in_request: FieldShape
    in_response: FieldShape
    nested: "Items | None"


def error_response(
    api_key: int, version: int, request: Struct, code: ErrorCode, message: str | None = None
) -> Struct | None:
    """Return the response to `request` that has this error; None if responses of this version cannot have one."""
    assert isinstance(request, Message)
    in_request, in_response = request_shape(api_key, version), response_shape(api_key, version)
    if has_error(in_response):
        return build(in_response, request.__dict__, code, message)
    if api_key in RESULTS_BY_USER:
        return _users_response(in_response, request, code, message)
    items = find_items(in_request, in_response)
    if items is None:
        return None
    response = build(in_response, request.__dict__, ErrorCode.NONE)
    failing = request.get(items.in_request.name) or []
    setattr(response, items.in_response.name, [build_item(items, item, code, message) for item in failing])
    return response


def _users_response(shape: Shape, request: Message, code: ErrorCode, message: str | None) -> Struct:
    """Return a response with one result per user, whichever array of the request names it."""
    (results,) = (field for field in shape if field.is_array)
    users = dict.fromkeys(change.name for change in (*request.deletions, *request.upsertions))
    response = build(shape, {}, ErrorCode.NONE)
    response.results = []
    for user in users:
        result = build(results.fields, {}, code, message)
        result.user = user
        response.results.append(result)
    return response


def has_error(shape: Shape) -> bool:
    return any(field.name in _ERRORS for field in shape)


def find_items(in_request: Shape, in_response: Shape) -> Items | None:
    """Find the first array of the response that has errors, and its source: the array of the same name or the first."""
    for field in in_response:
        if not field.is_array:
            continue
        arrays = [other for other in in_request if other.is_array]
        source = next((other for other in arrays if other.name == field.name), arrays[0] if arrays else None)
        if source is None or not _is_identified(source, field):
            continue
        nested = find_items(source.fields, field.fields)
        if nested is not None or has_error(field.fields):
            return Items(source, field, nested)
    return None


def _is_identified(in_request: FieldShape, in_response: FieldShape) -> bool:
    if not in_request.fields:
        return _field_of_kind(in_response.fields, in_request.kind) in IDENTIFYING
    if all(field.is_array or field.name in _ERROR_FIELDS for field in in_response.fields):
        return has_error(in_response.fields)
    known = {field.name for field in in_request.fields if not field.is_array}
    return any(known.intersection(IDENTIFYING.get(field.name, ())) for field in in_response.fields)


def _field_of_kind(shape: Shape, kind: str) -> str:
    """Return the field for an item that is a plain name or number: the first of its kind that cannot be null."""
    return next((field.name for field in shape if field.kind == kind and not field.is_nullable), "")


def build_item(items: Items, item: Any, code: ErrorCode, message: str | None = None) -> Message:
    """Return the response's item with this error for an item of the request."""
    shape = items.in_response.fields
    known = item.__dict__ if isinstance(item, Message) else {_field_of_kind(shape, items.in_request.kind): item}
    built = build(shape, known, code, message)
    if items.nested is not None and not has_error(shape):
        children = known.get(items.nested.in_request.name) or []
        nested = [build_item(items.nested, child, code, message) for child in children]
        setattr(built, items.nested.in_response.name, nested)
    return built


def build(shape: Shape, known: dict[str, Any], code: ErrorCode, message: str | None = None) -> Message:
    """Return a struct with this error; `known` are the fields of the part of the request that it responds to."""
    built = Message()
    for field in shape:
        source = next((name for name in IDENTIFYING.get(field.name, ()) if name in known), None)
        if field.name in _ERRORS:
            setattr(built, field.name, code)
        elif field.name == "error_message" and code != ErrorCode.NONE:
            built.error_message = "" if message is None and not field.is_nullable else message
        elif source is not None and (not field.is_array or source == "entity"):
            setattr(built, field.name, known[source])
        elif field.make_default is None:
            setattr(built, field.name, _nothing(field))
    return built


def _nothing(field: FieldShape) -> Any:
    if field.is_array:
        return None if field.is_nullable else []
    plain = {
        "uuid": NO_TOPIC_ID,
        "bool": False,
        "error_code": 0,
        "timedelta_i32": 0,
        "timedelta_i64": 0,
        "records": b"",
    }
    if field.kind in plain:
        return plain[field.kind]
    if field.kind in ("string", "bytes", ""):
        if field.is_nullable:
            return None
        return {"string": "", "bytes": b""}.get(field.kind) if field.kind else build(field.fields, {}, ErrorCode.NONE)
    return -1
