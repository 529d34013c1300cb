"""The differences between two schemas by the rules of Confluent's registry, and which of them are incompatible.

Fields are compared by their tags, wherever they are in the message. An imported type is compared in the schema that the
import refers to, unless both sides refer to the same version of the same subject. A path consists of the messages and
then the tag: `#/Order/Line/2`; for a field in a oneof, the oneof's name comes before the tag.

Where Confluent's registry is lenient, so is this. Labels are compared only if both sides have one, so that a field may
change from `repeated int32` to `int32`; fields other than numbers may change to `required`. Groups, extensions and the
features of editions (including a field that is required by such a feature) are not compared.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from rookery.schemas.bounds import take_first
from rookery.schemas.interface import Incompatibility, Reference
from rookery.schemas.protobuf.elements import SCALAR_TYPES, Enum, Field, File, Message
from rookery.schemas.protobuf.names import Names, TypeInfo, join

DESCRIPTIONS: Final[Mapping[str, str]] = {
    "PACKAGE_CHANGED": (
        "The package at '{path}' in the {reader} schema does not match the package in the {writer} schema"
    ),
    "MESSAGE_REMOVED": "The {reader} schema is missing a MESSAGE type at path '{path}' in the {writer} schema",
    "FIELD_KIND_CHANGED": (
        "The type of a field at path '{path}' in the {reader} schema does not match the {writer} schema"
    ),
    "FIELD_SCALAR_KIND_CHANGED": (
        "The kind of a SCALAR field at path '{path}' in the {reader} schema"
        " does not match its kind in the {writer} schema"
    ),
    "FIELD_NAMED_TYPE_CHANGED": (
        "The type of a MESSAGE field at path '{path}' in the {reader} schema"
        " does not match its type in the {writer} schema"
    ),
    "FIELD_NUMERIC_LABEL_CHANGED": (
        "The label for a NUMERIC field at path '{path}' in the {reader} schema"
        " does not match its label in the {writer} schema"
    ),
    # Confluent's message has two spaces.
    "REQUIRED_FIELD_ADDED": (
        "A required field  at path '{path}' in the {reader} schema is missing in the {writer} schema"
    ),
    "REQUIRED_FIELD_REMOVED": (
        "The {reader} schema is missing a required field at path: '{path}' in the {writer} schema"
    ),
    "ONEOF_FIELD_REMOVED": "The {reader} schema is missing a oneof field at path '{path}' in the {writer} schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "Multiple fields in the oneof at path '{path}' in the {reader} schema"
        " are outside a oneof in the {writer} schema"
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": (
        "A field in the oneof at path '{path}' in the {reader} schema"
        " is outside an existing oneof in the {writer} schema"
    ),
}
"""The kinds of differences that are incompatible, with their messages. All other kinds are compatible."""

_NUMBER: Final = "number"
_TEXT: Final = "text"
_SCALAR_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool"), _NUMBER),
    **dict.fromkeys(("sint32", "sint64"), "signed"),
    **dict.fromkeys(("fixed32", "sfixed32"), "fixed32"),
    **dict.fromkeys(("fixed64", "sfixed64"), "fixed64"),
    **dict.fromkeys(("string", "bytes"), _TEXT),
    "float": "float",
    "double": "double",
}
"""Scalar types of the same kind can read each other's bytes. Enums are numbers."""


class Difference(NamedTuple):
    kind: str
    path: str


