"""The drafts of JSON Schema: their URIs, and the differences between them that matter to this package."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import jsonschema_rs

from rookery.schemas.interface import InvalidSchemaError

_NUMBER: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_LENGTHS: Final = ("minLength", "maxLength", "pattern")
_ITEMS: Final = ("items", "minItems", "maxItems", "uniqueItems")
_PROPERTIES: Final = (
    *("properties", "required", "minProperties", "maxProperties"),
    *("patternProperties", "additionalProperties"),
)


@dataclass(frozen=True, eq=False)
class Dialect:
    """One draft.

    `keywords`: the keywords that belong to each kind of shape.
    `is_modern`: keywords next to a `$ref` count, and `contains` has limits (from 2019-09 on).
    `has_prefix_items`: `prefixItems` and `items` replace `items` and `additionalItems` (from 2020-12 on).
    """

    uri: str
    draft: int
    keywords: Mapping[str, tuple[str, ...]]
    id_keyword: str = "$id"
    is_modern: bool = False
    has_prefix_items: bool = False


DRAFT_04: Final = Dialect(
    "http://json-schema.org/draft-04/schema#",
    jsonschema_rs.Draft4,
    {
        "enum": ("enum",),
        "not": ("not",),
        "array": (*_ITEMS, "additionalItems"),
        "object": (*_PROPERTIES, "dependencies"),
        "number": _NUMBER,
        "string": (*_LENGTHS, "format"),
    },
    id_keyword="id",
)
DRAFT_06: Final = Dialect(
    "http://json-schema.org/draft-06/schema#",
    jsonschema_rs.Draft6,
    {
        "enum": ("enum",),
        "not": ("not",),
        "const": ("const",),
        "array": (*_ITEMS, "additionalItems", "contains"),
        "object": (*_PROPERTIES, "dependencies", "propertyNames"),
        "number": _NUMBER,
        "string": (*_LENGTHS, "format"),
    },
)
DRAFT_07: Final = replace(
    DRAFT_06,
    uri="http://json-schema.org/draft-07/schema#",
    draft=jsonschema_rs.Draft7,
    keywords={**DRAFT_06.keywords, "if": ("if", "then", "else")},
)
_CONTAINS: Final = ("contains", "minContains", "maxContains", "unevaluatedItems")
DRAFT_2019_09: Final = Dialect(
    "https://json-schema.org/draft/2019-09/schema",
    jsonschema_rs.Draft201909,
    {
        **DRAFT_07.keywords,
        "array": (*_ITEMS, "additionalItems", *_CONTAINS),
        "object": (
            *_PROPERTIES,
            *("propertyNames", "dependentRequired", "dependentSchemas", "unevaluatedProperties"),
        ),
        "string": _LENGTHS,
    },
    is_modern=True,
)
DRAFT_2020_12: Final = replace(
    DRAFT_2019_09,
    uri="https://json-schema.org/draft/2020-12/schema",
    draft=jsonschema_rs.Draft202012,
    keywords={**DRAFT_2019_09.keywords, "array": (*_ITEMS, "prefixItems", *_CONTAINS)},
    has_prefix_items=True,
)
DIALECTS: Final = (DRAFT_04, DRAFT_06, DRAFT_07, DRAFT_2019_09, DRAFT_2020_12)


def _bare(uri: str) -> str:
    return uri.removesuffix("#").removeprefix("https://").removeprefix("http://")


_BY_URI: Final = {_bare(dialect.uri): dialect for dialect in DIALECTS} | {"json-schema.org/schema": DRAFT_04}
_BY_DRAFT: Final = {dialect.draft: dialect for dialect in DIALECTS}


def find_dialect(tree: Any) -> Dialect:
    """Return the dialect that `$schema` names; draft 07 if it is absent or unknown, as in Confluent's registry."""
    uri = tree.get("$schema") if isinstance(tree, dict) else None
    return _BY_URI.get(_bare(uri), DRAFT_07) if isinstance(uri, str) else DRAFT_07


def dialect_of_draft(draft: int) -> Dialect:
    return _BY_DRAFT[draft]


def require_schema(tree: Any, dialect: Dialect) -> None:
    """Check a tree against the meta-schema of the dialect, so that its keywords have the right types afterwards.

    Raises InvalidSchemaError.
    """
    if not isinstance(tree, dict | bool):
        raise InvalidSchemaError(f"Invalid JSON schema: expected an object or boolean, found {_name_type(tree)}")
    error = next(_meta_validator(dialect.uri).iter_errors(tree), None)
    if error is not None:
        path = "/".join(map(str, error.instance_path))
        raise InvalidSchemaError(f"Invalid JSON schema: {error.message} at '#/{path}'")


@lru_cache
def _meta_validator(uri: str) -> jsonschema_rs.Validator:
    """Formats are not validated: regular expressions differ between libraries, and `compile_pattern` checks them."""
    return jsonschema_rs.validator_for({"$schema": uri, "$ref": uri}, validate_formats=False, offline=True)


def _name_type(tree: Any) -> str:
    if tree is None:
        return "NULL"
    return "STRING" if isinstance(tree, str) else "ARRAY" if isinstance(tree, list) else "NUMBER"
