"""Connects commands to a schema registry, and reads schema files."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rookery.cli.command_config import registry_settings
from rookery.cli.option_values import parse_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rookery.schemas.interface import Reference
    from rookery.serdes.client import RegistryClient
    from rookery.serdes.entities import Schema

_USER_INFO = "basic.auth.user.info"
_STANDARD_INPUT = Path("-")


def connect_registry(registry: str, settings: "Iterable[str] | None") -> "RegistryClient":
    try:
        from rookery.serdes.client import RegistryClient
    except ImportError as error:
        from rookery.cli.errors import needs_extra

        raise needs_extra("registry", error) from None
    given = registry_settings()
    if "@" in registry:
        # The url has a user and a password, which override the file's.
        given.pop(_USER_INFO, None)
    return RegistryClient(registry, given | parse_pairs(settings or (), "--set"))


def read_schema(file: Path, schema_type: str | None, references: "Sequence[str] | None") -> "Schema":
    from rookery.cli.errors import CommandError
    from rookery.schemas.formats import SCHEMA_TYPES
    from rookery.serdes.entities import Schema, schema_type_of

    named = schema_type.upper() if schema_type else schema_type_of(file)
    chosen = next((known for known in SCHEMA_TYPES if known == named), None)
    if chosen is None:
        raise typer.BadParameter(
            f"the type of '{schema_type or file}' is unknown: give one of {', '.join(SCHEMA_TYPES)}",
            param_hint="--type",
        )
    try:
        text = typer.get_text_stream("stdin").read() if file == _STANDARD_INPUT else file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CommandError(f"{file} is not UTF-8: {error}") from None
    return Schema(text, chosen, tuple(map(_reference, (references or ()))))


def _reference(text: str) -> "Reference":
    from rookery.schemas.interface import Reference

    name, equals, where = text.partition("=")
    subject, colon, version = where.rpartition(":")
    if not (name and equals and subject and colon and version.isdecimal()):
        raise typer.BadParameter(f"'{text}' must have the form NAME=SUBJECT:VERSION", param_hint="--reference")
    return Reference(name, subject, int(version))
