"""Rewrites paths before routing: segments stay encoded, and a leading context moves into the subject.

`/contexts/.sales/subjects/orders` becomes `/subjects/:.sales:orders`. The router sees encoded segments, so that a
subject may contain a slash (`%2F`); handlers receive decoded ones. One trailing slash is ignored. A path that is not
valid UTF-8 when decoded is rejected. If it were decoded with replacement characters, different names could become the
same subject.
"""

import re
from urllib.parse import parse_qsl, quote, unquote, urlencode

from rookery.registry.errors import http_error

_INVALID_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")
_CONTEXT_PREFIXES = (":.", ":*:")
_SETTINGS = frozenset({"config", "mode"})


def resolve(path: str, query: str) -> tuple[str, str]:
    """Return the encoded path and query for the router. Raises RegistryError if one, or a context, is invalid."""
    for part in (path, query):
        _check_encoding(part)
    path = path if path == "/" else path.removesuffix("/")
    if not path.startswith("/contexts/"):
        return path, query
    _, _, context, *rest = path.split("/")
    prefix = _context_prefix(unquote(context))
    if not rest:
        return path, query
    return "/" + "/".join(_qualified_segments(rest, prefix)), _qualified_query(rest, query, prefix)


def parse_query(query: str) -> dict[str, list[str]]:
    parsed: dict[str, list[str]] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        parsed.setdefault(name, []).append(value)
    return parsed


def _check_encoding(part: str) -> None:
    try:
        unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise http_error(400) from None
    if _INVALID_ESCAPE.search(part):
        raise http_error(400)


def _context_prefix(context: str) -> str:
    """Return the prefix of the subjects in a context; empty for the default context."""
    name = context.removeprefix(":").removesuffix(":")
    if ":" in name:
        raise http_error(400, f"Context name '{name}' cannot contain a colon")
    name = name if name.startswith(".") else f".{name}"
    return "" if name == "." else f":{name}:"


def _qualified_segments(segments: list[str], prefix: str) -> list[str]:
    """Add the prefix to subjects: after `subjects` anywhere, and after `config` or `mode` at the start of the path."""
    qualified: list[str] = []
    subject_is_next = False
    for segment in segments:
        if subject_is_next:
            qualified.append(quote(_qualify(unquote(segment), prefix), safe=":"))
            subject_is_next = False
        else:
            subject_is_next = segment == "subjects" or (not qualified and segment in _SETTINGS)
            qualified.append(segment)
    if prefix and len(segments) == 1 and segments[0] in _SETTINGS:
        qualified.append(quote(prefix, safe=":"))
    return qualified


def _qualified_query(segments: list[str], query: str, prefix: str) -> str:
    if segments[:2] == ["schemas", "ids"]:
        name = "subject"
    elif segments in (["schemas"], ["subjects"]):
        name = "subjectPrefix"
    else:
        return query
    values = parse_query(query)
    values[name] = [_qualify(value, prefix) for value in values.get(name, [""])]
    return urlencode(values, doseq=True)


def _qualify(subject: str, prefix: str) -> str:
    return subject if subject.startswith(_CONTEXT_PREFIXES) else prefix + subject
