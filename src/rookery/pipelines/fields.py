"""Reads the YAML of pipelines key by key, with the location of each value, and collects all problems.

A `Fields` is one mapping of the file. The parser reads each key that the mapping may have; for a wrong value, the
problem is added to the `Report` and the default is returned, so that parsing continues and finds further problems.
`report_unknown_keys` adds a problem for each key that was never read, with the nearest known one. All values are
strings, in which `${NAME}` and `${NAME:-default}` stand for environment variables, and `$${` for a literal `${`.
"""

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import yaml

from rookery.pipelines.spec import Location, Pairs, Problem

Node: TypeAlias = yaml.Node

_VARIABLE: Final = re.compile(r"\$(\$)?\{(?:([A-Za-z_]\w*)(?::-([^}]*))?\})?", re.ASCII)
_YES: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_LITERAL_STYLE: Final = "|"
_NULL_TAG: Final = "tag:yaml.org,2002:null"
_INTERVAL: Final = re.compile(r"\d+(?:\.\d+)?\s+(?:millisecond|second|minute|hour|day|week)s?")
INTERVAL_FORM: Final = "10 seconds"


def is_interval(text: str) -> bool:
    """Return whether `text` is a duration in the form of Spark's SQL."""
    return _INTERVAL.fullmatch(text.strip().lower()) is not None


def resolve_path(file: Path, path: str) -> str:
    """Resolve `path` relative to the pipeline's `file`; a path with a scheme (`s3://...`) is returned as it is."""
    return path if "://" in path else os.path.abspath(file.parent / path)


