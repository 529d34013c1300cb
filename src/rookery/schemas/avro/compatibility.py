"""Which schemas read which data: the rules of the specification's "Schema Resolution".

This does what Java's `SchemaCompatibility` does, in its order, because the registry's answers are made of its findings:
all of them, each with its path in the reader. The `avro` package has a checker as well. It is not used: it hands out
paths and messages as sets that no longer say which belongs to which, and it has no better rules.

A pair of types is compared once; while that goes on, a recursive type takes it for compatible. Where the assumption
turns out wrong, what was found by it is forgotten. Java keeps it, and so may overlook a recursive branch of a union.

The comparison of a pair is a generator that yields the pairs it wants compared and gets what was found: types that
refer to each other are as deep as there are types, which is deeper than the interpreter's stack.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from rookery.schemas.avro.model import MISSING, Array, Enum, Field, Fixed, Map, Name, Named, Node, Record, Union
from rookery.schemas.avro.schema import AvroSchema
from rookery.schemas.bounds import INCOMPATIBILITIES_MAX, PARTS_PER_STEP, TOO_COMPLEX, take_first
from rookery.schemas.interface import Incompatibility, Policy

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


# A second or two of work.
_STEPS_MAX = 200_000


class _Path(NamedTuple):
    """A way down, by its last step. It is written out only for what is reported."""

    before: "_Path | None"
    step: str

    def __str__(self) -> str:
        steps = []
        path: _Path | None = self
        while path is not None:
            steps.append(path.step)
            path = path.before
        return "".join(reversed(steps)) or "/"


_ROOT: Final = _Path(None, "")


class _Finding(NamedTuple):
    kind: str
    path: _Path
    detail: str

    def describe(self) -> Incompatibility:
        path = str(self.path)
        description = _DESCRIPTIONS[self.kind].format(path=path, detail=self.detail)
        return Incompatibility(self.kind, description, path, self.detail)


class _Wanted(NamedTuple):
    reader: Node
    writer: Node
    path: _Path = _ROOT

    @property
    def pair(self) -> "_Pair":
        return id(self.reader), id(self.writer)


_Pair: TypeAlias = tuple[int, int]
_Findings: TypeAlias = list[_Finding]
_Steps: TypeAlias = Generator[_Wanted, _Findings, _Findings]


def check(reader: AvroSchema, writer: AvroSchema, policy: Policy = "STRICT") -> list[Incompatibility]:
    """What keeps `reader` from reading data that `writer` wrote. The policy makes no difference to Avro."""
    found = _Comparison().compare(_Wanted(reader.root, writer.root))
    return [TOO_COMPLEX] if found is None else take_first(each.describe() for each in found)


@dataclass(slots=True)
class _Frame:
    """A pair whose comparison is under way. `lowest` is the depth of the outermost one that it takes for compatible,
    `assumed_before` how many results relied on such a thing when it began. If its own result does in the end, what
    relies on it relies on `outer`, too."""

    pair: _Pair
    steps: _Steps
    depth: int
    lowest: int
    assumed_before: int
    outer: "_Frame | None" = None

    def outermost(self) -> "_Frame":
        frame = self
        while frame.outer is not None:
            # The way is halved for those who come after.
            frame.outer = frame.outer.outer or frame.outer
            frame = frame.outer
        return frame


class _Comparison:
    """`_found` has what is known, `_open` the pairs under way, and `_assumed` those of `_found` that rely on one
    of them being compatible, in the order in which they were found."""

    def __init__(self) -> None:
        self._found: dict[_Pair, _Findings] = {}
        self._open: dict[_Pair, _Frame] = {}
        self._assumed: dict[_Pair, _Frame] = {}
        self._steps_left = _STEPS_MAX
        self._rules = _Rules()

    def compare(self, root: _Wanted) -> _Findings | None:
        """None if there is too much to compare."""
        frames: list[_Frame] = []
        answer = self._begin(root, frames)
        while frames:
            self._steps_left -= 1
            if self._steps_left < 0:
                return None
            try:
                wanted = frames[-1].steps.send(answer)  # type: ignore[arg-type]  # None starts it
            except StopIteration as stop:
                answer = self._end(frames, stop.value)
            else:
                answer = self._recall(wanted.pair, frames[-1])
                if answer is None:
                    answer = self._begin(wanted, frames)
        return answer

    def _recall(self, pair: _Pair, frame: _Frame) -> _Findings | None:
        assumed = self._open.get(pair) or self._assumed.get(pair)
        if assumed is not None:
            frame.lowest = min(frame.lowest, assumed.outermost().depth)
            return []
        return self._found.get(pair)

    def _begin(self, wanted: _Wanted, frames: list[_Frame]) -> _Findings | None:
        """What was found, if that takes no further comparisons."""
        self._steps_left -= (_count_parts(wanted.reader) + _count_parts(wanted.writer)) // PARTS_PER_STEP
        found = self._rules.apply(*wanted)
        if isinstance(found, list):
            self._found[wanted.pair] = found
            return found
        depth = len(frames)
        frames.append(_Frame(wanted.pair, found, depth, depth, len(self._assumed)))
        self._open[wanted.pair] = frames[-1]
        return None

    def _end(self, frames: list[_Frame], found: _Findings) -> _Findings:
        frame = frames.pop()
        del self._open[frame.pair]
        is_certain = bool(found) or frame.lowest == frame.depth
        while is_certain and len(self._assumed) > frame.assumed_before:
            pair, _ = self._assumed.popitem()
            if found:
                del self._found[pair]
        self._found[frame.pair] = found[:INCOMPATIBILITIES_MAX]
        if not is_certain:
            frame.outer = self._assumed[frame.pair] = frames[frame.lowest]
            frames[-1].lowest = min(frames[-1].lowest, frame.lowest)
        return self._found[frame.pair]


def _count_parts(node: Node) -> int:
    return len(node.fields) if isinstance(node, Record) else len(node.symbols) if isinstance(node, Enum) else 0


class _Branches:
    """Those of a union, by what a writer's type must have in common with them to be read."""

    def __init__(self, union: Union) -> None:
        self._unnamed: list[Node] = []
        self._named: dict[tuple[str, str | Name], list[Node]] = {}
        for branch in union.branches:
            if not isinstance(branch, Named):
                self._unnamed.append(branch)
                continue
            names: list[str | Name] = [branch.name.simple, *branch.aliases]
            for name in names:
                self._named.setdefault((branch.type, name), []).append(branch)

    def find(self, writer: Node) -> list[Node]:
        if not isinstance(writer, Named):
            return self._unnamed
        keys = (writer.type, writer.name.simple), (writer.type, writer.name)
        return [branch for key in keys for branch in self._named.get(key, ())]


