"""`sasl.kerberos.principal.to.local.rules`: how a Kerberos principal becomes the name of a user. Pure.

Rules are `DEFAULT`, which takes the first component of principals of the default realm, and
`RULE:[n:format](pattern)s/from/to/g` with an optional `/L` or `/U` at the end, for lower or upper case. A rule is for
principals with `n` components; its format has `$0` for the realm and `$1` to `$n` for the components. The first rule
whose pattern matches the whole formatted text counts, and a result with `/` or `@` is an error, as in Kafka.

Everything that cannot work is refused when the rules are parsed. Kafka notices some of it only at a login.
"""

import re
from collections.abc import Iterable
from typing import Final

from rookery.base.errors import ConfigError, RookeryError
from rookery.base.values import value_class

KEY: Final = "sasl.kerberos.principal.to.local.rules"

_RULE: Final = re.compile(
    r"RULE:\[(?P<count>[0-9]{1,9}):(?P<format>[^\]]*)\](?:\((?P<pattern>[^)]*)\))?"
    r"(?:s/(?P<source>[^/]*)/(?P<target>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_NAME: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_PARAMETER: Final = re.compile(r"\$([0-9]*)")
# Parts of a Java replacement: an escaped character, a group by name or number; anything else with $ or \ is an error.
_REFERENCE: Final = re.compile(r"\\(.)|\$\{([A-Za-z][A-Za-z0-9]*)\}|\$([0-9]+)|([\\$])", re.DOTALL)
_EXPECTED: Final = "write DEFAULT, or RULE:[n:format](pattern)s/from/to/g with an optional /L or /U at the end"


class NoLocalNameError(RookeryError):
    """No rule applies to a principal, or the result of the first one that does is not a simple name."""


@value_class
class _Rule:
    """`count` 0 is DEFAULT: no principal has no component."""

    count: int
    format: str = ""
    pattern: re.Pattern[str] | None = None
    source: re.Pattern[str] | None = None
    target: str = ""
    replaces_all: bool = False
    case: str = ""

    def apply(self, realm: str, components: tuple[str, ...], default_realm: str) -> str | None:
        """Return the name; None if the rule does not apply."""
        if not self.count:
            return components[0] if realm == default_realm else None
        if len(components) != self.count:
            return None
        parameters = (realm, *components)
        result = _PARAMETER.sub(lambda match: parameters[int(match[1])], self.format)
        if self.pattern is not None and self.pattern.fullmatch(result) is None:
            return None
        if self.source is not None:
            result = self.source.sub(self._expand, result, count=0 if self.replaces_all else 1)
        return result

    def _expand(self, match: re.Match[str]) -> str:
        def part(reference: re.Match[str]) -> str:
            escaped, name, digits, _ = reference.groups()
            if escaped is not None:
                return escaped
            return (match[name] or "") if name is not None else _numbered(match, digits)

        return _REFERENCE.sub(part, self.target)


@value_class
class KerberosRules:
    rules: tuple[_Rule, ...]

    @classmethod
    def parse(cls, rules: Iterable[str]) -> "KerberosRules":
        """Parse the rules; raises ConfigError if one is malformed."""
        return cls(tuple(map(_parse_rule, rules)))

    def local_name(self, principal: str, default_realm: str) -> str:
        """Return the name of the user. Raises NoLocalNameError."""
        parsed = _NAME.fullmatch(principal)
        if parsed is None:
            if "@" in principal:
                raise NoLocalNameError(f"the principal {principal!r} is malformed, or has more than two components")
            return principal
        first, second, realm = parsed.groups()
        components = (first,) if second is None else (first, second)
        for rule in self.rules:
            result = rule.apply(realm, components, default_realm)
            if result is None:
                continue
            if "/" in result or "@" in result:
                raise NoLocalNameError(f"{KEY} makes {result!r} of {principal!r}, which is not a simple name")
            return result.lower() if rule.case == "L" else result.upper() if rule.case == "U" else result
        raise NoLocalNameError(f"no rule of {KEY} applies to {principal!r}")


def _parse_rule(text: str) -> _Rule:
    if text == "DEFAULT":
        return _Rule(0)
    found = _RULE.fullmatch(text)
    if found is None or int(found["count"]) == 0:
        raise ConfigError(f"{KEY}: {text!r} is not a rule: {_EXPECTED}")
    count = int(found["count"])
    for digits in _PARAMETER.findall(found["format"]):
        if not digits or int(digits) > count:
            raise ConfigError(f"{KEY}: ${digits} in {text!r} is neither $0, the realm, nor one of {count} components")
    try:
        pattern, source = _compiled(found["pattern"]), _compiled(found["source"])
    except re.error as error:
        raise ConfigError(f"{KEY}: a pattern of {text!r} is invalid ({error}): {_EXPECTED}") from None
    target = found["target"] or ""
    if source is not None and (wrong := _wrong_reference(target, source)) is not None:
        raise ConfigError(f"{KEY}: {wrong} in the replacement of {text!r} is not a group of its pattern")
    return _Rule(count, found["format"], pattern, source, target, found["all"] is not None, found["case"] or "")


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    # As in Java, \w, \d and \s are those of ASCII.
    return None if pattern is None else re.compile(pattern, re.ASCII)


def _wrong_reference(target: str, source: re.Pattern[str]) -> str | None:
    for reference in _REFERENCE.finditer(target):
        _, name, digits, stray = reference.groups()
        is_unknown = name is not None and name not in source.groupindex
        if stray is not None or is_unknown or (digits is not None and int(digits[0]) > source.groups):
            return reference[0]
    return None


def _numbered(match: re.Match[str], digits: str) -> str:
    """Return a group by its number. As in Java, digits that lead beyond the last group are text after it."""
    size = len(digits)
    while size > 1 and int(digits[:size]) > match.re.groups:
        size -= 1
    return (match[int(digits[:size])] or "") + digits[size:]
