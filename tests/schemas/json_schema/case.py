"""The cases of the tables: a change of a schema, its expected differences, and the rule that it tests."""

from typing import Any, NamedTuple

MODERN = "https://json-schema.org/draft/2020-12/schema"
MIDDLE = "https://json-schema.org/draft/2019-09/schema"
OLDEST = "http://json-schema.org/draft-04/schema#"


class Case(NamedTuple):
    rule: str
    writer: Any
    reader: Any
    differences: tuple[str, ...]
    is_compatible: bool


def fits(rule: str, writer: Any, reader: Any, *differences: str) -> Case:
    """The reader accepts all that the writer's schema allows. A difference is a kind and, if it is not "#/", a path."""
    return Case(rule, writer, reader, differences, True)


def breaks(rule: str, writer: Any, reader: Any, *differences: str) -> Case:
    return Case(rule, writer, reader, differences, False)


def modern(**keywords: Any) -> dict[str, Any]:
    return {"$schema": MODERN, **keywords}
