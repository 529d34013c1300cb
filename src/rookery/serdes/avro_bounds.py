"""Limits that protect the process: fastavro's compiled code checks neither its stack nor its memory.

depth    Each level of nested records takes stack, on writing and on reading; a deep value would overflow it.
items    An item of zero bytes (null, a record without fields) takes memory, and a few bytes of data can announce
         any number of them.

The checks walk in Python, without recursion, over the whole value or data. They run only for schemas that allow such
data (`find_risk`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rookery.records.record import read_varint
from rookery.schemas.avro.model import Array, Enum, Fixed, Map, Node, Record, Union

DEPTH_MAX: Final = 500
# In data each union adds a level for its branch.
_DATA_DEPTH_MAX: Final = 2 * DEPTH_MAX + 2
# A level takes at least one byte, so data of this size cannot be too deep.
_SIZE_SAFE: Final = 200
# The number of zero-byte items that is allowed in addition to one per byte of data.
_EMPTY_ITEMS_MAX: Final = 10_000
_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class Risk(NamedTuple):
    """What the data of a schema can do.

    `is_recursive`: a record can contain a record of the same type.
    `is_unbounded`: a few bytes can announce any number of zero-byte items, or a record contains itself endlessly.
    """

    is_recursive: bool
    is_unbounded: bool


def find_risk(root: Node) -> Risk:
    nodes = list(walk(root))
    has_empty_items = any(isinstance(node, Array) and _is_empty(node.items, {}) for node in nodes)
    is_endless = _has_cycle(nodes, lambda node: [each for each in _parts(node) if isinstance(each, Record)])
    return Risk(is_recursive=_has_cycle(nodes, _parts), is_unbounded=has_empty_items or is_endless)


def walk(root: Node) -> Iterator[Node]:
    """Yield each node of a schema once."""
    seen, pending = {root}, [root]
    while pending:
        node = pending.pop()
        yield node
        new = [each for each in dict.fromkeys(_parts(node)) if each not in seen]
        seen.update(new)
        pending += new


def check_value(risk: Risk, value: Any) -> None:
    """Check a value before it is written. Raises ValueError if it is too deep, as a cyclic value always is."""
    if not risk.is_recursive:
        return
    stack = [iter((value,))]
    while stack:
        part = next(stack[-1], stack)
        if part is stack:
            stack.pop()
        elif isinstance(part, Mapping):
            stack.append(iter(part.values()))
        elif isinstance(part, Sequence) and not isinstance(part, str | bytes):
            stack.append(iter(part))
        if len(stack) > DEPTH_MAX:
            raise ValueError(f"it is more than {DEPTH_MAX} levels deep, or contains itself")


def check_data(risk: Risk, root: Node, data: bytes) -> None:
    """Check data before it is read.

    Raises ValueError if it exceeds a limit, IndexError or EOFError if it is truncated.
    """
    if not (risk.is_unbounded or (risk.is_recursive and len(data) > _SIZE_SAFE)):
        return
    scan = _Scan(data)
    stack: list[Iterator[Node]] = [iter((root,))]
    while stack:
        node = next(stack[-1], None)
        if node is None:
            stack.pop()
            continue
        stack.append(iter(scan.enter(node)))
        if len(stack) > _DATA_DEPTH_MAX:
            raise ValueError(f"it is more than {DEPTH_MAX} levels deep")


class _Scan:
    """Walks over encoded data without decoding values."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self._empty_items_left = len(data) + _EMPTY_ITEMS_MAX
        # The results of `_is_empty` for the records seen so far.
        self._known: dict[Node, bool] = {}

    def enter(self, node: Node) -> Iterable[Node]:
        """Skip the node's own bytes, and return the nodes whose data follows inside of it."""
        match node:
            case Record():
                return (field.type for field in node.fields.values())
            case Union():
                return (node.branches[self._read_count()],)
            case Array() if _is_empty(node.items, self._known):
                self._skip_empty_items()
            case Array():
                return self._blocks(node.items)
            case Map():
                return self._blocks(_KEY, node.values)
            case Fixed():
                self._skip(node.size)
            case _ if isinstance(node, Enum) or node.type in ("int", "long"):
                self._read()
            case _:
                self._skip(_SIZES[node.type] if node.type in _SIZES else self._read_count())
        return ()

    def _blocks(self, *item: Node) -> Iterator[Node]:
        while count := self._read_block():
            for _ in range(count):
                yield from item

    def _skip_empty_items(self) -> None:
        while count := self._read_block():
            self._empty_items_left -= count
            if self._empty_items_left < 0:
                raise ValueError("it announces more items than it has bytes")

    def _read_block(self) -> int:
        """Return the number of items in the next block. After a negative count follows the block's size in bytes."""
        count = self._read()
        if count < 0:
            self._read()
        return abs(count)

    def _read(self) -> int:
        value, self._position = read_varint(self._data, self._position)
        return value

    def _read_count(self) -> int:
        count = self._read()
        if count < 0:
            raise ValueError(f"{count} is not a valid count")
        return count

    def _skip(self, size: int) -> None:
        self._position += size
        if self._position > len(self._data):
            raise EOFError("it is cut off")


_KEY: Final = Node("string", {})


def _parts(node: Node) -> Iterable[Node]:
    match node:
        case Record():
            return [field.type for field in node.fields.values()]
        case Union():
            return node.branches
        case Array():
            return (node.items,)
        case Map():
            return (node.values,)
        case _:
            return ()


def _is_empty(node: Node, known: dict[Node, bool]) -> bool:
    """Whether values of the type take zero bytes. A record that always contains itself is endless, and not empty."""
    match node:
        case Record():
            if node not in known:
                known[node] = False
                known[node] = all(_is_empty(field.type, known) for field in node.fields.values())
            return known[node]
        case Fixed():
            return node.size == 0
        case _:
            return node.type == "null"


def _has_cycle(nodes: Iterable[Node], parts: Callable[[Node], Iterable[Node]]) -> bool:
    done: set[Node] = set()
    inside: set[Node] = set()

    def visit(node: Node) -> bool:
        if node in done:
            return False
        if node in inside:
            return True
        inside.add(node)
        found = any(visit(each) for each in parts(node))
        inside.remove(node)
        done.add(node)
        return found

    return any(visit(node) for node in nodes)
