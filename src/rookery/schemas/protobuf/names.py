"""The full names of the types and extension fields of several files, and the resolution of names in a scope.

A name is looked up as a whole, from the innermost scope outwards. A name with a leading dot is a full name.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from rookery.schemas.protobuf.elements import Enum, Extend, Field, File, Message


class TypeInfo(NamedTuple):
    """`file_name` is the import that defines the type; "" for the schema itself."""

    full_name: str
    element: Message | Enum
    package: str
    file_name: str

    @property
    def local_name(self) -> str:
        return self.full_name[len(self.package) + 1 :] if self.package else self.full_name


class Names:
    def __init__(self, files: Iterable[tuple[str, File]]) -> None:
        self.types: dict[str, TypeInfo] = {}
        self.extension_fields: dict[str, Field] = {}
        for file_name, file in files:
            self._collect_extends(file.package, file.extends)
            groups = [group.body for extend in file.extends for group in extend.groups]
            self._collect(file.package, [*file.messages, *groups], file.enums, (file.package, file_name))

    def find(self, name: str, scope: str) -> TypeInfo | None:
        return next((self.types[each] for each in candidates(name, scope) if each in self.types), None)

    def find_extension(self, name: str, scope: str) -> str | None:
        """Return the full name of an extension field."""
        return next((each for each in candidates(name, scope) if each in self.extension_fields), None)

    def _collect(self, scope: str, messages: Iterable[Message], enums: Iterable[Enum], source: tuple[str, str]) -> None:
        for enum in enums:
            self._add(join(scope, enum.name), enum, source)
        for message in messages:
            full_name = join(scope, message.name)
            self._add(full_name, message, source)
            self._collect_extends(full_name, message.extends)
            groups = [group.body for group in message.all_groups()]
            self._collect(full_name, [*message.messages, *groups], message.enums, source)

    def _add(self, full_name: str, element: Message | Enum, source: tuple[str, str]) -> None:
        self.types[full_name] = TypeInfo(full_name, element, *source)

    def _collect_extends(self, scope: str, extends: Iterable[Extend]) -> None:
        for extend in extends:
            for field in extend.fields:
                self.extension_fields[join(scope, field.name)] = field


def join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def candidates(name: str, scope: str) -> Iterator[str]:
    """Yield the full names that a name may refer to, the innermost first."""
    if name.startswith("."):
        yield name[1:]
        return
    while scope:
        yield f"{scope}.{name}"
        scope = scope.rpartition(".")[0]
    yield name


def visible_files(file: File, known: Mapping[str, File]) -> list[tuple[str, File]]:
    """Return the files whose types `file` can use: itself, its imports, and their public imports.

    Imports that are not in `known` are omitted.
    """
    found: dict[str, File] = {}
    pending = [each.name for each in file.imports]
    while pending:
        name = pending.pop()
        if name in known and name not in found:
            found[name] = known[name]
            pending += [each.name for each in known[name].imports if each.modifier == "public"]
    return [*found.items(), ("", file)]
