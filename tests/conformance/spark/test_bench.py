"""The benchmark's Spark rows with tiny sizes; the other rows are in tests/bench/test_smoke.py."""

from pathlib import Path

import pytest

from tests.bench.test_smoke import run_rows


# Each of them starts a session.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("rows", ["spark/read", "spark/read-avro", "spark/write"])
def test_rows_give_figures(rows: str, tmp_path: Path) -> None:
    run_rows(rows, tmp_path)
