"""The committed counts, and how new ones compare with them.

In the environment that the baseline was counted in, counts repeat within a fraction of a percent and are compared as
they are. Elsewhere the baseline is converted by the ratio of the two calibrations, which is a rough measure: another
Python may need more for what one operation does and less for what another does. Hence two tolerances (docs/cost.md).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.cost.session import Counts

PATH = Path(__file__).parent / "baseline.json"

TOLERANCE = 0.03
TOLERANCE_ELSEWHERE = 0.20
# Environments with equal names and another calibration are builds of Python with other options.
_CALIBRATION_TOLERANCE = 0.005


@dataclass(frozen=True, slots=True)
class Baseline:
    environment: dict[str, str]
    calibration: int
    instructions: dict[str, int]


@dataclass(frozen=True, slots=True)
class Row:
    """One operation. `expected` is the baseline's count, converted to this environment; None if it has none."""

    name: str
    counted: int
    expected: int | None

    @property
    def ratio(self) -> float | None:
        return None if self.expected is None else self.counted / self.expected


@dataclass(frozen=True, slots=True)
class Comparison:
    """`differences` says in what the environment differs from the baseline's; empty if in nothing."""

    rows: list[Row]
    differences: list[str]

    @property
    def tolerance(self) -> float:
        return TOLERANCE_ELSEWHERE if self.differences else TOLERANCE

    def is_dearer(self, row: Row) -> bool:
        return row.ratio is None or row.ratio > 1 + self.tolerance

    def is_cheaper(self, row: Row) -> bool:
        return row.ratio is not None and row.ratio < 1 - self.tolerance


def compare(baseline: Baseline, counts: Counts, environment: Mapping[str, str]) -> Comparison:
    differences = _differences(baseline, counts, environment)
    scale = counts.calibration / baseline.calibration if differences else 1.0
    rows = []
    for name, counted in counts.instructions.items():
        known = baseline.instructions.get(name)
        rows.append(Row(name, counted, None if known is None else round(known * scale)))
    return Comparison(rows, differences)


def _differences(baseline: Baseline, counts: Counts, environment: Mapping[str, str]) -> list[str]:
    before, now = baseline.environment, environment
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    found = [f"{name}: {now.get(name, 'none')} instead of {before.get(name, 'none')}" for name in names]
    change = counts.calibration / baseline.calibration - 1
    if not found and abs(change) > _CALIBRATION_TOLERANCE:
        found.append(f"another build of Python: the calibration takes {change:+.1%} instructions")
    return found


def load(path: Path = PATH) -> Baseline:
    return Baseline(**json.loads(path.read_text()))


def save(baseline: Baseline, path: Path = PATH) -> None:
    path.write_text(json.dumps(asdict(baseline), indent=2) + "\n")
