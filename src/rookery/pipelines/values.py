"""Forms of values that several keys of a pipeline's file share. Pure."""

import os
import re
from pathlib import Path
from typing import Final

INTERVAL_FORM: Final = "10 seconds"
_INTERVAL: Final = re.compile(r"\d+(?:\.\d+)?\s+(?:millisecond|second|minute|hour|day|week)s?")


def is_interval(text: str) -> bool:
    """A length of time as Spark's SQL writes it."""
    return _INTERVAL.fullmatch(text.strip().lower()) is not None


def beside(file: Path, path: str) -> str:
    """Paths of a pipeline are relative to its file; addresses of other file systems stay as they are."""
    return path if "://" in path else os.path.abspath(file.parent / path)
