"""The whole benchmark with tiny sizes, on Rookery alone, as a test of its code. The figures mean nothing."""

from pathlib import Path

import pytest

from bench import results
from bench.__main__ import RESULTS_NAME, main
from bench.model import FLOOR
from bench.results import ROOKERY
from bench.rows import ROWS
from bench.runner import select

# Rows that differ from one of these by a size or a codec only are left to `make bench`.
PARTS = (
    "produce/1KB/12p/lz4/acks=all,produce-raw,consume/100B/1p/none,consume-4-consumers,consume-raw,latency/1000",
    "transactions/100-records/100B/12p,transactions/4-producers,transactions/aborted,transactions/100ms/1KB/1p",
    "transactions/latency/100B/1p",
    "requests/produce/16c,requests/api-versions,requests/metadata,floor/tcp,floor/file,floor/echo/16c,startup/empty",
    "startup/2000p,memory,connections",
    "security",
    "recovery,compaction/1KB",
    "clients/produce/100B,clients/consume/1KB,columns/decode/100B/lz4,columns/encode/1KB/none",
    "registry,spark/decode-avro",
)


@pytest.mark.parametrize("rows", PARTS)
def test_rows_give_figures(rows: str, tmp_path: Path) -> None:
    run_rows(rows, tmp_path)


def run_rows(rows: str, tmp_path: Path) -> None:
    options = ["--rows", rows, "--rounds", "1", "--scale", "0.001", "--systems", "rookery", "--no-warm-up"]
    places = ["--directory", str(tmp_path / "data"), "--output", str(tmp_path / "docs")]
    assert main([*options, *places]) == 0
    found = results.load(tmp_path / "docs" / RESULTS_NAME)
    assert [row.name for row in found.rows] == [row.name for row in select(ROWS, rows)]
    for row in found.rows:
        for metric in row.metrics:
            for values in row.values[metric.name].values():
                assert len(values) == 1
                assert values[0] > 0, metric.name
    page = (tmp_path / "docs" / "performance.md").read_text()
    assert all(row.title in page for row in found.rows)


def test_every_family_is_smoked() -> None:
    smoked = {row.family for part in PARTS for row in select(ROWS, part)}
    assert smoked == {row.family for row in ROWS}


def test_names_are_unique() -> None:
    metrics = [metric.name for row in ROWS for metric in row.metrics]
    assert len(metrics) == len(set(metrics))
    assert len(ROWS) == len({row.name for row in ROWS})
    assert {ROOKERY, FLOOR} == {"rookery", "floor"}
