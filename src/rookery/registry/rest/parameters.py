"""Parameters in paths and queries: their names and defaults, and how text becomes a value.

As in Confluent's registry: of a parameter that is given twice the first counts, every text but "true" is false, an
empty number is the default, and a number that is none makes the whole address unknown (404).
"""

import re
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from rookery.registry.errors import invalid_schema
from rookery.registry.rest.failures import http_failure

Kind: TypeAlias = Literal["boolean", "integer", "text", "texts", "refused"]
Value: TypeAlias = bool | int | str | list[str] | None

_LISTS: Final = ("texts", "refused")
# Ten digits are enough for every number in the range, and Python refuses to read thousands of them.
_NUMBER: Final = re.compile(r"[+-]?0*[0-9]{1,10}")
_INTEGER_MIN: Final = -(2**31)
_INTEGER_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Parameter:
    """One that is refused says why in its description."""

    name: str
    description: str
    kind: Kind = "text"
    default: Value = None

    def decode(self, texts: list[str]) -> Value:
        """`texts` are the values given, in order. Raises RegistryError."""
        if self.kind == "refused" and texts:
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
        """As a JSON Schema."""
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
    """A 32-bit integer. Raises RegistryError (404)."""
    if _NUMBER.fullmatch(text) is None or not _INTEGER_MIN <= int(text) <= _INTEGER_MAX:
        raise http_failure(404)
    return int(text)


def flag(name: str, description: str) -> Parameter:
    return Parameter(name, description, "boolean", default=False)


SUBJECT: Final = Parameter("subject", "The subject's name, with its context if that is not the default one.")
VERSION: Final = Parameter("version", 'A number from 1 on, "latest" or -1.')
ID: Final = Parameter("id", "The schema's id.", "integer")

DELETED: Final = flag("deleted", "Include what is soft-deleted.")
DELETED_ONLY: Final = flag("deletedOnly", "Only what is soft-deleted.")
NORMALIZE: Final = flag("normalize", "Remove differences that have no meaning from the given schema first.")
VERBOSE: Final = flag("verbose", "Say why schemas are incompatible.")
PERMANENT: Final = flag("permanent", "Remove for good what is soft-deleted already.")
FORCE: Final = flag("force", "Change the mode even if there are schemas that it may not fit.")
DEFAULT_TO_GLOBAL: Final = flag("defaultToGlobal", "Answer with the global setting if the subject has none.")
OFFSET: Final = Parameter("offset", "How many results to leave out.", "integer", default=0)
LIMIT: Final = Parameter("limit", "The most results to answer with; no limit if it is not positive.", "integer", -1)
FORMAT: Final = Parameter(
    "format", "Another form of the schema's text: resolved (Avro), serialized (Protobuf).", default=""
)
REFERENCE_FORMAT: Final = Parameter(
    "referenceFormat", '"qualified": subjects of references come with their context.', default=""
)
FIND_TAGS: Final = Parameter("findTags", "Schema tags are not supported", "refused")
IN_SUBJECT: Final = Parameter("subject", "The subject, or the context, in which the id is looked for.")
