"""The installed distribution: its name, its version, and how to install a missing extra.

On PyPI the name `rookery` belongs to another program. The distribution is therefore `rookery-streaming`, and a hint
must never suggest to install `rookery` by name.
"""

NAME = "rookery-streaming"


def version() -> str:
    """Return the version of the installed distribution."""
    # Imported here: the module takes some milliseconds, and the start of a broker does not need it.
    from importlib import metadata

    return metadata.version(NAME)


def install_hint(extra: str) -> str:
    """Return the command that installs the libraries of `extra`."""
    return f"run pip install '.[{extra}]' in a clone of Rookery, or install its wheel with [{extra}]"
