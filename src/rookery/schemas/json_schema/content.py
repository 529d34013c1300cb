"""What arrays and objects take beyond the items and properties that they name: their content models.

A model is open if it takes anything, partially open if it takes what fits a schema, closed if it takes nothing.
"""

from typing import NamedTuple

from rookery.schemas.json_schema.differences import Difference, below
from rookery.schemas.json_schema.shapes import Shape, Tree
from rookery.schemas.json_schema.walk import Comparison, Pair


class ContentModel(NamedTuple):
    """`additional` is the schema of what more there is, if it has one; so is `unevaluated`, which may be a boolean."""

    is_permitting: bool
    additional: Shape | None
    unevaluated: Shape | None

    @property
    def is_open(self) -> bool:
        is_closed_elsewhere = self.unevaluated is not None and not self.unevaluated.is_anything
        return self.is_permitting and self.additional is None and not is_closed_elsewhere

    @property
    def cover(self) -> Shape | None:
        """What more must fit, in a partially open model."""
        if self.additional is not None or not self.is_permitting or self.unevaluated is None:
            return self.additional
        return None if self.unevaluated.is_anything or self.unevaluated.kind == "false" else self.unevaluated


def read_content_model(shape: Shape, additional: Tree, unevaluated: str) -> ContentModel:
    """`additional` is what the schema says about it (True if nothing), `unevaluated` the name of the other keyword."""
    return ContentModel(
        additional is not False,
        None if isinstance(additional, bool) else shape.child(additional),
        shape.child(shape.tree[unevaluated]) if unevaluated in shape.tree else None,
    )


def compare_models(stem: str, keyword: str, writer: ContentModel, reader: ContentModel) -> Comparison:
    """Kinds of difference begin with ADDITIONAL_ or UNEVALUATED_ and `stem`, their paths with `keyword` likewise."""
    return [
        *(yield from _compare_additional(f"ADDITIONAL_{stem}", f"additional{keyword}", writer, reader)),
        *(yield from _compare_unevaluated(f"UNEVALUATED_{stem}", f"unevaluated{keyword}", writer, reader)),
    ]


def _compare_additional(stem: str, keyword: str, writer: ContentModel, reader: ContentModel) -> Comparison:
    old, new = writer.additional, reader.additional
    if writer.is_permitting != reader.is_permitting:
        return [Difference(f"{stem}_{'ADDED' if reader.is_permitting else 'REMOVED'}", (keyword,))]
    if old is not None and new is not None:
        return below((yield Pair(old, new)).differences, keyword)
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
    return below((yield Pair(old, new)).differences, keyword)


def _openness(shape: Shape | None) -> int:
    """0: nothing. 1: what fits a schema. 2: anything. 3: not a word about it."""
    if shape is None:
        return 3
    return 0 if shape.kind == "false" else 2 if shape.is_anything else 1


def _name_change(old: int, new: int) -> str:
    if old < new:
        return "EXTENDED" if old else "ADDED"
    return "NARROWED" if new else "REMOVED"
