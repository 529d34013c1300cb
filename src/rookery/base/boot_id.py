"""Identifies the time since the machine was booted, as far as the operating system tells."""

from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id() -> str | None:
    """Return an id that every boot of this machine changes; None if there is none, as on systems other than Linux."""
    try:
        return _BOOT_ID.read_text().strip() or None
    except OSError:
        return None
