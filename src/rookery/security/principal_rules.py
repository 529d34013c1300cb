"""`ssl.principal.mapping.rules`: how the name in a client's certificate becomes the name of a principal. Pure.

Rules are separated by commas: `DEFAULT`, which takes the whole distinguished name, and `RULE:pattern/replacement/` with
an optional `L` or `U` at the end, for lower or upper case. The first rule whose pattern matches the whole name counts.
"""

import re
from typing import Final

from rookery.base.errors import ConfigError
from rookery.base.values import value_class

KEY: Final = "ssl.principal.mapping.rules"

_PART: Final = r"((?:\\.|[^\\/])*)"
_RULE: Final = re.compile(rf"RULE:{_PART}/{_PART}/([LU]?)")
_SPLITTER: Final = re.compile(rf"\s*(DEFAULT|RULE:{_PART}/{_PART}/.*?|.*?)\s*(?:,\s*|$)", re.DOTALL)
# A reference to a group of the pattern, or an escaped character.
_REFERENCE: Final = re.compile(r"\$(\d+)|\\(.)", re.DOTALL)
_EXPECTED: Final = "write DEFAULT, or RULE:pattern/replacement/ with an optional L or U at the end"


@value_class
class _Rule:
    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        # As in Java, the replacement is for each match, of which `.*` has a second, empty one.
        result = self.pattern.sub(self._expand, name)
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result

    def _expand(self, match: re.Match[str]) -> str:
        def part(reference: re.Match[str]) -> str:
            digits, escaped = reference.groups()
            return escaped if digits is None else _group(match, digits)

        return _REFERENCE.sub(part, self.replacement)


@value_class
class PrincipalRules:
    rules: tuple[_Rule, ...]

    @classmethod
    def parse(cls, text: str) -> "PrincipalRules":
        """Parse the rules; raises ConfigError if one is malformed."""
        found = [match[1] for match in _SPLITTER.finditer(text.strip())]
        return cls(tuple(_parse_rule(rule) for rule in found if rule))

    def apply(self, name: str) -> str | None:
        """Return the name of the principal for a distinguished name; None if no rule matches."""
        return next((result for rule in self.rules if (result := rule.apply(name)) is not None), None)


def _parse_rule(text: str) -> _Rule:
    if text == "DEFAULT":
        return _Rule(None, "", "")
    match = _RULE.fullmatch(text)
    if match is None:
        raise ConfigError(f"{KEY}: {text!r} is not a rule: {_EXPECTED}")
    try:
        return _Rule(re.compile(match[1]), match[2], match[3])
    except re.error as error:
        raise ConfigError(f"{KEY}: the pattern of {text!r} is invalid ({error}): {_EXPECTED}") from None


def _group(match: re.Match[str], digits: str) -> str:
    """Return a group by its number. As in Java, digits that lead beyond the last group are literal text."""
    count = match.re.groups
    for size in range(len(digits), 0, -1):
        if int(digits[:size]) <= count:
            return (match[int(digits[:size])] or "") + digits[size:]
    return f"${digits}"
