"""The text of a scrape: Prometheus' format, and OpenMetrics.

The two differ little: OpenMetrics ends with `# EOF`, and the name of a counter must end in `_total` there. A counter
whose name in a dialect does not is of unknown type, which Prometheus treats the same. Pure.
"""

import re
from collections.abc import Iterable
from math import inf, isnan
from typing import Final

from rookery.telemetry.dialects import Dialect, Series, series
from rookery.telemetry.measurements import Family, Tags

PROMETHEUS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_NOT_IN_LABEL: Final = re.compile(r"[^a-zA-Z0-9_]")


def render(families: Iterable[Family], dialect: Dialect, *, is_open_metrics: bool = False) -> str:
    """Return the text of all families. Those with the same name in the dialect become one: a name must occur once."""
    merged: dict[str, Series] = {}
    for family in families:
        for each in series(family, dialect):
            found = merged.get(each.name)
            if found is None:
                merged[each.name] = each
            else:
                found.samples.extend(each.samples)
    lines: list[str] = []
    for each in merged.values():
        if each.samples:
            lines += _header(each, is_open_metrics=is_open_metrics)
            lines += [f"{each.name}{_labels(tags)} {_number(value)}" for tags, value in each.samples]
    if is_open_metrics:
        lines.append("# EOF")
    return "\n".join(lines) + "\n"


def _header(each: Series, *, is_open_metrics: bool) -> list[str]:
    name, kind = each.name, each.type
    if is_open_metrics and kind == "counter":
        name, kind = (name.removesuffix("_total"), kind) if name.endswith("_total") else (name, "unknown")
    text = each.help.replace("\\", r"\\").replace("\n", r"\n")
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _labels(tags: Tags) -> str:
    if not tags:
        return ""
    pairs = (f'{_NOT_IN_LABEL.sub("_", tag)}="{text.translate(_ESCAPES)}"' for tag, text in tags)
    return "{" + ",".join(pairs) + "}"


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if isnan(value):
        return "NaN"
    if value in (inf, -inf):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
