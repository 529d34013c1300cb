"""Options of a column, with the rest as it is by default."""

from typing import Any

from rookery.spark.options import FormatOptions
from tests.spark.formats.registry import SETTINGS


def format_options(format: str, **given: Any) -> FormatOptions:
    values: dict[str, Any] = {
        "format": format,
        "schema": None,
        "subject": None,
        "version": "latest",
        "message": None,
        "detailed": False,
        "registry": SETTINGS,
        "on_error": "fail",
    }
    return FormatOptions(**values | given)
