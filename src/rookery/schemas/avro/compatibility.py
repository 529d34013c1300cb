"""Which schemas read which data: the rules of the specification's "Schema Resolution".

This does what Java's `SchemaCompatibility` does, in its order, because the registry's answers are made of its findings:
all of them, each with its path in the reader. The `avro` package has a checker as well. It is not used: it hands out
paths and messages as sets that no longer say which belongs to which, and it has no better rules.

A pair of types is compared once; while that goes on, a recursive type takes it for compatible. Where the assumption
turns out wrong, what was found by it is forgotten. Java keeps it, and so may overlook a recursive branch of a union.
"""

from typing import Final

from rookery.schemas.avro.model import MISSING, Array, Enum, Field, Fixed, Map, Named, Node, Record, Union
from rookery.schemas.avro.schema import AvroSchema
from rookery.schemas.interface import Incompatibility

_PROMOTIONS: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
_DESCRIPTIONS: Final = {
    "FIXED_SIZE_MISMATCH": (
        "The size of FIXED type field at path '{path}' in the {{reader}} schema "
        "does not match with the {{writer}} schema"
    ),
    "TYPE_MISMATCH": (
        "The type (path '{path}') of a field in the {{reader}} schema does not match with the {{writer}} schema"
    ),
    "NAME_MISMATCH": "The name of the schema has changed (path '{path}')",
    "MISSING_ENUM_SYMBOLS": (
        "The {{reader}} schema is missing enum symbols '{detail}' at path '{path}' in the {{writer}} schema"
    ),
    "MISSING_UNION_BRANCH": (
        "The {{reader}} schema is missing a type inside a union field at path '{path}' in the {{writer}} schema"
    ),
    "READER_FIELD_MISSING_DEFAULT_VALUE": (
        "The field '{detail}' at path '{path}' in the {{reader}} schema has no default value "
        "and is missing in the {{writer}} schema"
    ),
    # Java gives up with an exception here: the data cannot be read.
    "READER_FIELD_AMBIGUOUS": (
        "The field '{detail}' at path '{path}' in the {{reader}} schema matches several fields in the {{writer}} schema"
    ),
}


def check(reader: AvroSchema, writer: AvroSchema) -> list[Incompatibility]:
    """What keeps `reader` from reading data that `writer` wrote."""
    return list(_Comparison().compare(reader.root, writer.root, ""))


class _Comparison:
    def __init__(self) -> None:
        self._found: dict[tuple[int, int], list[Incompatibility]] = {}

    def compare(self, reader: Node, writer: Node, path: str) -> list[Incompatibility]:
        pair = id(reader), id(writer)
        if pair in self._found:
            return self._found[pair]
        self._found[pair] = []
        earlier = len(self._found)
        found = self._compare_types(reader, writer, path)
        if found and len(self._found) > earlier:
            self._forget_compatible(earlier)
        self._found[pair] = found
        return found

    def _forget_compatible(self, earlier: int) -> None:
        for pair in list(self._found)[earlier:]:
            if not self._found[pair]:
                del self._found[pair]

    def _compare_types(self, reader: Node, writer: Node, path: str) -> list[Incompatibility]:
        match reader, writer:
            case Array(), Array():
                return self.compare(reader.items, writer.items, f"{path}/items")
            case Map(), Map():
                return self.compare(reader.values, writer.values, f"{path}/values")
            case Fixed(), Fixed():
                return [*_compare_names(reader, writer, path), *_compare_sizes(reader, writer, path)]
            case Enum(), Enum():
                return [*_compare_names(reader, writer, path), *_compare_symbols(reader, writer, path)]
            case Record(), Record():
                return [*_compare_names(reader, writer, path), *self._compare_fields(reader, writer, path)]
            case Union(), Union():
                return self._compare_unions(reader, writer, path)
            case _, Union():
                branches = enumerate(writer.branches)
                return [each for index, branch in branches for each in self.compare(reader, branch, f"{path}/{index}")]
            case Union(), _:
                return [] if self._reads(reader, writer) else [_missing_branch(writer, path)]
            case _ if reader.type == writer.type or writer.type in _PROMOTIONS.get(reader.type, ()):
                return []
            case _:
                return [_type_mismatch(reader, writer, path)]

    def _compare_unions(self, reader: Union, writer: Union, path: str) -> list[Incompatibility]:
        return [
            _missing_branch(branch, f"{path}/{index}")
            for index, branch in enumerate(writer.branches)
            if self.compare(reader, branch, "")
        ]

    def _reads(self, reader: Union, writer: Node) -> bool:
        return any(not self.compare(branch, writer, "") for branch in reader.branches)

    def _compare_fields(self, reader: Record, writer: Record, path: str) -> list[Incompatibility]:
        found = []
        for index, field in enumerate(reader.fields.values()):
            found += self._compare_field(field, writer, f"{path}/fields/{index}")
        return found

    def _compare_field(self, field: Field, writer: Record, path: str) -> list[Incompatibility]:
        names = [name for name in (field.name, *field.aliases) if name in writer.fields]
        if len(names) > 1:
            return [_incompatible("READER_FIELD_AMBIGUOUS", path, field.name)]
        if names:
            return self.compare(field.type, writer.fields[names[0]].type, f"{path}/type")
        if field.default is not MISSING:
            return []
        if isinstance(field.type, Enum) and field.type.default is not None:
            # The default of an enum stands in for unknown symbols, not for a missing field; Java words it like this.
            return [_type_mismatch(field.type, writer, f"{path}/type")]
        return [_incompatible("READER_FIELD_MISSING_DEFAULT_VALUE", path, field.name)]


def _compare_names(reader: Named, writer: Named, path: str) -> list[Incompatibility]:
    """Namespaces do not matter, unless an alias is needed."""
    if reader.name.simple == writer.name.simple or writer.name in reader.aliases:
        return []
    return [_incompatible("NAME_MISMATCH", f"{path}/name", f"expected: {writer.full_name}")]


def _compare_sizes(reader: Fixed, writer: Fixed, path: str) -> list[Incompatibility]:
    if reader.size == writer.size:
        return []
    return [_incompatible("FIXED_SIZE_MISMATCH", f"{path}/size", f"expected: {writer.size}, found: {reader.size}")]


def _compare_symbols(reader: Enum, writer: Enum, path: str) -> list[Incompatibility]:
    missing = sorted(set(writer.symbols) - set(reader.symbols))
    if not missing or reader.default is not None:
        return []
    return [_incompatible("MISSING_ENUM_SYMBOLS", f"{path}/symbols", f"[{', '.join(missing)}]")]


def _missing_branch(writer: Node, path: str) -> Incompatibility:
    return _incompatible("MISSING_UNION_BRANCH", path, f"reader union lacking writer type: {writer.type.upper()}")


def _type_mismatch(reader: Node, writer: Node, path: str) -> Incompatibility:
    detail = f"reader type: {reader.type.upper()} not compatible with writer type: {writer.type.upper()}"
    return _incompatible("TYPE_MISMATCH", path, detail)


def _incompatible(kind: str, path: str, detail: str) -> Incompatibility:
    where = path or "/"
    return Incompatibility(kind, _DESCRIPTIONS[kind].format(path=where, detail=detail), where, detail)
