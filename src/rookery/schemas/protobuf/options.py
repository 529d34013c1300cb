"""Sets the options of elements in the option messages of a descriptor.

Options that protobuf itself defines are fields of these messages. The others are extensions: only a pool that contains
the files that define them knows them. They are set in a message of such a pool, and copied to the descriptor as bytes.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message as AnyMessage

from rookery.schemas.protobuf.elements import Option, Value, Word
from rookery.schemas.protobuf.names import candidates
from rookery.schemas.protobuf.parser import to_integer

FindExtension: TypeAlias = Callable[[str], FieldDescriptor | None]


class InvalidOptionError(ValueError):
    """The option cannot have this value."""


def set_plain_options(target: AnyMessage, options: Iterable[Option]) -> None:
    """Set the options that protobuf defines. Unknown names are ignored: a later version of protobuf may define them.

    Raises InvalidOptionError.
    """
    for option in options:
        _set(target, option, lambda name: None)


def set_extension_options(target: AnyMessage, options: Iterable[Option], scope: str, pool: DescriptorPool) -> None:
    """Set the options that are extensions. Unknown extensions (of missing files) and invalid values are ignored."""
    known = message_factory.GetMessageClass(pool.FindMessageTypeByName(target.DESCRIPTOR.full_name))
    messages: dict[int, AnyMessage] = {}
    for option in options:
        field = find_extension(pool, option.name, scope) if option.is_extension else None
        # One message per extension: the order of several extensions in one serialized message is not defined.
        message = messages.setdefault(0 if field is None else field.number, known())
        try:
            _set(message, option, lambda name: find_extension(pool, name, scope))
        except InvalidOptionError:
            continue
    data = b"".join(messages[number].SerializeToString(deterministic=True) for number in sorted(messages))
    if data:
        target.MergeFromString(data)


def find_extension(pool: DescriptorPool, name: str, scope: str) -> FieldDescriptor | None:
    for each in candidates(name, scope):
        try:
            return pool.FindExtensionByName(each)
        except KeyError:
            continue
    return None


def _set(target: AnyMessage, option: Option, find: FindExtension) -> None:
    if option.is_extension:
        _assign(target, find(option.name), option.value, find)
        return
    *path, last = option.name.split(".")
    for name in path:
        field = target.DESCRIPTOR.fields_by_name.get(name)
        if field is None or field.message_type is None or field.is_repeated:
            return
        target = getattr(target, name)
        target.SetInParent()
    _assign(target, target.DESCRIPTOR.fields_by_name.get(last), option.value, find)


def _assign(target: AnyMessage, field: FieldDescriptor | None, value: Value, find: FindExtension) -> None:
    if field is None or (field.is_extension and field.containing_type != target.DESCRIPTOR):
        return
    if field.message_type is not None:
        _assign_message(target, field, value, find)
        return
    values = value if isinstance(value, tuple) else (value,)
    try:
        for each in values:
            _store(target, field, _convert(field, each))
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise InvalidOptionError(f'the option "{field.name}" cannot have this value: {error}') from None


def _assign_message(target: AnyMessage, field: FieldDescriptor, value: Value, find: FindExtension) -> None:
    holder = _holder(target, field)
    for each in value if isinstance(value, tuple) else (value,):
        if field.message_type.GetOptions().map_entry:
            _assign_entry(holder, field, each)
            continue
        message = holder.add() if field.is_repeated else holder
        if not field.is_repeated:
            message.SetInParent()
        if isinstance(each, Option):
            _set(message, each, find)
        elif isinstance(each, Mapping):
            for key, part in each.items():
                inner = find(f".{key[1:-1]}") if key[0] == "[" else message.DESCRIPTOR.fields_by_name.get(key)
                _assign(message, inner, part, find)
        else:
            raise InvalidOptionError(f'the option "{field.name}" is a message')


def _assign_entry(holder: Any, field: FieldDescriptor, entry: Value) -> None:
    key_field, value_field = field.message_type.fields
    if not isinstance(entry, Mapping) or value_field.message_type is not None:
        raise InvalidOptionError(f'the option "{field.name}" is a map')
    try:
        holder[_convert(key_field, entry["key"])] = _convert(value_field, entry["value"])
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise InvalidOptionError(f'the option "{field.name}" cannot have this value: {error}') from None


def _holder(target: AnyMessage, field: FieldDescriptor) -> Any:
    return target.Extensions[field] if field.is_extension else getattr(target, field.name)


def _store(target: AnyMessage, field: FieldDescriptor, value: object) -> None:
    if field.is_repeated:
        _holder(target, field).append(value)
    elif field.is_extension:
        target.Extensions[field] = value
    else:
        setattr(target, field.name, value)


def _convert(field: FieldDescriptor, value: Value) -> object:
    """Convert a value to the Python type of the field. Raises ValueError or KeyError."""
    if isinstance(value, str):
        if field.type == FieldDescriptor.TYPE_BYTES:
            return value.encode("utf-8", "surrogateescape")
        if field.type == FieldDescriptor.TYPE_STRING:
            return value
    if not isinstance(value, Word) or field.type in {FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_STRING}:
        raise ValueError(repr(value))
    if field.enum_type is not None:
        return field.enum_type.values_by_name[value.text].number
    if field.type == FieldDescriptor.TYPE_BOOL:
        return {"true": True, "false": False}[value.text]
    if field.cpp_type in {FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT}:
        return to_float(value.text)
    return parse_integer(value.text)


def parse_integer(text: str) -> int:
    number = to_integer(text.removeprefix("-"))
    if number is None:
        raise ValueError(f"{text} is not an integer")
    return -number if text.startswith("-") else number


def to_float(text: str) -> float:
    """Parse a number. Raises ValueError, and OverflowError for hexadecimal and octal numbers that are too large."""
    if text.startswith("-"):
        return -to_float(text[1:])
    # Decimal numbers may have any number of digits, so only hexadecimal and octal ones are parsed as integers.
    integer = to_integer(text) if text.startswith("0") else None
    if integer is not None:
        return float(integer)
    return float(text if text.endswith("inf") else text.rstrip("fF"))
