"""Regular expressions in schemas, which are those of ECMA-262.

Patterns that only Python's `re` accepts are valid, too, because registries in other languages accept them. But they are
never matched against a text: Python's matching backtracks without limit, and a small pattern could block a registry.
"""

import re
from collections.abc import Callable
from functools import lru_cache

import jsonschema_rs

from rookery.schemas.interface import InvalidSchemaError


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Return a function that says whether a text contains a match. For patterns that only `re` accepts it is False.

    Raises InvalidSchemaError.
    """
    try:
        return jsonschema_rs.Draft7Validator({"pattern": pattern}).is_valid
    except jsonschema_rs.ValidationError:
        pass
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidSchemaError(f"Invalid JSON schema: '{pattern}' is not a valid pattern: {error}") from error
    return lambda _: False