class ProtobufIncompatibility(Incompatibility):
    """Confluent's registry formats the messages for Protobuf with double quotes."""

    def describe(self, reader: str, writer: str) -> str:
        text = self.description.replace("{reader}", reader).replace("{writer}", writer)
        return f'{{errorType:"{self.kind}", description:"{text}"}}'


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two schemas. `references` are its direct references, by name."""

    file: File
    names: Names
    references: Mapping[str, Reference]

    def find_origin(self, found: TypeInfo) -> tuple[str, int] | None:
        """Return the subject and version that a type comes from.

        Returns ("", -1) for a type of the schema itself, and None for a type that no direct reference contains: one of
        a well-known file, or of a reference of a reference.
        """
        if not found.file_name:
            return ("", -1)
        reference = self.references.get(found.file_name)
        return None if reference is None else (reference.subject, reference.version)


def compare(old: Side, new: Side) -> list[Difference]:
    """Return all differences, compatible or not, each once."""
    comparison = _Comparison(old, new)
    if old.file.package != new.file.package:
        comparison.add("PACKAGE_CHANGED")
    _run(comparison.types(old.file, new.file))
    return list(comparison.differences)


def to_incompatibilities(differences: Sequence[Difference]) -> list[Incompatibility]:
    """Return the incompatible ones of the differences, at most as many as `take_first` allows."""
    return take_first(
        ProtobufIncompatibility(each.kind, DESCRIPTIONS[each.kind].replace("{path}", each.path), each.path)
        for each in differences
        if each.kind in DESCRIPTIONS
    )


class _FieldType(NamedTuple):
    """The type of a field: a scalar or enum, a message, or a map (if `key` is not None)."""

    name: str
    key: str | None = None
    found: TypeInfo | None = None

    @property
    def kind(self) -> str:
        if self.key is not None:
            return "map"
        is_scalar = self.name in SCALAR_TYPES or (self.found is not None and isinstance(self.found.element, Enum))
        return "scalar" if is_scalar else "message"

    @property
    def scalar_kind(self) -> str:
        return _SCALAR_KINDS.get(self.name, _NUMBER)


@dataclass(slots=True)
class _Fields:
    """The fields of a message by tag, and the oneofs that contain them."""

    by_tag: dict[int, Field] = field(default_factory=dict)
    oneofs: dict[str, list[int]] = field(default_factory=dict)
    oneof_of: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, message: Message) -> "_Fields":
        fields = cls({each.number: each for each in message.fields})
        for oneof in message.oneofs:
            fields.oneofs[oneof.name] = [each.number for each in oneof.fields]
            for each in oneof.fields:
                fields.by_tag[each.number] = each
                fields.oneof_of[each.number] = oneof.name
        return fields


_Walk: TypeAlias = Generator["_Walk", None, None]
"""Yields walks that must be completed before it continues. A recursive function would not do: a chain of imports can be
as long as there are messages, which is deeper than the interpreter's stack."""


