"""Regular expressions in schemas. They are those of ECMA-262.

What only Python understands is taken, too, because registries in other languages take it, but it is never tried on a
text: its matching has no limits, and a small pattern could keep a registry busy for years.
"""

import re
from collections.abc import Callable
from functools import lru_cache

import jsonschema_rs

from rookery.schemas.interface import InvalidSchemaError


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Says whether a text has a match in it, as far as that is known."""
    try:
        return jsonschema_rs.Draft7Validator({"pattern": pattern}).is_valid
    except jsonschema_rs.ValidationError:
        pass
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidSchemaError(f"Invalid JSON schema: '{pattern}' is no pattern: {error}") from error
    return lambda _: False
