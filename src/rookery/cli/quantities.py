"""Parses sizes, rates and durations that users type: `500GB`, `50MB/s`, `10Gbit`, `7d`. Pure."""

import re
from collections.abc import Mapping
from math import isfinite

import typer

_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)(?:/s|ps)?\s*")
_BYTES = {
    "b": 1,
    **{f"{prefix}b": 1000 ** (power + 1) for power, prefix in enumerate("kmgtp")},
    **{f"{prefix}ib": 1024 ** (power + 1) for power, prefix in enumerate("kmgtp")},
}
_BITS = {f"{prefix}bit": 1000 ** (power + 1) / 8 for power, prefix in enumerate("kmgt")}
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_bytes(text: str, option: str) -> float:
    """Parse a size, or a rate per second: `1.5TB`, `50MiB`, `50MB/s`. Raises BadParameter."""
    return _parse(text, _BYTES, option, "a number with a unit, such as 500GB, 64MiB or 50MB/s")


def parse_network(text: str, option: str) -> float:
    """Parse a bandwidth into bytes per second: `10Gbit`, or `125MB/s`. Raises BadParameter."""
    return _parse(text, _BITS | _BYTES, option, "a number with a unit, such as 10Gbit or 125MB/s")


def parse_seconds(text: str, option: str) -> float:
    """Parse a duration: `7d`, `36h`, `30min`, `90s`. Raises BadParameter."""
    return _parse(text, _SECONDS, option, "a number with a unit, such as 7d, 36h, 30min or 90s")


def _parse(text: str, units: Mapping[str, float], option: str, expected: str) -> float:
    match = _QUANTITY.fullmatch(text)
    factor = None if match is None else units.get(match[2].lower())
    if match is None or factor is None or not isfinite(value := float(match[1]) * factor):
        raise typer.BadParameter(f"'{text}' must be {expected}", param_hint=option)
    return value
