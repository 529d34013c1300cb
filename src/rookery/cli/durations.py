"""Durations as text for people: `3 m 12 s`. Used by tables."""

import math

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_SHOWN = 2


def duration_text(seconds: float) -> str:
    """Return the two largest units; milliseconds below a second; `never` for infinity."""
    if math.isinf(seconds):
        return "never"
    if 0 < seconds < 1:
        return f"{max(1, round(seconds * 1000))} ms"
    left = round(seconds)
    parts: list[tuple[int, str]] = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append((count, unit))
    return " ".join(f"{count} {unit}" for count, unit in parts[:_SHOWN] if count) or "0 s"
