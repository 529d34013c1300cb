"""Diagrams of transition tables, so that the documentation shows the table that the code checks."""

from collections.abc import Iterable


def state_diagram(transitions: Iterable[tuple[str, str, str]], *, first: str, last: str) -> str:
    """Return a Mermaid state diagram of `transitions`: (from, to, cause)."""
    lines = ["stateDiagram-v2", f"    [*] --> {first}"]
    lines += [f"    {before} --> {after}: {cause}" for before, after, cause in transitions]
    lines.append(f"    {last} --> [*]")
    return "\n".join(lines) + "\n"
