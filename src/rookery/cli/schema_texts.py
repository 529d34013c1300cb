"""Schemas for people: laid out over lines, and what changes from one to the next."""

import re
import sys
from collections.abc import Iterable
from difflib import unified_diff

import msgspec
import typer

from rookery.serdes.entities import RegisteredSchema, Schema

# What Confluent's registry, and ours, says about one difference.
_DIFFERENCE = re.compile(
    r"""\{errorType:["'](?P<kind>\w+)["'], description:["'](?P<text>.*?)["'](?:, additionalInfo:.*)?\}$""", re.DOTALL
)
# The rest repeats the old schema and the level.
_CONTEXT = ("{oldSchema", "{validateFields", "{compatibility")
_STYLES = {"+": typer.colors.GREEN, "-": typer.colors.RED, "@": typer.colors.CYAN}


def readable(schema: Schema) -> str:
    """JSON over several lines; Protobuf has them already."""
    if schema.schema_type == "PROTOBUF":
        return schema.text.rstrip("\n")
    try:
        return msgspec.json.format(schema.text, indent=2)
    except msgspec.DecodeError:
        # The registry will say what is wrong with it.
        return schema.text


def explain_message(message: str) -> str | None:
    """A registry's message in plain words; None if it is about nothing that the new schema could change."""
    if message.startswith(_CONTEXT):
        return None
    found = _DIFFERENCE.match(message)
    return f"{found['text']} ({found['kind']})" if found else message


def print_incompatibilities(old: RegisteredSchema, new: Schema, messages: Iterable[str]) -> None:
    """To standard error: the reasons, then the lines that differ."""
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
