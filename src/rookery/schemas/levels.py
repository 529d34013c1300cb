"""The seven compatibility levels: which older versions a new schema is compared with, and in which direction.

level                  the new schema reads old data    old schemas read new data    compared with
BACKWARD                          yes                                                 the latest
FORWARD                                                            yes                the latest
FULL                              yes                              yes                the latest
..._TRANSITIVE            as without it                                               all, from the latest on
NONE                                                                                  nothing

The policy says which changes count as compatible: STRICT (the default) or, for JSON Schema, LENIENT.
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
    """Return the level with this name, ignoring case; None if there is none."""
    return next((level for level in LEVELS if level == text.upper()), None)


def find_policy(text: str) -> Policy | None:
    """Return the policy with this name, ignoring case; None if there is none."""
    return next((policy for policy in POLICIES if policy == text.upper()), None)


def check_compatibility(
    level: Level, new: ParsedSchema, versions: Sequence[Version], policy: Policy = "STRICT"
) -> list[str]:
    """Return the messages of Confluent's registry for the incompatibilities; an empty list if there are none.

    `versions` are the existing versions from the oldest to the latest. Stops at the first incompatible version.
    """
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
