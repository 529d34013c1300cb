"""Tables of transitions as pictures, so that the documentation shows what the code checks."""

from collections.abc import Iterable


def state_diagram(ways: Iterable[tuple[str, str, str]], *, first: str, last: str) -> str:
    """A Mermaid state diagram of ways: from, to, and why."""
    lines = ["stateDiagram-v2", f"    [*] --> {first}"]
    lines += [f"    {before} --> {after}: {cause}" for before, after, cause in ways]
    lines.append(f"    {last} --> [*]")
    return "\n".join(lines) + "\n"
