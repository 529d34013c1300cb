"""The strategies that choose the subject for a schema. A strategy is a function of the context and the record's name.

    strategy                               subject                     for
    topic_subject_name_strategy            orders-value, orders-key    one type per topic (the default)
    record_subject_name_strategy           shop.Order                  a type that is the same in all topics
    topic_record_subject_name_strategy     orders-shop.Order           several types per topic

The function names are those of Confluent's Python client. In settings the names of the Java classes are accepted too.
"""

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from rookery.base.errors import ConfigError

Field: TypeAlias = Literal["key", "value"]


class SerializationContext(NamedTuple):
    """The place of the value that is serialized: the key or the value of a record in `topic`."""

    topic: str
    field: Field


def field_of(*, is_key: bool) -> Field:
    return "key" if is_key else "value"


# Converts between a program's objects and the types that the format can encode.
Convert: TypeAlias = Callable[[Any, SerializationContext], Any]
SubjectNameStrategy: TypeAlias = Callable[[SerializationContext, str | None], str]


def topic_subject_name_strategy(context: SerializationContext, record_name: str | None) -> str:
    return f"{context.topic}-{context.field}"


def record_subject_name_strategy(context: SerializationContext, record_name: str | None) -> str:
    return _require_name(record_name)


def topic_record_subject_name_strategy(context: SerializationContext, record_name: str | None) -> str:
    return f"{context.topic}-{_require_name(record_name)}"


def _require_name(record_name: str | None) -> str:
    if not record_name:
        raise ConfigError("subject.name.strategy needs the name of the record, but the schema has none")
    return record_name


_STRATEGIES: Final[dict[str, SubjectNameStrategy]] = {
    "TopicNameStrategy": topic_subject_name_strategy,
    "RecordNameStrategy": record_subject_name_strategy,
    "TopicRecordNameStrategy": topic_record_subject_name_strategy,
}


def find_strategy(value: object) -> SubjectNameStrategy:
    """Return the strategy for a setting: a function, or the name of the Java class with or without its package."""
    if callable(value):
        function: SubjectNameStrategy = value
        return function
    found = _STRATEGIES.get(value.rpartition(".")[2]) if isinstance(value, str) else None
    if found is None:
        raise ConfigError(
            f"Invalid value {value!r} for configuration subject.name.strategy: use a function of (context, name), or "
            f"one of {', '.join(_STRATEGIES)}"
        )
    return found
