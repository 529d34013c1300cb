"""Generates docs/metrics.md: `python -m rookery.telemetry.docs > docs/metrics.md`."""

import sys
from itertools import groupby
from typing import Final

from rookery.base.config_docs import markdown_table, section
from rookery.telemetry.dialects import DIALECTS, series
from rookery.telemetry.histograms import Histogram, distribution
from rookery.telemetry.measurements import Definition, Idle, Kind, Value, single
from rookery.telemetry.names import DEFINITIONS

_INTRODUCTION: Final = """\
# Metrics of a node

<!-- Generated from src/rookery/telemetry/names.py by `make docs`. Do not edit. -->

What `metrics.listeners` serves ([monitoring.md](monitoring.md)), by Kafka's MBeans. Each row has the name in the
dialects `strimzi`, `confluent` and `reporter`; where one name is given, it is the same in all of them. A histogram has
a line for each of the quantiles 0.50, 0.75, 0.95, 0.98, 0.99 and 0.999 of the last five minutes, and a counter
`..._count`.
"""
_SAMPLES: Final[dict[Kind, Value]] = {
    Kind.HISTOGRAM: distribution([Histogram()]),
    Kind.IDLE: Idle(0.0, 1.0, 1.0),
}


def render() -> str:
    sections = [_INTRODUCTION]
    for (domain, bean), group in groupby(DEFINITIONS, key=lambda each: (each.domain, each.type)):
        title = f"{domain}:type={bean}" if domain else "Names that are the same in all dialects"
        rows = [(_names(each), each.kind.value, each.help) for each in group]
        sections.append(section(title, markdown_table(("names", "kind", "meaning"), rows)))
    return "\n".join(sections)


def _names(definition: Definition) -> str:
    value = "state" if definition.name == "current-state" else _SAMPLES.get(definition.kind, 1.0)
    family = single(definition, value)
    found = dict.fromkeys(next(series(family, dialect)).name for dialect in DIALECTS.values())
    return ", ".join(f"`{name}`" for name in found)


if __name__ == "__main__":
    sys.stdout.write(render())