class Report:
    """The problems of one file, and the environment variables that its values may name."""

    def __init__(self, file: str, environment: Mapping[str, str]) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self._environment = environment

    def location(self, node: Node) -> Location:
        return Location(self.file, node.start_mark.line + 1)

    def text_location(self, node: Node) -> Location:
        """Return the location of a text's first line: a block text begins on the line after its `|`."""
        return self.location(node).below(1 if _is_literal(node) else 0)

    def check_block_style(self, node: Node, what: str) -> None:
        """Add a problem if a text of several lines is no block text: YAML joins its lines, and errors lose theirs."""
        if node.start_mark.line != node.end_mark.line and not _is_literal(node):
            self.add(node, f"{what} has several lines: write it as a block after |, so that errors can name the line")

    def add(self, where: Node | Location, message: str) -> None:
        self.problems.append(Problem(where if isinstance(where, Location) else self.location(where), message))

    def text(self, node: Node, what: str) -> str | None:
        """Return a scalar with its variables substituted; add a problem and return None if it is no scalar."""
        # The word null is a string here, as in `on_error: null`; an empty value and ~ are no value.
        if not isinstance(node, yaml.ScalarNode) or (node.tag == _NULL_TAG and node.value in ("", "~")):
            self.add(node, f"{what} must be a single value")
            return None
        missing = [name for name in self._variables(node.value) if name not in self._environment]
        for name in missing:
            self.add(node, f"the environment variable {name} is not set: set it, or write ${{{name}:-default}}")
        return None if missing else _VARIABLE.sub(self._substitute, node.value)

    @staticmethod
    def _variables(text: str) -> Iterator[str]:
        """Yield the variables of `text` that have no default."""
        for match in _VARIABLE.finditer(text):
            if not match[1] and match[2] and match[3] is None:
                yield match[2]

    def _substitute(self, match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        return self._environment.get(match[2], match[3]) if match[2] else match[0]


def _is_literal(node: Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style == _LITERAL_STYLE


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: `: did you mean X?`, or the known names if none is similar to `name`."""
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f": did you mean {close[0]}?"
    return f": use one of {', '.join(names)}" if names else ""


class Fields:
    """One mapping of the file; `what` names it in messages: `source events`."""

    def __init__(self, node: yaml.MappingNode, report: Report, what: str) -> None:
        self.report = report
        self.what = what
        self.node = node
        self.location = report.location(node)
        self._known_names: set[str] = set()
        self._nodes: dict[str, Node] = {}
        self._keys: dict[str, Node] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            if not name:
                report.add(key, f"a key of {what} must be a string")
            elif name in self._nodes:
                report.add(key, f"{what} has the key {name} twice")
            else:
                self._nodes[name], self._keys[name] = value, key

    def names(self) -> list[str]:
        return list(self._nodes)

    def has(self, name: str) -> bool:
        self._known_names.add(name)
        return name in self._nodes

    def node_of(self, name: str) -> Node | None:
        self._known_names.add(name)
        return self._nodes.get(name)

    def kind(self, kinds: tuple[str, ...]) -> str | None:
        """Return the one of `kinds` that is a key here; add a problem and return None if there are none or several."""
        found = [kind for kind in kinds if self.has(kind)]
        if len(found) == 1:
            return found[0]
        close = [(name, *difflib.get_close_matches(name, kinds, n=1)) for name in self._nodes]
        wrong = next((pair for pair in close if len(pair) == 2), None)
        if found or wrong is None:
            present = " and ".join(found) or "none"
            self.report.add(self.location, f"{self.what} needs one of {', '.join(kinds)}, but has {present}")
            return None
        self._known_names.add(wrong[0])
        self.add_problem(wrong[0], f"{self.what} has no key {wrong[0]}: did you mean {wrong[1]}?")
        return None

    def location_of(self, name: str) -> Location:
        return self.report.location(self._keys[name]) if name in self._keys else self.location

    def add_problem(self, name: str, message: str) -> None:
        """Add a problem at the line of the key `name`."""
        self.report.add(self.location_of(name), message)

    def text(self, name: str) -> str | None:
        node = self.node_of(name)
        return None if node is None else self.report.text(node, f"{name} of {self.what}")

    def required(self, name: str) -> str:
        """Return the text of `name`; add a problem and return an empty text if it is missing or empty."""
        if not self.has(name):
            self.report.add(self.location, f"{self.what} needs the key {name}")
            return ""
        found = self.text(name)
        if found == "":
            self.add_problem(name, f"{name} of {self.what} is empty")
        return found or ""

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        text = self.text(name)
        if text is None or text in choices:
            return default if text is None else text
        self.add_problem(name, f"{name} is {text}, but must be one of {', '.join(choices)}")
        return default

    def flag(self, name: str) -> bool:
        text = self.text(name)
        if text is not None and text.lower() not in _YES:
            self.add_problem(name, f"{name} is {text}, but must be true or false")
        return _YES.get((text or "").lower(), False)

    def whole_number(self, name: str, default: int, *, minimum: int) -> int:
        text = self.text(name)
        if text is None:
            return default
        if not text.isdecimal() or int(text) < minimum:
            self.add_problem(name, f"{name} is {text}, but must be a whole number of at least {minimum}")
            return default
        return int(text)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the texts of `name`, which may be one text or a list of texts."""
        node = self.node_of(name)
        if node is None:
            return ()
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        if not nodes:
            self.add_problem(name, f"{name} of {self.what} is an empty list")
        found = [self.report.text(each, f"{name} of {self.what}") for each in nodes]
        return tuple(text for text in found if text is not None)

    def required_texts(self, name: str) -> tuple[str, ...]:
        if not self.has(name):
            self.report.add(self.location, f"{self.what} needs the key {name}")
        return self.texts(name)

    def pairs(self, name: str) -> Pairs:
        """Return the mapping `name`, whose values must be texts."""
        node = self.node_of(name)
        if node is None:
            return ()
        child = self.mapping(node, f"{name} of {self.what}")
        return () if child is None else child.all_pairs()

    def all_pairs(self) -> Pairs:
        """Return all keys of this mapping with their texts; no key is unknown then."""
        found = ((name, self.text(name)) for name in self.names())
        return tuple((name, text) for name, text in found if text is not None)

    def child(self, name: str) -> "Fields | None":
        node = self.node_of(name)
        return None if node is None else self.mapping(node, f"{name} of {self.what}")

    def children(self, name: str) -> list[Node]:
        node = self.node_of(name)
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.add_problem(name, f"{name} of {self.what} must be a list")
            return []
        return list(node.value)

    def is_empty_list(self, name: str) -> bool:
        node = self.node_of(name)
        return isinstance(node, yaml.SequenceNode) and not node.value

    def mapping(self, node: Node, what: str) -> "Fields | None":
        if isinstance(node, yaml.MappingNode):
            return Fields(node, self.report, what)
        self.report.add(node, f"{what} must be a mapping, with keys and values")
        return None

    def report_unknown_keys(self) -> None:
        """Add a problem for each key that was never read; to be called when all known keys have been read."""
        for name, key in self._keys.items():
            if name not in self._known_names:
                self.report.add(key, f"{self.what} has no key {name}{suggestion(name, self._known_names)}")
