"""Parameters in paths and queries: their names and defaults, and the decoding of their values.

As in Confluent's registry: of a repeated parameter the first value counts, every text except "true" is false, an empty
number is the default, and an invalid number makes the whole path unknown (404).
"""

import re
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from rookery.registry.errors import http_error, invalid_schema

Kind: TypeAlias = Literal["boolean", "integer", "text", "texts", "unsupported"]
Value: TypeAlias = bool | int | str | list[str] | None

_LISTS: Final = ("texts", "unsupported")
# Ten digits are enough for every number in the range, and Python raises for thousands of them.
_NUMBER: Final = re.compile(r"[+-]?0*[0-9]{1,10}")
_INTEGER_MIN: Final = -(2**31)
_INTEGER_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter. The description of an unsupported one is the message of the error if a request has it."""

    name: str
    description: str
    kind: Kind = "text"
    default: Value = None

    def decode(self, texts: list[str]) -> Value:
        """Decode the values in the request, `texts`, which are in order. Raises RegistryError."""
        if self.kind == "unsupported" and texts:
            raise invalid_schema(self.description)
        if self.kind in _LISTS:
            return texts
        first = texts[0] if texts else None
        if self.kind == "text":
            return self.default if first is None else first
        if first is None or not first.strip():
            return self.default
        return first.lower() == "true" if self.kind == "boolean" else parse_integer(first)

    def describe(self) -> dict[str, Any]:
        """Return the JSON Schema of the parameter."""
        if self.kind in _LISTS:
            return {"type": "array", "items": {"type": "string"}}
        kinds: dict[Kind, dict[str, Any]] = {
            "boolean": {"type": "boolean"},
            "integer": {"type": "integer", "format": "int32", "minimum": _INTEGER_MIN, "maximum": _INTEGER_MAX},
            "text": {"type": "string"},
        }
        described = kinds[self.kind]
        return described if self.default is None else {**described, "default": self.default}


def parse_integer(text: str) -> int:
    """Parse a 32-bit integer. Raises RegistryError (404)."""
    if _NUMBER.fullmatch(text) is None or not _INTEGER_MIN <= int(text) <= _INTEGER_MAX:
        raise http_error(404)
    return int(text)


def flag(name: str, description: str) -> Parameter:
    return Parameter(name, description, "boolean", default=False)


SUBJECT: Final = Parameter("subject", "The name of the subject, with its context unless it is the default context.")
VERSION: Final = Parameter("version", 'A number of at least 1, "latest" or -1.')
ID: Final = Parameter("id", "The schema's id.", "integer")

DELETED: Final = flag("deleted", "Include soft-deleted results.")
DELETED_ONLY: Final = flag("deletedOnly", "Return only soft-deleted results.")
NORMALIZE: Final = flag("normalize", "Normalize the schema in the request first.")
VERBOSE: Final = flag("verbose", "Return the reasons why schemas are incompatible.")
PERMANENT: Final = flag("permanent", "Remove permanently what is soft-deleted already.")
FORCE: Final = flag("force", "Change the mode to IMPORT even if there are schemas.")
DEFAULT_TO_GLOBAL: Final = flag("defaultToGlobal", "Return the global setting if the subject has none.")
OFFSET: Final = Parameter("offset", "The number of results to skip.", "integer", default=0)
LIMIT: Final = Parameter("limit", "The maximum number of results; no limit if it is not positive.", "integer", -1)
FORMAT: Final = Parameter(
    "format", "Another form of the schema's text: resolved (Avro), serialized (Protobuf).", default=""
)
REFERENCE_FORMAT: Final = Parameter(
    "referenceFormat", '"qualified" adds the context to the subjects of references.', default=""
)
FIND_TAGS: Final = Parameter("findTags", "Schema tags are not supported", "unsupported")
IN_SUBJECT: Final = Parameter("subject", "The subject, or the context, in which the id is looked up.")
