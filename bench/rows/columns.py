"""Record batches to Arrow and back, in memory, on one core (bench.columnar)."""

from collections.abc import Mapping
from functools import partial

from bench.load import Load, run_loads
from bench.model import MEGABYTE, Bench, Metric, Row
from bench.results import ROOKERY

_SIZES = {"100B": 100, "1KB": 1000}
_CODECS = ("none", "lz4", "zstd")
_BYTES = 200_000_000
_PASSES = 4
# Larger records are bound by memory, compressed ones by their codec.
_GOALS = {("100B", "none"): ">= 10_000_000 records/s"}


def run(key: str, action: str, size: str, codec: str, bench: Bench) -> Mapping[str, float]:
    options = {
        "record_bytes": _SIZES[size],
        "records": bench.scaled(_BYTES // _SIZES[size], minimum=1000),
        "codec": codec,
        "passes": _PASSES,
    }
    result = run_loads([Load("bench.columnar", action, options)]).result
    return {
        f"{key}: records/s": result["records"] / result["cpu_s"],
        f"{key}: MB/s": result["bytes"] / MEGABYTE / result["cpu_s"],
    }


def _row(action: str, size: str, codec: str) -> Row:
    name = f"columns/{action}/{size}/{codec}"
    key = name.replace("/", ".")
    return Row(
        name=name,
        title=f"{action}, {size}, {codec}",
        family="Columns",
        metrics=(
            Metric(name=f"{key}: records/s", unit="records/s", better="higher", goal=_GOALS.get((size, codec))),
            Metric(name=f"{key}: MB/s", unit="MB/s", better="higher"),
        ),
        run=partial(run, key, action, size, codec),
        shared=False,
        contestants=(ROOKERY,),
        warm_up=False,
    )


ROWS = tuple(_row(action, size, codec) for action in ("decode", "encode") for size in _SIZES for codec in _CODECS)
