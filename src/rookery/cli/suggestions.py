"""`did you mean orders?`: suggests existing names that are similar to a name that the user typed and that is unknown.

The names are looked up only after a command has failed, with a short time-out.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from rookery.base.errors import ApiError, ErrorCode, RookeryError
from rookery.cli.app import current_parameters
from rookery.cli.cluster_names import group_names, topic_names, user_names

_NAMES_OF = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: topic_names,
    ErrorCode.GROUP_ID_NOT_FOUND: group_names,
    ErrorCode.RESOURCE_NOT_FOUND: user_names,
}
_WORD = re.compile(r"[\w.-]+")


def add_suggestion(error: ApiError) -> ApiError:
    """Add a note to `error` if it is about a name that was mistyped."""
    hint = suggestion(error.code, error.message or "")
    if hint:
        error.add_note(hint)
    return error


def suggestion(code: ErrorCode, message: str) -> str:
    """Return `did you mean X?` for the typed name that `message` mentions; an empty text if nothing is close."""
    names_of = _NAMES_OF.get(code)
    typed = _typed_words() & set(_WORD.findall(message))
    if names_of is None or not typed:
        return ""
    try:
        names = names_of(current_parameters())
    except (RookeryError, OSError, TimeoutError):
        # Show the command's own error, and not that of the lookup.
        return ""
    found = [match for word in sorted(typed - set(names)) for match in get_close_matches(word, names)]
    return f"did you mean {' or '.join(dict.fromkeys(found))}?" if found else ""


def _typed_words() -> set[str]:
    values = current_parameters().values()
    texts: Iterable[object] = (text for value in values for text in (value if isinstance(value, list) else [value]))
    return {word for text in texts if isinstance(text, str) for word in _WORD.findall(text)}
