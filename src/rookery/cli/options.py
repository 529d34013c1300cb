"""Options that several commands share, and the parsing of their values."""

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from rookery.cli import completion
from rookery.cli.command_config import brokers_of_file
from rookery.cli.platform import BROKER, REGISTRY

BootstrapServer = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="ROOKERY_BOOTSTRAP_SERVER",
        metavar="HOST:PORT[,...]",
        help="Brokers to ask first.",
        callback=brokers_of_file,
    ),
]
DEFAULT_BOOTSTRAP_SERVER = BROKER
DEFAULT_REGISTRY = REGISTRY

Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="Give up on the cluster after this time.")
]
DEFAULT_TIMEOUT_S = 30.0

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

ClientSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A setting of the client, by Kafka's name. Repeatable.",
        autocompletion=completion.client_settings,
    ),
]

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
