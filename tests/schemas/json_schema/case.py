"""The form of the tables of cases: a change of a schema, what it is called, and the rule that it stands for."""

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
    """The reader takes all that the writer's schema allows. A difference is a kind and, if it is not "#/", a path."""
    return Case(rule, writer, reader, differences, True)


def breaks(rule: str, writer: Any, reader: Any, *differences: str) -> Case:
    return Case(rule, writer, reader, differences, False)


def modern(**keywords: Any) -> dict[str, Any]:
    return {"$schema": MODERN, **keywords}
