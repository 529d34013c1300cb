"""Full collections of a broker's process: how many objects they visit, and what they free."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.node import garbage_cases

CASES = [
    garbage_cases.no_full_collection_visits_many_objects_of_a_large_broker,
    garbage_cases.the_first_collections_of_a_large_broker_do_not_visit_what_python_lets_accumulate,
    garbage_cases.a_frozen_cycle_is_collected_once_the_memory_has_doubled,
    garbage_cases.objects_that_are_frozen_and_freed_do_not_count,
    garbage_cases.few_survivors_are_not_frozen,
    garbage_cases.a_failed_start_leaves_the_collector_enabled,
]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python collects in increments")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_in_a_process_of_its_own(case: object) -> None:
    name = getattr(case, "__name__", "")
    program = f"from tests.node import garbage_cases; garbage_cases.{name}()"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])
