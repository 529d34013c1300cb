"""The normal form of a file, as Confluent's registry defines it: without insignificant differences.

Fields are sorted by tag, imports and options by name, types have full names, and map entries become maps. Messages keep
their order, because message indexes depend on it.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from functools import reduce
from typing import Final

from rookery.schemas.interface import InvalidSchemaError
from rookery.schemas.protobuf.elements import (
    SCALAR_TYPES,
    Enum,
    Extend,
    Extensions,
    Field,
    File,
    Group,
    Message,
    OneOf,
    Option,
    Options,
    Reserved,
    ReservedValue,
    Rpc,
    Span,
    Value,
    Word,
)
from rookery.schemas.protobuf.names import Names, join
from rookery.schemas.protobuf.options import parse_integer, to_float
from rookery.schemas.protobuf.parser import flatten, to_integer
from rookery.schemas.protobuf.printer import field_options
from rookery.schemas.protobuf.to_descriptor import float_text

_EXPONENT_MAX: Final = 400
_INTEGER_LIMIT: Final = 10**_EXPONENT_MAX


def normalize(file: File, names: Names) -> File:
    """Return the elements of the normal form, to be printed. Default values and JSON names are among the options."""
    return _Normalizer(file, names).file()


class _Normalizer:
    def __init__(self, file: File, names: Names) -> None:
        self._file = file
        self._names = names

    def file(self) -> File:
        file = self._file
        imports = {each.modifier + each.name: each for each in file.imports}
        scope = file.package
        return replace(
            file,
            syntax=None if file.is_proto2 else file.syntax,
            imports=tuple(sorted(imports.values(), key=lambda each: (each.modifier, each.name))),
            options=self._options(file.options, scope),
            messages=self._messages(file.messages, scope),
            enums=tuple(self._enum(each, scope) for each in file.enums),
            extends=self._extends(file.extends, scope),
            services=tuple(
                replace(
                    each,
                    options=self._options(each.options, scope),
                    rpcs=tuple(self._rpc(rpc, scope) for rpc in each.rpcs),
                )
                for each in file.services
            ),
        )

    def _rpc(self, rpc: Rpc, scope: str) -> Rpc:
        request, response = self._resolve(rpc.request, scope), self._resolve(rpc.response, scope)
        return replace(rpc, request=request, response=response, options=self._options(rpc.options, scope))

    def _messages(self, messages: Iterable[Message], scope: str) -> tuple[Message, ...]:
        return tuple(self._message(each, scope) for each in messages if not each.is_map_entry)

    def _message(self, message: Message, scope: str) -> Message:
        scope = join(scope, message.name)
        return replace(
            message,
            reserved=_split_reserved(message.reserved),
            options=self._options(message.options, scope),
            fields=self._fields(message.fields, scope),
            oneofs=tuple(sorted((self._oneof(each, scope) for each in message.oneofs), key=_first_tag)),
            groups=self._groups(message.groups, scope),
            extensions=self._extensions(message.extensions, scope),
            extends=self._extends(message.extends, scope),
            messages=self._messages(message.messages, scope),
            enums=tuple(self._enum(each, scope) for each in message.enums),
        )

    def _oneof(self, oneof: OneOf, scope: str) -> OneOf:
        fields, groups = self._fields(oneof.fields, scope), self._groups(oneof.groups, scope)
        return replace(oneof, options=self._options(oneof.options, scope), fields=fields, groups=groups)

    def _groups(self, groups: Iterable[Group], scope: str) -> tuple[Group, ...]:
        return tuple(
            replace(each, body=self._message(each.body, scope), options=self._options(each.options, scope))
            for each in sorted(groups, key=lambda each: each.number)
        )

    def _extensions(self, extensions: Iterable[Extensions], scope: str) -> tuple[Extensions, ...]:
        single = [
            replace(each, values=(_flatten(value),), options=self._options(each.options, scope))
            for each in extensions
            for value in each.values
        ]
        return tuple(sorted(single, key=lambda each: _start(each.values[0])))

    def _extends(self, extends: Iterable[Extend], scope: str) -> tuple[Extend, ...]:
        by_name: dict[str, Extend] = {}
        for each in extends:
            name = self._resolve(each.name, scope)
            before = by_name.get(name, Extend(name))
            by_name[name] = Extend(name, (*before.fields, *each.fields), (*before.groups, *each.groups))
        return tuple(
            replace(each, fields=self._fields(each.fields, scope), groups=self._groups(each.groups, scope))
            for each in by_name.values()
        )

    def _fields(self, fields: Iterable[Field], scope: str) -> tuple[Field, ...]:
        return tuple(self._field(each, scope) for each in sorted(fields, key=lambda each: each.number))

    def _field(self, field: Field, scope: str) -> Field:
        options = self._options(field_options(replace(field, default=_normal_default(field))), scope)
        field = self._as_map(field, scope)
        type_name = field.type if field.type in SCALAR_TYPES else self._resolve(field.type, scope)
        return replace(field, type=type_name, options=options, default=None, json_name=None)

    def _as_map(self, field: Field, scope: str) -> Field:
        """Return a field whose type is a map entry, as maps are in descriptors, as a map field; others unchanged."""
        found = None if field.type in SCALAR_TYPES else self._names.find(field.type, scope)
        if found is None or not isinstance(found.element, Message) or not found.element.is_map_entry:
            return field
        key, value = found.element.find_field("key"), found.element.find_field("value")
        if key is None or value is None:
            return field
        return replace(field, label=None, key_type=key.type, type=value.type)

    def _enum(self, enum: Enum, scope: str) -> Enum:
        scope = join(scope, enum.name)
        # In proto3, 0 must be the first value.
        is_proto3 = self._file.syntax == "proto3"
        values = sorted(enum.values, key=lambda each: (is_proto3 and each.number != 0, each.number, each.name))
        return replace(
            enum,
            reserved=_split_reserved(enum.reserved),
            options=self._options(enum.options, scope),
            values=tuple(replace(each, options=self._options(each.options, scope)) for each in values),
        )

    def _resolve(self, name: str, scope: str) -> str:
        found = self._names.find(name, scope)
        if found is None:
            raise InvalidSchemaError(f"Could not resolve type: {name}")
        return f".{found.full_name}"

    # Options.

    def _options(self, options: Options, scope: str) -> Options:
        by_name: dict[str, list[Option]] = {}
        for option in sorted((self._qualify(each, scope) for each in options), key=lambda each: each.name):
            by_name.setdefault(option.name, []).append(option)
        merged = [each for name, group in by_name.items() for each in self._merge_all(name, group)]
        return tuple(replace(each, value=self._value(each.value, scope, is_top=True)) for each in merged)

    def _qualify(self, option: Option, scope: str) -> Option:
        """Give a known extension its full name, and convert the path after it, or after `features`, to a map."""
        if not option.is_extension and option.name.startswith("features."):
            first, *path = option.name.split(".")
            return Option(first, reduce(lambda value, name: {name: value}, reversed(path), option.value))
        name = self._names.find_extension(option.name, scope) if option.is_extension else None
        return option if name is None else Option(name, _path_to_map(option.value), is_extension=True)

    def _merge_all(self, name: str, options: list[Option]) -> list[Option]:
        field = self._names.extension_fields.get(name) if options[0].is_extension else None
        if name == "features" and not options[0].is_extension:
            field = Field(name, "google.protobuf.FeatureSet", 0)
        if field is None or field.label == "repeated":
            return options
        return [reduce(lambda one, other: self._merge(field, one, other), options)]

    def _merge(self, field: Field, one: Option, other: Option) -> Option:
        if not isinstance(one.value, Mapping) or not isinstance(other.value, Mapping):
            return other
        return replace(other, value=self._merge_maps(field, one.value, other.value))

    def _merge_maps(
        self, field: Field | None, one: Mapping[str, Value], other: Mapping[str, Value]
    ) -> Mapping[str, Value]:
        message = self._message_of(field)
        merged = dict(one)
        for key, value in other.items():
            inner = None if message is None else message.find_field(key)
            merged[key] = self._merge_values(inner, merged[key], value) if key in merged else value
        return merged

    def _merge_values(self, field: Field | None, one: Value, other: Value) -> Value:
        if field is not None and field.label != "repeated" and field.key_type is None:
            if isinstance(one, Mapping) and isinstance(other, Mapping) and self._message_of(field) is not None:
                return self._merge_maps(field, one, other)
            return other
        return tuple({_hashable(each): each for each in flatten((one, other))}.values())

    def _message_of(self, field: Field | None) -> Message | None:
        found = None if field is None else self._names.find(field.type, self._file.package)
        return found.element if found is not None and isinstance(found.element, Message) else None

    def _value(self, value: Value, scope: str, *, is_top: bool = False) -> Value:
        if isinstance(value, Word):
            return Word(_normal_number(value.text)) if value.is_number else value
        if isinstance(value, Option):
            return replace(value, value=self._value(value.value, scope, is_top=True))
        if isinstance(value, Mapping):
            named = {self._key(key, scope): each for key, each in value.items() if each != ()}
            return {key: self._value(named[key], scope) for key in sorted(named)}
        if isinstance(value, tuple):
            values = tuple(self._value(each, scope) for each in value)
            return values[0] if len(values) == 1 and not is_top else values
        return value

    def _key(self, key: str, scope: str) -> str:
        name = self._names.find_extension(key[1:-1], scope) if key.startswith("[") else None
        return key if name is None else f"[{name}]"


def _path_to_map(value: Value) -> Value:
    return {value.name: _path_to_map(value.value)} if isinstance(value, Option) else value


def _hashable(value: Value) -> Hashable:
    """Return a hashable object that is equal for equal values only."""
    if isinstance(value, Mapping):
        return frozenset((key, _hashable(each)) for key, each in value.items())
    if isinstance(value, tuple):
        return tuple(map(_hashable, value))
    if isinstance(value, Option):
        return (value.name, value.is_extension, _hashable(value.value))
    return value


def _normal_default(field: Field) -> str | Word | None:
    """Return the default value; numbers in the descriptor's form, in which equal numbers have equal text."""
    if not isinstance(field.default, Word) or field.type not in SCALAR_TYPES or field.type == "bool":
        return field.default
    text = field.default.text
    is_float = field.type in {"float", "double"}
    return Word(float_text(to_float(text)) if is_float else str(parse_integer(text)))


