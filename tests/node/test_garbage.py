"""Full collections of a broker's process: how many objects they visit, and what they free."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.node import garbage_cases

CASES = [
    garbage_cases.no_full_collection_visits_all_objects_of_a_large_broker,
    garbage_cases.a_frozen_cycle_is_collected_once_the_frozen_objects_have_doubled,
    garbage_cases.few_survivors_are_not_frozen,
    garbage_cases.a_failed_start_leaves_the_collector_enabled,
]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python collects in increments")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_in_a_process_of_its_own(case: object) -> None:
    name = getattr(case, "__name__", "")
    program = f"from tests.node import garbage_cases; garbage_cases.{name}()"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])
