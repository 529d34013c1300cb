from collections import Counter

from bench.profile import list_self_times, self_times


def test_samples_count_for_the_function_on_top() -> None:
    stacks = [
        "thread (1);run (a.py:1);append (b.py:2) 3",
        "thread (1);run (a.py:1) 1",
        "run (a.py:1);append (b.py:2) 4",
    ]
    stacks.append("run (a.py:1);_worker (concurrent/futures/thread.py:69) 9")
    assert self_times(stacks) == Counter({"append (b.py:2)": 7, "run (a.py:1)": 1})


def test_the_list_shows_the_dearest_first() -> None:
    lines = list_self_times(Counter({"cheap": 1, "dear": 3})).splitlines()
    assert lines[0].startswith("4 samples")
    assert lines[1:] == [" 75.00 %  dear", " 25.00 %  cheap"]
