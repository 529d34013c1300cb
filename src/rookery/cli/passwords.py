"""The passwords of new users: typed twice at a prompt, from a file, or generated; never an option's value.

A password on the command line would be readable in the list of processes and in the shell's history.
"""

import sys
from pathlib import Path
from typing import Final

import typer

from rookery.cli.errors import CommandError

STDIN: Final = "-"


def read_password(user: str, path: str | None) -> str:
    """Return a password from a file (`-` is standard input), without its line end; from a prompt if `path` is None."""
    if path is None:
        return _prompt(user)
    text = sys.stdin.read() if path == STDIN else Path(path).read_text(encoding="utf-8")
    password = text.removesuffix("\n").removesuffix("\r")
    if not password or "\n" in password:
        where = "standard input" if path == STDIN else path
        raise CommandError(f"{where} must hold the password on one line, and nothing else")
    return password


def _prompt(user: str) -> str:
    if not sys.stdin.isatty():
        raise CommandError(
            f"there is no terminal to ask for the password of {user}: add --password-file FILE (- is standard input) "
            "or --generate"
        )
    password: str = typer.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True)
    return password
