"""Regular expressions in schemas. They are those of ECMA-262; what only Python understands is taken, too."""

import re
from collections.abc import Callable
from functools import lru_cache

import jsonschema_rs

from rookery.schemas.interface import InvalidSchemaError


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Says whether a text has a match in it."""
    try:
        return jsonschema_rs.Draft7Validator({"pattern": pattern}).is_valid
    except jsonschema_rs.ValidationError:
        pass
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidSchemaError(f"Invalid JSON schema: '{pattern}' is no pattern: {error}") from error
    return lambda text: compiled.search(text) is not None
