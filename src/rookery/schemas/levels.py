"""The seven levels of compatibility: which older versions a new schema is compared with, and in which direction.

level                  the new schema reads old data    old schemas read new data    compared with
BACKWARD                          yes                                                 the latest
FORWARD                                                            yes                the latest
FULL                              yes                              yes                the latest
..._TRANSITIVE            as without it                                               all, from the latest on
NONE                                                                                  nothing

A policy says which changes count as compatible: STRICT (the default) or, for JSON Schema, LENIENT.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from rookery.schemas.formats import find_format
from rookery.schemas.interface import ParsedSchema, Policy

Level: TypeAlias = Literal[
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"
]
LEVELS: Final[tuple[Level, ...]] = get_args(Level)
POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)
_OLD_TEXT_LENGTH_MAX = 10 * 1024


class Version(NamedTuple):
    number: int
    schema: ParsedSchema


def find_level(text: str) -> Level | None:
    """By its name in any case; None if there is no such level."""
    return next((level for level in LEVELS if level == text.upper()), None)


def find_policy(text: str) -> Policy | None:
    """By its name in any case; None if there is no such policy."""
    return next((policy for policy in POLICIES if policy == text.upper()), None)


def check_compatibility(
    level: Level, new: ParsedSchema, versions: Sequence[Version], policy: Policy = "STRICT"
) -> list[str]:
    """What is wrong, in the words of Confluent's registry; nothing if the new schema may follow on the versions, which
    are given from the oldest to the latest."""
    if level == "NONE":
        return []
    compared = versions[::-1] if level.endswith("_TRANSITIVE") else versions[:-2:-1]
    for version in compared:
        messages = _compare(level.removesuffix("_TRANSITIVE"), policy, new, version)
        if messages:
            return messages
    return []


def _compare(direction: str, policy: Policy, new: ParsedSchema, version: Version) -> list[str]:
    old = version.schema
    if new.schema_type != old.schema_type:
        return ["Incompatible because of different schema type"]
    check = find_format(new.schema_type).check
    messages = []
    if direction != "BACKWARD":
        messages += [each.describe("old", "new") for each in check(old, new, policy)]
    if direction != "FORWARD":
        messages += [each.describe("new", "old") for each in check(new, old, policy)]
    return [*messages, f"{{oldSchemaVersion: {version.number}}}", _old_text(old.canonical)] if messages else []


def _old_text(text: str) -> str:
    if len(text) <= _OLD_TEXT_LENGTH_MAX:
        return f"{{oldSchema: '{text}'}}"
    return f"{{oldSchema: <truncated> '{text[:_OLD_TEXT_LENGTH_MAX]}...'}}"