def _normal_number(text: str) -> str:
    """Return a number in decimal, without exponent and trailing zeros; other texts and very long numbers unchanged."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    integer = to_integer(digits)
    if integer is not None:
        return f"{sign}{integer}" if integer < _INTEGER_LIMIT else text
    try:
        number = Decimal(text.rstrip("fF"))
    except InvalidOperation:
        return text
    if not number.is_finite() or abs(number.adjusted()) > _EXPONENT_MAX:
        return text
    return f"{number:f}".rstrip("0").rstrip(".") if "." in f"{number:f}" else f"{number:f}"


def _split_reserved(reserved: Iterable[Reserved]) -> tuple[Reserved, ...]:
    """Return one statement per value, numbers first."""
    values = [_flatten_any(value) for each in reserved for value in each.values]
    return tuple(Reserved((value,)) for value in sorted(values, key=_reserved_key))


def _reserved_key(value: ReservedValue) -> tuple[bool, int, str]:
    return (True, 0, value) if isinstance(value, str) else (False, _start(value), "")


def _flatten_any(value: ReservedValue) -> ReservedValue:
    return value if isinstance(value, str) else _flatten(value)


def _flatten(value: int | Span) -> int | Span:
    return value.start if isinstance(value, Span) and value.start == value.end else value


def _start(value: int | Span) -> int:
    return value.start if isinstance(value, Span) else value


def _first_tag(oneof: OneOf) -> int:
    return min([*(each.number for each in oneof.fields), *(each.number for each in oneof.groups)], default=0)
