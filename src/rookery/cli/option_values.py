"""Parses the values of options."""

from collections.abc import Iterable, Sequence

import typer

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "\\": "\\"}


def parse_pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """Parse `key=value` texts into a dictionary; raises BadParameter."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"'{text}' must have the form key=value", param_hint=option)
        pairs[key] = value
    return pairs


def parse_words(words: Iterable[str], known: Sequence[str], option: str) -> list[str]:
    """Return words in the protocol's spelling; case, dashes and underscores are ignored (`preparing-rebalance`)."""
    spelled = {word.lower(): word for word in known}
    chosen: list[str] = []
    for word in words:
        simple = word.lower().replace("-", "").replace("_", "")
        if simple not in spelled:
            raise typer.BadParameter(f"'{word}' must be one of {', '.join(known)}", param_hint=option)
        chosen.append(spelled[simple])
    return chosen


def unescape(text: str) -> str:
    r"""Replace `\t`, `\n`, `\r`, `\0` and `\\` by the characters that they mean; other backslashes stay."""
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character == "\\" and position + 1 < len(text) and text[position + 1] in _ESCAPES:
            character = _ESCAPES[text[position + 1]]
            position += 1
        parts.append(character)
        position += 1
    return "".join(parts)
