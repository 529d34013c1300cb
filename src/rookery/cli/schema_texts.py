"""Prints schemas on several lines, and the differences between two of them."""

import re
import sys
from collections.abc import Iterable
from difflib import unified_diff

import msgspec
import typer

from rookery.serdes.entities import RegisteredSchema, Schema

# The form in which Confluent's registry, and ours, describes one difference.
_DIFFERENCE = re.compile(
    r"""\{errorType:["'](?P<kind>\w+)["'], description:["'](?P<text>.*?)["'](?:, additionalInfo:.*)?\}$""", re.DOTALL
)
# Messages that begin with these repeat the old schema and the level.
_CONTEXT = ("{oldSchema", "{validateFields", "{compatibility")
_STYLES = {"+": typer.colors.GREEN, "-": typer.colors.RED, "@": typer.colors.CYAN}


def readable(schema: Schema) -> str:
    """Return the schema with JSON indented; Protobuf schemas have several lines already."""
    if schema.schema_type == "PROTOBUF":
        return schema.text.rstrip("\n")
    try:
        return msgspec.json.format(schema.text, indent=2)
    except msgspec.DecodeError:
        # Invalid JSON: the registry reports what is wrong.
        return schema.text


def explain_message(message: str) -> str | None:
    """Return a registry's message as a sentence; None if it only repeats the old schema or the level."""
    if message.startswith(_CONTEXT):
        return None
    found = _DIFFERENCE.match(message)
    return f"{found['text']} ({found['kind']})" if found else message


def print_incompatibilities(old: RegisteredSchema, new: Schema, messages: Iterable[str]) -> None:
    """Print to standard error the reasons, then the lines that differ."""
    typer.secho(f"not compatible with {old.subject}:", err=True, bold=True)
    for message in messages:
        reason = explain_message(message)
        if reason is not None:
            typer.secho(f"  - {reason}", err=True)
    lines = unified_diff(
        readable(old.schema).splitlines(),
        readable(new).splitlines(),
        f"{old.subject} version {old.version}",
        "new",
        lineterm="",
    )
    for line in lines:
        typer.secho(line, err=True, fg=_STYLES.get(line[:1]) if sys.stderr.isatty() else None)
