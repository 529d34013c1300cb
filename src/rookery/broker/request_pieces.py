"""Cuts requests about many items into pieces, and joins the responses, so that no request blocks the event loop.

Most APIs have an independent result for each item of an array: partitions of topics, keys, groups. Such a request is
cut into pieces of a bounded number of items. The handler gets each piece as a request of its own, and the responses are
joined into one. Pure: `dispatch` calls the handler and pauses between the pieces.

A `Split` names the array in the request and in the response, level by level: `("topics", "partitions")` are the
partitions of the topics. A cut may go through a topic; its second half is then appended to the first. Which APIs are
split, and how, is in `broker.api_table`.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from rookery.base.bounds import ITEMS_PER_SLICE
from rookery.protocol.message import Message, Struct

Path: TypeAlias = tuple[str, ...]


class Split(NamedTuple):
    """Where the items are in request and response, and how many a piece has.

    `prepare` is called with the whole request before it is cut, for checks that concern several items, such as
    duplicates.
    """

    request: Path
    response: Path
    size: int = ITEMS_PER_SLICE
    prepare: Callable[[Any], None] | None = None


class Piece(NamedTuple):
    """A request with some of the items.

    `continued` is the number of levels that the piece's first item continues, for example 1 if it begins inside a topic
    of the piece before; 0 for the first piece.
    """

    message: Struct
    item_count: int
    continued: int


def exceeds(split: Split, request: Struct) -> bool:
    """Return whether a request has more items than one piece may have."""
    return _count(request, split.request, split.size) > split.size


def _count(message: Struct, path: Path, enough: int) -> int:
    """Return the number of items, or any number above `enough` if there are more than that."""
    items = vars(message).get(path[0])
    if items is None:
        return 0
    if len(path) == 1 or len(items) > enough:
        return len(items)
    total = 0
    for item in items:
        total += max(1, _count(item, path[1:], enough - total))
        if total > enough:
            break
    return total


def pieces(message: Struct, path: Path, size: int) -> Iterator[Piece]:
    """Yield the message with at most `size` items at a time. A topic without partitions counts as one item."""
    name, rest = path[0], path[1:]
    taken: list[Any] = []
    item_count = continued = 0
    for item in vars(message).get(name) or ():
        parts = pieces(item, rest, size) if rest else (Piece(item, 1, 0),)
        for part in parts:
            if taken and item_count + part.item_count > size:
                yield Piece(_with(message, name, taken), item_count, continued)
                taken, item_count, continued = [], 0, 1 + part.continued
            taken.append(part.message)
            item_count += part.item_count
    last = message if vars(message).get(name) is None else _with(message, name, taken)
    yield Piece(last, max(1, item_count), continued)


def _with(message: Struct, name: str, items: list[Any]) -> Struct:
    return Message(**{**vars(message), name: items})


def join(whole: Struct | None, response: Struct, path: Path, continued: int) -> Struct:
    """Return the response to all pieces so far; `continued` is that of the piece which belongs to `response`."""
    if whole is None:
        # A copy: handlers may return a cached response, and appending to that would change the responses of others.
        return _with(response, path[0], list(vars(response).get(path[0]) or ()))
    _append(whole, response, path, max(0, continued - 1))
    return whole


def _append(whole: Struct, addition: Struct, path: Path, continued: int) -> None:
    fields, added = vars(whole), vars(addition)
    if not fields.get("error_code") and added.get("error_code"):
        # The first error of a piece becomes the error of the response; the items before it keep their results.
        fields["error_code"] = added["error_code"]
    items, more = fields[path[0]], added.get(path[0]) or []
    if continued and items and more:
        _append(items[-1], more[0], path[1:], continued - 1)
        more = more[1:]
    items.extend(more)
