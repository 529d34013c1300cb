"""Compatibility of Avro schemas, by the rules of the specification's section "Schema Resolution".

The checks are those of Java's `SchemaCompatibility`, in the same order, because the registry's responses contain all of
its findings, each with its path in the reader. The checker of the `avro` package is not used: it returns paths and
messages as separate sets, so that they cannot be matched to each other, and its rules are not better.

A pair of types is compared once. A recursive type that reaches a pair whose comparison is still open assumes that it is
compatible. If the pair turns out to be incompatible, the results that relied on the assumption are discarded. Java
keeps them, and so may miss an incompatibility in a recursive branch of a union.

The comparison of a pair is a generator: it yields the pairs that it needs compared, and is sent their findings. A
recursive function would not do: a chain of types that refer to each other can be as long as there are types, which is
deeper than the interpreter's stack.
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
    # Java raises an exception here: the data cannot be read.
    "READER_FIELD_AMBIGUOUS": (
        "The field '{detail}' at path '{path}' in the {{reader}} schema matches several fields in the {{writer}} schema"
    ),
}


# One or two seconds of work.
_STEPS_MAX = 200_000


class _Path(NamedTuple):
    """A path, as a linked list from its last step. Only the paths of reported findings become text."""

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


class _Task(NamedTuple):
    """A comparison to do. `path` is where the reader's type is."""

    reader: Node
    writer: Node
    path: _Path = _ROOT

    @property
    def pair(self) -> "_Pair":
        return id(self.reader), id(self.writer)


_Pair: TypeAlias = tuple[int, int]
_Findings: TypeAlias = list[_Finding]
_Steps: TypeAlias = Generator[_Task, _Findings, _Findings]


def check(reader: AvroSchema, writer: AvroSchema, policy: Policy = "STRICT") -> list[Incompatibility]:
    """Return the reasons why `reader` cannot read data of `writer`. The policy does not matter for Avro."""
    found = _Comparison().compare(_Task(reader.root, writer.root))
    return [TOO_COMPLEX] if found is None else take_first(each.describe() for each in found)


@dataclass(slots=True)
class _Frame:
    """A pair whose comparison is open.

    `lowest` is the smallest depth of an open pair that this one assumed to be compatible; its own `depth` if none.
    `assumed_before` is the number of provisional results when it began. If its own result is provisional in the end,
    `outer` is the open pair that it relies on; results that rely on this pair then rely on `outer`, too.
    """

    pair: _Pair
    steps: _Steps
    depth: int
    lowest: int
    assumed_before: int
    outer: "_Frame | None" = None

    def outermost(self) -> "_Frame":
        frame = self
        while frame.outer is not None:
            # Path halving, as in a union-find structure: later calls have a shorter way.
            frame.outer = frame.outer.outer or frame.outer
            frame = frame.outer
        return frame


class _Comparison:
    """One comparison of two schemas.

    `_found` holds the results, `_open` the pairs whose comparison is open, and `_assumed` the provisional results:
    those of `_found` that rely on an open pair being compatible, in the order in which they were found.
    """

    def __init__(self) -> None:
        self._found: dict[_Pair, _Findings] = {}
        self._open: dict[_Pair, _Frame] = {}
        self._assumed: dict[_Pair, _Frame] = {}
        self._steps_left = _STEPS_MAX
        self._rules = _Rules()

    def compare(self, root: _Task) -> _Findings | None:
        """Return the findings; None if the comparison takes too many steps."""
        frames: list[_Frame] = []
        result = self._begin(root, frames)
        while frames:
            self._steps_left -= 1
            if self._steps_left < 0:
                return None
            try:
                task = frames[-1].steps.send(result)  # type: ignore[arg-type]  # None starts the generator
            except StopIteration as stop:
                result = self._end(frames, stop.value)
            else:
                result = self._look_up(task.pair, frames[-1])
                if result is None:
                    result = self._begin(task, frames)
        return result

    def _look_up(self, pair: _Pair, frame: _Frame) -> _Findings | None:
        """Return the known or assumed result of a pair, on behalf of the comparison in `frame`."""
        assumed = self._open.get(pair) or self._assumed.get(pair)
        if assumed is not None:
            frame.lowest = min(frame.lowest, assumed.outermost().depth)
            return []
        return self._found.get(pair)

    def _begin(self, task: _Task, frames: list[_Frame]) -> _Findings | None:
        """Return the findings if no further comparisons are needed. If they are, push a frame and return None."""
        self._steps_left -= (_count_parts(task.reader) + _count_parts(task.writer)) // PARTS_PER_STEP
        found = self._rules.apply(*task)
        if isinstance(found, list):
            self._found[task.pair] = found
            return found
        depth = len(frames)
        frames.append(_Frame(task.pair, found, depth, depth, len(self._assumed)))
        self._open[task.pair] = frames[-1]
        return None

    def _end(self, frames: list[_Frame], found: _Findings) -> _Findings:
        frame = frames.pop()
        del self._open[frame.pair]
        # A pair with findings is incompatible whatever was assumed. One without is certain only if it relies on no open
        # pair further out. If it is incompatible, results that assumed the opposite must go: without this, a pair that
        # is compatible only by the wrong assumption would be reported as compatible.
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
    """The branches of a union, indexed by what a writer's type must share with a branch to be readable by it."""

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
            if not (yield _Task(branch, writer)):
                return []
        return [_missing_branch(writer, path)]


def _compare_parts(reader: Node, writer: Node, path: _Path) -> _Steps:
    return (yield _Task(reader, writer, path))


def _compare_unions(reader: Union, writer: Union, path: _Path) -> _Steps:
    found = []
    for index, branch in enumerate(writer.branches):
        if (yield _Task(reader, branch)):
            found.append(_missing_branch(branch, _Path(path, f"/{index}")))
    return found


def _compare_with_branches(reader: Node, writer: Union, path: _Path) -> _Steps:
    found = []
    for index, branch in enumerate(writer.branches):
        found += yield _Task(reader, branch, _Path(path, f"/{index}"))
    return found


def _compare_records(reader: Record, writer: Record, path: _Path) -> _Steps:
    found = _compare_names(reader, writer, path)
    for index, field in enumerate(reader.fields.values()):
        names = [name for name in (field.name, *field.aliases) if name in writer.fields]
        if len(names) > 1:
            found.append(_Finding("READER_FIELD_AMBIGUOUS", _Path(path, f"/fields/{index}"), field.name))
        elif names:
            found += yield _Task(field.type, writer.fields[names[0]].type, _Path(path, f"/fields/{index}/type"))
        elif field.default is MISSING:
            found.append(_missing_field(field, writer, _Path(path, f"/fields/{index}")))
    return found


def _compare_names(reader: Named, writer: Named, path: _Path) -> _Findings:
    """Compare simple names; namespaces matter only for aliases."""
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
        # The default of an enum replaces unknown symbols, not a missing field. Java reports it as a type mismatch.
        return _type_mismatch(field.type, writer, _Path(path, "/type"))
    return _Finding("READER_FIELD_MISSING_DEFAULT_VALUE", path, field.name)


def _missing_branch(writer: Node, path: _Path) -> _Finding:
    return _Finding("MISSING_UNION_BRANCH", path, f"reader union lacking writer type: {writer.type.upper()}")


def _type_mismatch(reader: Node, writer: Node, path: _Path) -> _Finding:
    detail = f"reader type: {reader.type.upper()} not compatible with writer type: {writer.type.upper()}"
    return _Finding("TYPE_MISMATCH", path, detail)
