"""Comparison of a keyword whose value is a limit."""

from collections.abc import Mapping
from typing import Any

from rookery.schemas.json_schema.differences import Difference, Differences


def compare_limit(keyword: str, stem: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Differences:
    """`stem` is what the kinds of difference begin with."""
    before, after = old.get(keyword), new.get(keyword)
    if before == after:
        return []
    if before is None or after is None:
        change = "ADDED" if before is None else "REMOVED"
    else:
        change = "INCREASED" if before < after else "DECREASED"
    return [Difference(f"{stem}_{change}", (keyword,))]
