"""Content models: what arrays and objects accept in addition to the items and properties that they declare.

A model is open if it accepts anything, partially open if it accepts what matches a schema, closed if it accepts
nothing.
"""

from typing import NamedTuple

from rookery.schemas.json_schema.differences import Difference, nest
from rookery.schemas.json_schema.shapes import Shape, Tree
from rookery.schemas.json_schema.walk import Comparison, Pair


class ContentModel(NamedTuple):
    """`permits_additional` is False if the keyword for additional content is false.

    `additional` is the schema of the additional content, if the keyword is a schema. `unevaluated` is the schema of the
    other keyword, which may be a boolean schema.
    """

    permits_additional: bool
    additional: Shape | None
    unevaluated: Shape | None

    @property
    def is_open(self) -> bool:
        is_closed_elsewhere = self.unevaluated is not None and not self.unevaluated.is_anything
        return self.permits_additional and self.additional is None and not is_closed_elsewhere

    @property
    def cover(self) -> Shape | None:
        """The schema that additional content must match in a partially open model; None in other models."""
        if self.additional is not None or not self.permits_additional or self.unevaluated is None:
            return self.additional
        return None if self.unevaluated.is_anything or self.unevaluated.kind == "false" else self.unevaluated


def read_content_model(shape: Shape, additional: Tree, unevaluated: str) -> ContentModel:
    """`additional` is the value of the keyword (True if it is absent), `unevaluated` the name of the other keyword."""
    return ContentModel(
        additional is not False,
        None if isinstance(additional, bool) else shape.child(additional),
        shape.child(shape.tree[unevaluated]) if unevaluated in shape.tree else None,
    )


def compare_models(stem: str, keyword: str, writer: ContentModel, reader: ContentModel) -> Comparison:
    """The kinds of the differences begin with ADDITIONAL_ or UNEVALUATED_ and `stem`; their paths with
    `additional` or `unevaluated` and `keyword`."""
    return [
        *(yield from _compare_additional(f"ADDITIONAL_{stem}", f"additional{keyword}", writer, reader)),
        *(yield from _compare_unevaluated(f"UNEVALUATED_{stem}", f"unevaluated{keyword}", writer, reader)),
    ]


def _compare_additional(stem: str, keyword: str, writer: ContentModel, reader: ContentModel) -> Comparison:
    old, new = writer.additional, reader.additional
    if writer.permits_additional != reader.permits_additional:
        return [Difference(f"{stem}_{'ADDED' if reader.permits_additional else 'REMOVED'}", (keyword,))]
    if old is not None and new is not None:
        return nest((yield Pair(old, new)).differences, keyword)
    if old is new:
        return []
    return [Difference(f"{stem}_{'NARROWED' if old is None else 'EXTENDED'}", (keyword,))]


def _compare_unevaluated(stem: str, keyword: str, writer: ContentModel, reader: ContentModel) -> Comparison:
    old, new = writer.unevaluated, reader.unevaluated
    if old is None and new is None:
        return []
    openness = [_openness(old), _openness(new)]
    if old is None or new is None or openness[0] != openness[1]:
        return [Difference(f"{stem}_{_name_change(*openness)}", (keyword,))]
    return nest((yield Pair(old, new)).differences, keyword)


def _openness(shape: Shape | None) -> int:
    """Return what is accepted. 0: nothing. 1: what matches a schema. 2: anything. 3: the keyword is absent."""
    if shape is None:
        return 3
    return 0 if shape.kind == "false" else 2 if shape.is_anything else 1


def _name_change(old: int, new: int) -> str:
    if old < new:
        return "EXTENDED" if old else "ADDED"
    return "NARROWED" if new else "REMOVED"
