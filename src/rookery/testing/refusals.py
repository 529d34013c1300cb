"""Responses that say no: what a request would be answered with, had the broker met a given error.

Built from the schema, for every API and version, by these rules:

- A response with an error code of its own gets it there. Otherwise each item of the request (a topic, a partition, a
  group, a resource) is answered by an item with the error, under the names that identify it. Fetch is answered by
  partition although it has an error code of its own, because that one is about fetch sessions.
- All other fields have their defaults, or what stands for "nothing": -1, empty, null.
- If only some topics or partitions shall fail, the rest of the request is carried out and the two answers are merged.
- Metadata is carried out, without creating topics, and the error put into its topics: a client that got no brokers
  would fail for another reason than the one that was asked for.
- A Fetch that continues a session does not name its partitions. The session is ended, without counting that as the
  fault; the client's next Fetch names them all.

Pure: `faults` decides when, and does the sending.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID
from rookery.base.values import value_class
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.codec import FieldShape, request_shape, response_shape
from rookery.protocol.message import Message

_Shape: TypeAlias = Sequence[FieldShape]

ERROR_MESSAGE: Final = "injected by the test"

# Fields that say which thing an item is about; the first that the request has is copied.
_IDENTIFYING: Final = {
    "name": ("name", "topic"),
    "topic": ("topic", "name"),
    "partition_index": ("partition_index", "partition", "index"),
} | {
    name: (name,)
    for name in (
        "endpoint_type",
        "group_id",
        "group_instance_id",
        "index",
        "key",
        "member_id",
        "partition",
        "producer_id",
        "resource_name",
        "resource_type",
        "session_id",
        "topic_id",
        "transactional_id",
    )
}
_ERRORS: Final = {"error_code", "partition_error_code"}
_TOPIC_FIELDS: Final = {"name", "topic", "topic_id"}
_ITEMS_FIRST: Final = {ApiKey.FETCH, ApiKey.METADATA}
_SESSIONLESS_EPOCH = -1


@value_class(kw_only=True)
class Target:
    """Which part of a request shall fail: all of it, one topic, or one partition of it."""

    topic: str | None = None
    partition: int | None = None

    def includes(self, topic: str | None, partition: int | None) -> bool:
        return (self.topic is None or topic == self.topic) and self.partition in (None, partition)

    @property
    def is_everything(self) -> bool:
        return self.topic is None and self.partition is None


@value_class
class Refusal:
    """How to answer: carry out `rest`, if there is one, and give the response (or None) to `finish`."""

    rest: Message | None
    finish: Callable[[Message | None], Message]
    # False where the request was answered otherwise, to make the client send one that can be refused.
    counts: bool = True


class _Items(NamedTuple):
    """An array of the response whose items carry error codes, and the array of the request that it answers."""

    asked: FieldShape
    answered: FieldShape
    nested: "_Items | None"


def check_target(api_key: ApiKey, target: Target) -> str | None:
    """Why no request of this API can be refused in this way; None if some can."""
    version = DEFINED[api_key].maximum
    items = _find_items(request_shape(api_key, version), response_shape(api_key, version))
    if items is None and not _has_error(response_shape(api_key, version)):
        return "its responses have no place for an error: drop the connection instead"
    if target.is_everything:
        return None
    if items is None or not _TOPIC_FIELDS & {field.name for field in items.asked.fields}:
        return "it is not about topics: leave out topic and partition"
    if target.partition is not None and items.nested is None:
        return "it is about whole topics: leave out partition"
    return None


def refuse(
    api_key: ApiKey,
    version: int,
    request: Message,
    code: ErrorCode,
    *,
    target: Target,
    topic_name: Callable[[UUID], str | None],
) -> Refusal | None:
    """How to answer this request with `code`; None if it is not about the target, or has no place for an error."""
    if api_key == ApiKey.METADATA:
        return _refuse_metadata(version, request, code, target, topic_name)
    asked, answered = request_shape(api_key, version), response_shape(api_key, version)
    if api_key == ApiKey.FETCH and (ended := _leave_session(version, request)):
        return ended
    if target.is_everything and api_key not in _ITEMS_FIRST and _has_error(answered):
        response = _build(answered, request.__dict__, code)
        return Refusal(None, lambda _: response)
    items = _find_items(asked, answered)
    if items is None:
        return None
    failing, others = _split(items, request, target, topic_name)
    if not failing:
        return None
    refused = _build(answered, request.__dict__, ErrorCode.NONE)
    setattr(refused, items.answered.name, [_build_item(items, item, code) for item in failing])
    rest = Message(**request.__dict__ | {items.asked.name: others}) if others else None
    return Refusal(rest, lambda response: refused if response is None else _merge(items, response, refused))


def _refuse_metadata(
    version: int, request: Message, code: ErrorCode, target: Target, topic_name: Callable[[UUID], str | None]
) -> Refusal | None:
    asks_for_all = request.topics is None or (version == 0 and not request.topics)
    names = [_name_of_topic(topic, topic_name) for topic in request.topics or []]
    if not asks_for_all and not any(target.includes(name, None) for name in names):
        return None

    def finish(response: Message | None) -> Message:
        assert response is not None, "Metadata is always carried out"
        for topic in response.topics:
            if target.includes(topic.name, None):
                topic.error_code = code
                topic.partitions = []
        return response

    return Refusal(Message(**request.__dict__ | {"allow_auto_topic_creation": False}), finish)


def _leave_session(version: int, request: Message) -> Refusal | None:
    """End the session that a Fetch continues; one that begins a session goes on without."""
    if request.get("session_epoch", _SESSIONLESS_EPOCH) > 0:
        ended = _build(response_shape(ApiKey.FETCH, version), {}, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        ended.session_id = 0
        return Refusal(None, lambda _: ended, counts=False)
    request.session_id, request.session_epoch = 0, _SESSIONLESS_EPOCH
    return None


def _has_error(shape: _Shape) -> bool:
    return any(field.name in _ERRORS for field in shape)


def _find_items(asked: _Shape, answered: _Shape) -> _Items | None:
    """The first array of the response with errors in it, and what it answers: its namesake or the first array."""
    for field in answered:
        if not field.is_array:
            continue
        arrays = [other for other in asked if other.is_array]
        source = next((other for other in arrays if other.name == field.name), arrays[0] if arrays else None)
        if source is None or not _is_identified(source, field):
            continue
        nested = _find_items(source.fields, field.fields)
        if nested is not None or _has_error(field.fields):
            return _Items(source, field, nested)
    return None


def _is_identified(asked: FieldShape, answered: FieldShape) -> bool:
    if not asked.fields:
        return _field_of_kind(answered.fields, asked.kind) in _IDENTIFYING
    known = {field.name for field in asked.fields if not field.is_array}
    return any(known.intersection(_IDENTIFYING.get(field.name, ())) for field in answered.fields)


def _field_of_kind(shape: _Shape, kind: str) -> str:
    """Where an item that is a plain name or number goes: the first field of its kind that cannot be null, if any."""
    return next((field.name for field in shape if field.kind == kind and not field.is_nullable), "")


def _build_item(items: _Items, item: Any, code: ErrorCode) -> Message:
    shape = items.answered.fields
    known = item.__dict__ if isinstance(item, Message) else {_field_of_kind(shape, items.asked.kind): item}
    built = _build(shape, known, code)
    if items.nested is not None and not _has_error(shape):
        children = known.get(items.nested.asked.name) or []
        setattr(built, items.nested.answered.name, [_build_item(items.nested, child, code) for child in children])
    return built


def _build(shape: _Shape, known: dict[str, Any], code: ErrorCode) -> Message:
    built = Message()
    for field in shape:
        source = next((name for name in _IDENTIFYING.get(field.name, ()) if name in known), None)
        if field.name in _ERRORS:
            setattr(built, field.name, code)
        elif field.name == "error_message" and code != ErrorCode.NONE:
            built.error_message = ERROR_MESSAGE
        elif source is not None and not field.is_array:
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
        return {"string": "", "bytes": b""}.get(field.kind) if field.kind else _build(field.fields, {}, ErrorCode.NONE)
    return -1


def _split(
    items: _Items, request: Message, target: Target, topic_name: Callable[[UUID], str | None]
) -> tuple[list[Any], list[Any]]:
    """The request's items that shall fail, and the others; an item of which only some parts shall fail is in both."""
    asked: list[Any] = request.get(items.asked.name) or []
    if target.is_everything:
        return asked, []
    failing: list[Any] = []
    others: list[Any] = []
    for item in asked:
        name = _name_of_topic(item, topic_name)
        if items.nested is None or not isinstance(item, Message):
            (failing if target.includes(name, None) else others).append(item)
            continue
        field = items.nested.asked.name
        for chosen, wanted in ((failing, True), (others, False)):
            parts = [part for part in item.get(field) or [] if target.includes(name, _index_of(part)) == wanted]
            if parts:
                chosen.append(Message(**item.__dict__ | {field: parts}))
    return failing, others


def _name_of_topic(item: Any, topic_name: Callable[[UUID], str | None]) -> str | None:
    if not isinstance(item, Message):
        return str(item)
    name: str | None = item.get("name") or item.get("topic")
    return name or topic_name(item.get("topic_id", NO_TOPIC_ID))


def _index_of(part: Any) -> int | None:
    if not isinstance(part, Message):
        return int(part)
    names = _IDENTIFYING["partition_index"]
    return next((part.get(name) for name in names if part.get(name) is not None), None)


def _merge(items: _Items, response: Message, refused: Message) -> Message:
    """`response` with the refused items in it; parts of the same topic come together."""
    carried_out: list[Message] = getattr(response, items.answered.name)
    for item in getattr(refused, items.answered.name):
        twin = next((other for other in carried_out if _identity(other) == _identity(item)), None)
        if twin is None or items.nested is None:
            carried_out.append(item)
        else:
            field = items.nested.answered.name
            setattr(twin, field, [*getattr(twin, field), *getattr(item, field)])
    return response


def _identity(item: Message) -> tuple[Any, ...]:
    return tuple(item.get(name) for name in sorted(_TOPIC_FIELDS))
