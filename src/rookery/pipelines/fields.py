"""Reads YAML as the parser of pipelines wants it: by the names it knows, with places, and all mistakes at once.

A `Fields` is one mapping of the file. Who parses asks for each key that may be there; a wrong value is noted in the
`Report` and answered with the default, so that parsing goes on and finds the rest. `finish` notes the keys that nobody
asked for, with the nearest one that was. All values are texts in which `${NAME}` and `${NAME:-default}` stand for
variables of the environment, and `$${` for a plain `${`.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import yaml

from rookery.pipelines.spec import Pairs, Place, Problem

Node: TypeAlias = yaml.Node

_VARIABLE: Final = re.compile(r"\$(\$)?\{(?:([A-Za-z_]\w*)(?::-([^}]*))?\})?", re.ASCII)
_YES: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_LITERAL_STYLE: Final = "|"
_NULL_TAG: Final = "tag:yaml.org,2002:null"


class Report:
    """The problems of one file, and the variables that its texts may name."""

    def __init__(self, file: str, environment: Mapping[str, str]) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self._environment = environment

    def place(self, node: Node) -> Place:
        return Place(self.file, node.start_mark.line + 1)

    def text_place(self, node: Node) -> Place:
        """Where a text's first line is: block texts begin below their `|`."""
        return self.place(node).below(1 if _is_literal(node) else 0)

    def check_lines(self, node: Node, what: str) -> None:
        """YAML joins the lines of all texts but those behind `|`: nobody can tell then which line a word was on."""
        if node.start_mark.line != node.end_mark.line and not _is_literal(node):
            self.add(node, f"{what} has several lines: write it below a |, so that errors can name the line")

    def add(self, where: Node | Place, message: str) -> None:
        self.problems.append(Problem(where if isinstance(where, Place) else self.place(where), message))

    def text(self, node: Node, what: str) -> str | None:
        """A scalar's text with its variables; None, and a problem, if it is no scalar."""
        # The word null is a text here, as in `on_error: null`; nothing at all is none.
        if not isinstance(node, yaml.ScalarNode) or (node.tag == _NULL_TAG and node.value in ("", "~")):
            self.add(node, f"{what} must be a text")
            return None
        missing = [name for name in self._variables(node.value) if name not in self._environment]
        for name in missing:
            self.add(node, f"the environment has no {name}: set it, or write ${{{name}:-default}}")
        return None if missing else _VARIABLE.sub(self._substitute, node.value)

    @staticmethod
    def _variables(text: str) -> Iterator[str]:
        """Those without a default."""
        for match in _VARIABLE.finditer(text):
            if not match[1] and match[2] and match[3] is None:
                yield match[2]

    def _substitute(self, match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        return self._environment.get(match[2], match[3]) if match[2] else match[0]


def _is_literal(node: Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style == _LITERAL_STYLE


def nearest(name: str, known: Iterable[str]) -> str:
    """`, did you mean X?`, or which names there are; to be put behind a complaint."""
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f": did you mean {close[0]}?"
    return f": known are {', '.join(names)}" if names else ""


class Fields:
    """`what` names the mapping in messages: `source events`."""

    def __init__(self, node: yaml.MappingNode, report: Report, what: str) -> None:
        self.report = report
        self.what = what
        self.node = node
        self.place = report.place(node)
        self._asked: set[str] = set()
        self._nodes: dict[str, Node] = {}
        self._keys: dict[str, Node] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            if not name:
                report.add(key, f"a key of {what} must be a text")
            elif name in self._nodes:
                report.add(key, f"{what} has {name} twice")
            else:
                self._nodes[name], self._keys[name] = value, key

    def names(self) -> list[str]:
        return list(self._nodes)

    def has(self, name: str) -> bool:
        self._asked.add(name)
        return name in self._nodes

    def node_of(self, name: str) -> Node | None:
        self._asked.add(name)
        return self._nodes.get(name)

    def kind(self, kinds: tuple[str, ...]) -> str | None:
        """The one of these keys that is there; None, and a problem, if there are none or several."""
        found = [kind for kind in kinds if self.has(kind)]
        if len(found) == 1:
            return found[0]
        close = [(name, *difflib.get_close_matches(name, kinds, n=1)) for name in self._nodes]
        wrong = next((pair for pair in close if len(pair) == 2), None)
        if found or wrong is None:
            several = " and ".join(found) or "none"
            self.report.add(self.place, f"{self.what} needs one of {', '.join(kinds)}, and has {several}")
            return None
        self._asked.add(wrong[0])
        self.complain(wrong[0], f"{self.what} has no {wrong[0]}: did you mean {wrong[1]}?")
        return None

    def place_of(self, name: str) -> Place:
        return self.report.place(self._keys[name]) if name in self._keys else self.place

    def complain(self, name: str, message: str) -> None:
        self.report.add(self.place_of(name), message)

    def text(self, name: str) -> str | None:
        node = self.node_of(name)
        return None if node is None else self.report.text(node, f"{name} of {self.what}")

    def required(self, name: str) -> str:
        """Its text, or an empty one and a problem."""
        if not self.has(name):
            self.report.add(self.place, f"{self.what} needs {name}")
            return ""
        found = self.text(name)
        if found == "":
            self.complain(name, f"{name} of {self.what} is empty")
        return found or ""

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        text = self.text(name)
        if text is None or text in choices:
            return default if text is None else text
        self.complain(name, f"{name} is {text}, and must be one of {', '.join(choices)}")
        return default

    def flag(self, name: str) -> bool:
        text = self.text(name)
        if text is not None and text.lower() not in _YES:
            self.complain(name, f"{name} is {text}, and must be true or false")
        return _YES.get((text or "").lower(), False)

    def whole(self, name: str, default: int, *, minimum: int) -> int:
        text = self.text(name)
        if text is None:
            return default
        if not text.isdecimal() or int(text) < minimum:
            self.complain(name, f"{name} is {text}, and must be a whole number from {minimum} up")
            return default
        return int(text)

    def texts(self, name: str) -> tuple[str, ...]:
        """One text, or a list of them."""
        node = self.node_of(name)
        if node is None:
            return ()
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        if not nodes:
            self.complain(name, f"{name} of {self.what} is an empty list")
        found = [self.report.text(each, f"{name} of {self.what}") for each in nodes]
        return tuple(text for text in found if text is not None)

    def required_texts(self, name: str) -> tuple[str, ...]:
        if not self.has(name):
            self.report.add(self.place, f"{self.what} needs {name}")
        return self.texts(name)

    def pairs(self, name: str) -> Pairs:
        """A mapping of texts."""
        node = self.node_of(name)
        if node is None:
            return ()
        child = self.mapping(node, f"{name} of {self.what}")
        return () if child is None else child.all_pairs()

    def all_pairs(self) -> Pairs:
        """All keys of this mapping, whatever their names."""
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
            self.complain(name, f"{name} of {self.what} must be a list")
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

    def finish(self) -> None:
        for name, key in self._keys.items():
            if name not in self._asked:
                self.report.add(key, f"{self.what} has no {name}{nearest(name, self._asked)}")
