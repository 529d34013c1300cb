"""Error responses to any request, for tests: the response that the broker would send for a given error code.

They are built from the schema (`protocol.error_responses`), with these additions:

- A Fetch gets items, although its response has a common error code, because that one concerns fetch sessions.
- If only some topics or partitions shall fail, the rest of the request is executed, and the two responses are merged.
- Metadata is executed, without creating topics, and the error is set in its topics: a client that got no brokers would
  fail for another reason than the requested one.
- A Fetch that continues a session does not name its partitions. The session is ended, which does not count as the
  fault; the client's next Fetch names all partitions.

Pure: `faults` decides when to inject an error, and sends the response.
"""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID
from rookery.base.values import value_class
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.codec import request_shape, response_shape
from rookery.protocol.error_responses import (
    IDENTIFYING,
    RESULTS_BY_USER,
    Items,
    build,
    build_item,
    error_response,
    find_items,
    has_error,
)
from rookery.protocol.message import Message

ERROR_MESSAGE: Final = "injected by the test"

_TOPIC_FIELDS: Final = {"name", "topic", "topic_id"}
_ITEMS_FIRST: Final = {ApiKey.FETCH, ApiKey.METADATA}
_SESSIONLESS_EPOCH = -1


@value_class(kw_only=True)
class Target:
    """The part of a request that shall fail: all of it, one topic, or one partition."""

    topic: str | None = None
    partition: int | None = None

    def includes(self, topic: str | None, partition: int | None) -> bool:
        return (self.topic is None or topic == self.topic) and self.partition in (None, partition)

    @property
    def is_everything(self) -> bool:
        return self.topic is None and self.partition is None


@value_class
class InjectedError:
    """How to respond: execute `rest`, if it is not None, and pass its response (or None) to `finish`."""

    rest: Message | None
    finish: Callable[[Message | None], Message]
    # False: this response only makes the client send a request that can fail, and is not the fault itself.
    counts: bool = True


def check_target(api_key: ApiKey, target: Target) -> str | None:
    """Return why no request of this API can fail in this way; None if some can."""
    version = DEFINED[api_key].maximum
    items = find_items(request_shape(api_key, version), response_shape(api_key, version))
    if items is None and not has_error(response_shape(api_key, version)) and api_key not in RESULTS_BY_USER:
        return "its responses have no field for an error: drop the connection instead"
    if target.is_everything:
        return None
    if items is None or not _TOPIC_FIELDS & {field.name for field in items.in_request.fields}:
        return "it is not about topics: leave out topic and partition"
    if target.partition is not None and items.nested is None:
        return "it is about whole topics: leave out partition"
    return None


def inject_error(
    api_key: ApiKey,
    version: int,
    request: Message,
    code: ErrorCode,
    *,
    target: Target,
    topic_name: Callable[[UUID], str | None],
) -> InjectedError | None:
    """Return how to fail this request with `code`; None if it does not concern the target, or cannot have an error."""
    if api_key == ApiKey.METADATA:
        return _inject_into_metadata(version, request, code, target, topic_name)
    in_request, in_response = request_shape(api_key, version), response_shape(api_key, version)
    if api_key == ApiKey.FETCH and (ended := _leave_session(version, request)):
        return ended
    if target.is_everything and api_key not in _ITEMS_FIRST and has_error(in_response):
        response = build(in_response, request.__dict__, code, ERROR_MESSAGE)
        return InjectedError(None, lambda _: response)
    if target.is_everything and api_key in RESULTS_BY_USER:
        by_user = error_response(api_key, version, request, code, ERROR_MESSAGE)
        assert isinstance(by_user, Message)
        return InjectedError(None, lambda _: by_user)
    items = find_items(in_request, in_response)
    if items is None:
        return None
    failing, others = _split(items, request, target, topic_name)
    if not failing:
        return None
    failed = build(in_response, request.__dict__, ErrorCode.NONE)
    setattr(failed, items.in_response.name, [build_item(items, item, code, ERROR_MESSAGE) for item in failing])
    rest = Message(**request.__dict__ | {items.in_request.name: others}) if others else None
    return InjectedError(rest, lambda response: failed if response is None else _merge(items, response, failed))


def _inject_into_metadata(
    version: int, request: Message, code: ErrorCode, target: Target, topic_name: Callable[[UUID], str | None]
) -> InjectedError | None:
    asks_for_all = request.topics is None or (version == 0 and not request.topics)
    names = [_name_of_topic(topic, topic_name) for topic in request.topics or []]
    if not asks_for_all and not any(target.includes(name, None) for name in names):
        return None

    def finish(response: Message | None) -> Message:
        assert response is not None, "Metadata is always executed"
        for topic in response.topics:
            if target.includes(topic.name, None):
                topic.error_code = code
                topic.partitions = []
        return response

    return InjectedError(Message(**request.__dict__ | {"allow_auto_topic_creation": False}), finish)


def _leave_session(version: int, request: Message) -> InjectedError | None:
    """End the session that a Fetch continues; a Fetch that begins a session is changed to one without a session."""
    if request.get("session_epoch", _SESSIONLESS_EPOCH) > 0:
        ended = build(response_shape(ApiKey.FETCH, version), {}, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        ended.session_id = 0
        return InjectedError(None, lambda _: ended, counts=False)
    request.session_id, request.session_epoch = 0, _SESSIONLESS_EPOCH
    return None


def _split(
    items: Items, request: Message, target: Target, topic_name: Callable[[UUID], str | None]
) -> tuple[list[Any], list[Any]]:
    """Return the request's items that shall fail, and the others; an item that shall fail in part is in both."""
    in_request: list[Any] = request.get(items.in_request.name) or []
    if target.is_everything:
        return in_request, []
    failing: list[Any] = []
    others: list[Any] = []
    for item in in_request:
        name = _name_of_topic(item, topic_name)
        if items.nested is None or not isinstance(item, Message):
            (failing if target.includes(name, None) else others).append(item)
            continue
        field = items.nested.in_request.name
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
    names = IDENTIFYING["partition_index"]
    return next((part.get(name) for name in names if part.get(name) is not None), None)


def _merge(items: Items, response: Message, failed: Message) -> Message:
    """Add the failed items to `response`; parts of the same topic are joined."""
    executed: list[Message] = getattr(response, items.in_response.name)
    for item in getattr(failed, items.in_response.name):
        same = next((other for other in executed if _identity(other) == _identity(item)), None)
        if same is None or items.nested is None:
            executed.append(item)
        else:
            field = items.nested.in_response.name
            setattr(same, field, [*getattr(same, field), *getattr(item, field)])
    return response


def _identity(item: Message) -> tuple[Any, ...]:
    return tuple(item.get(name) for name in sorted(_TOPIC_FIELDS))
