"""How the texts of options become values."""

from collections.abc import Iterable, Sequence

import typer

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "\\": "\\"}


def parse_pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """`key=value` texts as a dictionary."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"'{text}' is not key=value", param_hint=option)
        pairs[key] = value
    return pairs


def parse_words(words: Iterable[str], known: Sequence[str], option: str) -> list[str]:
    """Words as the protocol spells them; people may write them in any case, and `preparing-rebalance`."""
    spelled = {word.lower(): word for word in known}
    chosen: list[str] = []
    for word in words:
        simple = word.lower().replace("-", "").replace("_", "")
        if simple not in spelled:
            raise typer.BadParameter(f"'{word}' is none of {', '.join(known)}", param_hint=option)
        chosen.append(spelled[simple])
    return chosen


def unescape(text: str) -> str:
    r"""`\t`, `\n`, `\r`, `\0` and `\\` as the characters they mean; any other backslash stays."""
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
