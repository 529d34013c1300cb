"""Sizes in bytes as text, for tables. Pure."""

_STEP = 1024


def size_text(size_bytes: int | None) -> str | None:
    """Return a size with a binary unit, such as `1.5 GiB`; None stays None, which tables show as a dash."""
    if size_bytes is None:
        return None
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < _STEP:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= _STEP
    return f"{size:.1f} TiB"