class _Rules:
    def __init__(self) -> None:
        self._branches: dict[int, _Branches] = {}

    def apply(self, reader: Node, writer: Node, path: _Path) -> _Findings | _Steps:
        match reader, writer:
            case Array(), Array():
                return _compare_parts(reader.items, writer.items, _Path(path, "/items"))
            case Map(), Map():
                return _compare_parts(reader.values, writer.values, _Path(path, "/values"))
            case Fixed(), Fixed():
                return [*_compare_names(reader, writer, path), *_compare_sizes(reader, writer, path)]
            case Enum(), Enum():
                return [*_compare_names(reader, writer, path), *_compare_symbols(reader, writer, path)]
            case Record(), Record():
                return _compare_records(reader, writer, path)
            case Union(), Union():
                return _compare_unions(reader, writer, path)
            case _, Union():
                return _compare_with_branches(reader, writer, path)
            case Union(), _:
                return self._compare_branches(reader, writer, path)
            case _ if reader.type == writer.type or writer.type in _PROMOTIONS.get(reader.type, ()):
                return []
            case _:
                return [_type_mismatch(reader, writer, path)]

    def _compare_branches(self, reader: Union, writer: Node, path: _Path) -> _Steps:
        branches = self._branches.get(id(reader))
        if branches is None:
            branches = self._branches[id(reader)] = _Branches(reader)
        for branch in branches.find(writer):
            if not (yield _Wanted(branch, writer)):
                return []
        return [_missing_branch(writer, path)]


def _compare_parts(reader: Node, writer: Node, path: _Path) -> _Steps:
    return (yield _Wanted(reader, writer, path))


def _compare_unions(reader: Union, writer: Union, path: _Path) -> _Steps:
    found = []
    for index, branch in enumerate(writer.branches):
        if (yield _Wanted(reader, branch)):
            found.append(_missing_branch(branch, _Path(path, f"/{index}")))
    return found


def _compare_with_branches(reader: Node, writer: Union, path: _Path) -> _Steps:
    found = []
    for index, branch in enumerate(writer.branches):
        found += yield _Wanted(reader, branch, _Path(path, f"/{index}"))
    return found


def _compare_records(reader: Record, writer: Record, path: _Path) -> _Steps:
    found = _compare_names(reader, writer, path)
    for index, field in enumerate(reader.fields.values()):
        names = [name for name in (field.name, *field.aliases) if name in writer.fields]
        if len(names) > 1:
            found.append(_Finding("READER_FIELD_AMBIGUOUS", _Path(path, f"/fields/{index}"), field.name))
        elif names:
            found += yield _Wanted(field.type, writer.fields[names[0]].type, _Path(path, f"/fields/{index}/type"))
        elif field.default is MISSING:
            found.append(_missing_field(field, writer, _Path(path, f"/fields/{index}")))
    return found


def _compare_names(reader: Named, writer: Named, path: _Path) -> _Findings:
    """Namespaces do not matter, unless an alias is needed."""
    if reader.name.simple == writer.name.simple or writer.name in reader.aliases:
        return []
    return [_Finding("NAME_MISMATCH", _Path(path, "/name"), f"expected: {writer.full_name}")]


def _compare_sizes(reader: Fixed, writer: Fixed, path: _Path) -> _Findings:
    if reader.size == writer.size:
        return []
    return [_Finding("FIXED_SIZE_MISMATCH", _Path(path, "/size"), f"expected: {writer.size}, found: {reader.size}")]


def _compare_symbols(reader: Enum, writer: Enum, path: _Path) -> _Findings:
    missing = sorted(set(writer.symbols) - set(reader.symbols))
    if not missing or reader.default is not None:
        return []
    return [_Finding("MISSING_ENUM_SYMBOLS", _Path(path, "/symbols"), f"[{', '.join(missing)}]")]


def _missing_field(field: Field, writer: Record, path: _Path) -> _Finding:
    if isinstance(field.type, Enum) and field.type.default is not None:
        # The default of an enum stands in for unknown symbols, not for a missing field; Java words it like this.
        return _type_mismatch(field.type, writer, _Path(path, "/type"))
    return _Finding("READER_FIELD_MISSING_DEFAULT_VALUE", path, field.name)


def _missing_branch(writer: Node, path: _Path) -> _Finding:
    return _Finding("MISSING_UNION_BRANCH", path, f"reader union lacking writer type: {writer.type.upper()}")


def _type_mismatch(reader: Node, writer: Node, path: _Path) -> _Finding:
    detail = f"reader type: {reader.type.upper()} not compatible with writer type: {writer.type.upper()}"
    return _Finding("TYPE_MISMATCH", path, detail)
