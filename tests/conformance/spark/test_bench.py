"""The benchmark's rows of Spark with tiny sizes; the others are in tests/bench/test_smoke.py."""

from pathlib import Path

import pytest

from tests.bench.test_smoke import run_rows


# A session for each of them.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("rows", ["spark/read", "spark/read-avro", "spark/write"])
def test_rows_give_figures(rows: str, tmp_path: Path) -> None:
    run_rows(rows, tmp_path)