class _Comparison:
    """Walks through both schemas simultaneously.

    `differences` holds each difference once, in order. `_path` is the current path; `_scopes` are the scopes in which
    names are looked up; `_is_broken` says whether an incompatible difference was found so far. `_compared` holds the
    same for imported messages, whose differences do not depend on the path that leads to them.
    """

    def __init__(self, old: Side, new: Side) -> None:
        self.differences: dict[Difference, None] = {}
        self._old = old
        self._new = new
        self._path: list[str] = []
        self._scopes = (old.file.package, new.file.package)
        self._is_broken = False
        self._compared: dict[tuple[int, int], bool] = {}

    def add(self, kind: str, *path: str) -> None:
        self.differences[Difference(kind, "#/" + "/".join([*self._path, *path]))] = None
        self._is_broken |= kind in DESCRIPTIONS

    # Messages and enums.

    def types(self, old: File | Message, new: File | Message) -> _Walk:
        old_messages, new_messages = ({each.name: each for each in side.messages} for side in (old, new))
        moved = _find_moved([*old_messages], [*new_messages])
        for name in sorted(old_messages.keys() | new_messages.keys()):
            with self._enter(name):
                yield from self._message_pair(old_messages.get(name), new_messages.get(name))
                # Message indexes refer to the schema that the data was written with, so a move is compatible.
                if name in moved:
                    self.add("MESSAGE_MOVED")
        old_enums, new_enums = ({each.name: each for each in side.enums} for side in (old, new))
        for name in sorted(old_enums.keys() | new_enums.keys()):
            with self._enter(name):
                self._enum_pair(old_enums.get(name), new_enums.get(name))

    @contextmanager
    def _enter(self, name: str) -> Iterator[None]:
        scopes = self._scopes
        self._scopes = (join(scopes[0], name), join(scopes[1], name))
        self._path.append(name)
        yield
        self._path.pop()
        self._scopes = scopes

    def _message_pair(self, old: Message | None, new: Message | None) -> _Walk:
        if old is not None and new is not None:
            yield from self._message(old, new)
        elif old is not None and not old.is_map_entry:
            self.add("MESSAGE_REMOVED")
        elif new is not None and not new.is_map_entry:
            self.add("MESSAGE_ADDED")

    def _enum_pair(self, old: Enum | None, new: Enum | None) -> None:
        if old is None or new is None:
            self.add("ENUM_ADDED" if old is None else "ENUM_REMOVED")
            return
        old_names, new_names = ({each.number: each.name for each in side.values} for side in (old, new))
        for number in sorted(old_names.keys() | new_names.keys()):
            if number not in new_names:
                self.add("ENUM_CONST_REMOVED", str(number))
            elif number not in old_names:
                self.add("ENUM_CONST_ADDED", str(number))
            elif old_names[number] != new_names[number]:
                self.add("ENUM_CONST_CHANGED", str(number))

    def _message(self, old: Message, new: Message) -> _Walk:
        old_fields, new_fields = _Fields.of(old), _Fields.of(new)
        self._new_exclusions(old_fields, new_fields)
        self._oneofs(old_fields, new_fields)
        gone = _find_gone(old_fields, new_fields)
        for tag in sorted(old_fields.by_tag.keys() | new_fields.by_tag.keys()):
            yield from self._tag(tag, old_fields, new_fields, gone)
        yield from self.types(old, new)

    # Oneofs.

    def _new_exclusions(self, old: _Fields, new: _Fields) -> None:
        """Report fields that could be set together and now cannot, because they were moved into one oneof."""
        for name, tags in new.oneofs.items():
            from_top = [tag for tag in tags if tag in old.by_tag and tag not in old.oneof_of]
            from_oneofs = {old.oneof_of[tag] for tag in tags if tag in old.oneof_of}
            if len(from_top) + len(from_oneofs) > 1:
                self.add(
                    "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if len(from_top) > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF", name
                )

    def _oneofs(self, old: _Fields, new: _Fields) -> None:
        for name in sorted(old.oneofs.keys() ^ new.oneofs.keys()):
            self.add("ONEOF_REMOVED" if name in old.oneofs else "ONEOF_ADDED", name)

    # Fields.

    def _tag(self, tag: int, old: _Fields, new: _Fields, gone: set[str]) -> _Walk:
        old_field, new_field = old.by_tag.get(tag), new.by_tag.get(tag)
        if new_field is None and old_field is not None:
            self._removed(old_field, old, gone)
        elif old_field is None and new_field is not None:
            self._added(new_field, new)
        elif old_field is not None and new_field is not None:
            oneof = new.oneof_of.get(tag)
            if oneof is None and tag in old.oneof_of:
                self.add("ONEOF_FIELD_MOVED_TO_TOP_LEVEL", str(tag))
            path = [str(tag)] if oneof is None else [oneof, str(tag)]
            self._path += path
            yield from self._field(old_field, new_field)
            del self._path[-len(path) :]

    def _removed(self, removed: Field, old: _Fields, gone: set[str]) -> None:
        oneof = old.oneof_of.get(removed.number)
        if oneof is None:
            self.add("REQUIRED_FIELD_REMOVED" if removed.label == "required" else "FIELD_REMOVED", str(removed.number))
        elif oneof not in gone:
            self.add("ONEOF_FIELD_REMOVED", oneof, str(removed.number))

    def _added(self, added: Field, new: _Fields) -> None:
        oneof = new.oneof_of.get(added.number)
        if oneof is not None:
            self.add("ONEOF_FIELD_ADDED", oneof, str(added.number))
        else:
            self.add("REQUIRED_FIELD_ADDED" if added.label == "required" else "FIELD_ADDED", str(added.number))

    def _field(self, old: Field, new: Field) -> _Walk:
        if old.name != new.name:
            self.add("FIELD_NAME_CHANGED")
        old_type = self._type(self._old, self._scopes[0], old.type, old.key_type)
        new_type = self._type(self._new, self._scopes[1], new.type, new.key_type)
        yield from self._types(old_type, new_type, (old.label, new.label))

    @staticmethod
    def _type(side: Side, scope: str, name: str, key: str | None = None) -> _FieldType:
        if key is not None or name in SCALAR_TYPES:
            return _FieldType(name, key)
        found = side.names.find(name, scope)
        if found is not None and isinstance(found.element, Message) and found.element.is_map_entry:
            key_field, value_field = found.element.find_field("key"), found.element.find_field("value")
            if key_field is not None and value_field is not None:
                return _FieldType(value_field.type, key_field.type)
        return _FieldType(name, None, found)

    def _types(self, old: _FieldType, new: _FieldType, labels: tuple[str | None, str | None]) -> _Walk:
        if old.kind != new.kind:
            self.add("FIELD_KIND_CHANGED")
        elif old.kind == "scalar":
            self._scalars(old, new, labels)
        elif old.kind == "message":
            yield from self._message_types(old, new)
        else:
            assert old.key is not None
            assert new.key is not None
            yield from self._part(old.key, new.key)
            yield from self._part(old.name, new.name)

    def _part(self, old: str, new: str) -> _Walk:
        """Compare the key types or the value types of two maps."""
        old_type, new_type = self._type(self._old, self._scopes[0], old), self._type(self._new, self._scopes[1], new)
        yield from self._types(old_type, new_type, (None, None))

    def _scalars(self, old: _FieldType, new: _FieldType, labels: tuple[str | None, str | None]) -> None:
        if old.scalar_kind != new.scalar_kind:
            self.add("FIELD_SCALAR_KIND_CHANGED")
        elif None not in labels and labels[0] != labels[1]:
            is_text = old.scalar_kind == _TEXT
            self.add("FIELD_STRING_OR_BYTES_LABEL_CHANGED" if is_text else "FIELD_NUMERIC_LABEL_CHANGED")

    def _message_types(self, old: _FieldType, new: _FieldType) -> _Walk:
        if old.found is None or new.found is None:
            if old.name != new.name:
                self.add("FIELD_NAMED_TYPE_CHANGED")
        elif old.found.local_name != new.found.local_name:
            self.add("FIELD_NAMED_TYPE_CHANGED")
        else:
            yield from self._imported(old.found, new.found)

    def _imported(self, old: TypeInfo, new: TypeInfo) -> _Walk:
        """Compare two imported messages. The schemas' own types are compared where they are defined."""
        old_origin, new_origin = self._old.find_origin(old), self._new.find_origin(new)
        if old_origin is not None and old_origin == new_origin:
            return
        assert isinstance(old.element, Message)
        assert isinstance(new.element, Message)
        key = (id(old.element), id(new.element))
        if key not in self._compared:
            # Set before the result is known, because messages may contain each other: without it, the comparison of
            # recursive messages would not end.
            self._compared[key] = False
            inner = self._inside(old, new)
            yield inner._message(old.element, new.element)
            self._compared[key] = inner._is_broken
        if self._compared[key]:
            self.add("FIELD_NAMED_TYPE_CHANGED")

    def _inside(self, old: TypeInfo, new: TypeInfo) -> "_Comparison":
        """Return a comparison for an imported message, which shares the results."""
        inner = _Comparison(self._old, self._new)
        inner._path = old.local_name.split(".")
        inner._scopes = (old.full_name, new.full_name)
        inner._compared = self._compared
        inner.differences = self.differences
        return inner


def _run(walk: _Walk) -> None:
    walks = [walk]
    while walks:
        inner = next(walks[-1], None)
        if inner is None:
            walks.pop()
        else:
            walks.append(inner)


def _find_moved(old: Sequence[str], new: Sequence[str]) -> set[str]:
    """Return the names whose index changed."""
    indexes = {name: index for index, name in enumerate(new)}
    return {name for index, name in enumerate(old) if indexes.get(name, index) != index}


def _find_gone(old: _Fields, new: _Fields) -> set[str]:
    """Return the oneofs that were removed together with all of their fields, which is compatible."""
    return {
        name
        for name, tags in old.oneofs.items()
        if name not in new.oneofs and not any(tag in new.by_tag for tag in tags)
    }
