"""How counts are compared, reported and kept; `test_cost_counts.py` counts."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.cost import __main__, environment, perf_event, report, run
from bench.cost.baseline import (
    TOLERANCE,
    TOLERANCE_ELSEWHERE,
    Baseline,
    Comparison,
    Row,
    compare,
    load,
    save,
)
from bench.cost.calibration import calibrate
from bench.cost.counters import CALLGRIND, PERF, Callgrind, Perf, find_counter
from bench.cost.operations import OPERATIONS, Operation
from bench.cost.session import Counts

HERE = {"counter": CALLGRIND, "python": "CPython 3.11.7"}
BASELINE = Baseline(HERE, 1000, {"heartbeat": 100_000, "api-versions": 50_000})
# PERF_TYPE_SOFTWARE and PERF_COUNT_SW_PAGE_FAULTS, which the kernel counts where the processor cannot.
PAGE_FAULTS = perf_event.EventKind(1, 2)


def compared(heartbeat: int, *, calibration: int = 1000, **environment: str) -> Comparison:
    return compare(BASELINE, Counts(calibration, {"heartbeat": heartbeat}), HERE | environment)


def test_an_operation_may_cost_as_much_as_the_tolerance_allows() -> None:
    allowed = round(100_000 * (1 + TOLERANCE))
    assert report.failures(compared(allowed)) == []
    failure, advice = report.failures(compared(allowed + 1000))
    assert failure == (
        "heartbeat (Heartbeat) takes 104,000 instructions, 4.0% more than the baseline's 100,000; 3% more is allowed."
    )
    assert "renew the baseline with `make cost UPDATE=1`" in advice


def test_an_operation_that_became_cheaper_is_reported_and_does_not_fail() -> None:
    comparison = compared(90_000)
    assert report.failures(comparison) == []
    (improvement,) = report.improvements(comparison)
    assert improvement.startswith("heartbeat (Heartbeat) takes 10.0% fewer instructions than the baseline")
    assert report.improvements(compared(99_000)) == []


def test_an_operation_without_a_baseline_fails() -> None:
    comparison = compare(BASELINE, Counts(1000, {"join-100": 1}), HERE)
    assert comparison.rows == [Row("join-100", 1, None)]
    failure, advice = report.failures(comparison)
    assert failure == "join-100 (JoinGroup of 100 members) has no baseline."
    assert "renew the baseline with `make cost UPDATE=1`" in advice


def test_another_environment_is_converted_by_the_calibration_and_gets_a_wider_tolerance() -> None:
    comparison = compared(220_000, calibration=2000, python="CPython 3.13.0")
    assert comparison.rows == [Row("heartbeat", 220_000, 200_000)]
    assert comparison.differences == ["python: CPython 3.13.0 instead of CPython 3.11.7"]
    assert comparison.tolerance == TOLERANCE_ELSEWHERE
    assert report.failures(comparison) == []
    assert "python: CPython 3.13.0 instead of CPython 3.11.7" in report.explain_environment(comparison)
    too_much = round(200_000 * (1 + TOLERANCE_ELSEWHERE)) + 1000
    assert report.failures(compared(too_much, calibration=2000, python="CPython 3.13.0"))


def test_another_build_of_the_same_python_is_another_environment() -> None:
    comparison = compared(120_000, calibration=1200)
    assert comparison.differences == ["another build of Python: the calibration takes +20.0% instructions"]
    assert comparison.rows == [Row("heartbeat", 120_000, 120_000)]
    assert compared(100_000, calibration=1001).differences == []


def test_the_page_shows_the_committed_baseline() -> None:
    page = report.PAGE.read_text()
    assert report.refresh(page, load()) == page
    with pytest.raises(ValueError, match="the page has no table between"):
        report.refresh("no table", load())


def test_the_committed_baseline_has_every_operation() -> None:
    assert list(load().instructions) == [operation.name for operation in OPERATIONS]


def test_a_baseline_is_kept_as_it_is(tmp_path: Path) -> None:
    save(BASELINE, tmp_path / "baseline.json")
    assert load(tmp_path / "baseline.json") == BASELINE


def test_an_update_of_some_operations_keeps_the_others_of_the_same_environment() -> None:
    counts = Counts(1000, {"heartbeat": 90_000})
    merged = __main__.merge(BASELINE, counts, HERE)
    assert merged == Baseline(HERE, 1000, {"heartbeat": 90_000, "api-versions": 50_000})
    elsewhere = HERE | {"python": "CPython 3.13.0"}
    assert __main__.merge(BASELINE, counts, elsewhere) == Baseline(elsewhere, 1000, {"heartbeat": 90_000})


def test_what_looks_dearer_is_counted_again_and_the_lower_count_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = environment.describe(PERF)
    known = Baseline(here, 1000, {"heartbeat": 100_000, "api-versions": 50_000, "join-100": 10})
    found = [
        Counts(1000, {"heartbeat": 150_000, "api-versions": 60_000, "join-100": 10}),
        Counts(1000, {"heartbeat": 101_000, "api-versions": 61_000}),
    ]
    asked: list[list[str]] = []

    def count_all(operations: Sequence[Operation], *_: object, **options: object) -> Counts:
        asked.append([operation.name for operation in operations])
        return found[len(asked) - 1]

    monkeypatch.setattr(run, "count_all", count_all)
    operations = [operation for operation in OPERATIONS if operation.name in known.instructions]
    counts, comparison = run.count_and_compare(known, operations, Perf(), tmp_path)
    assert asked == [["heartbeat", "api-versions", "join-100"], ["heartbeat", "api-versions"]]
    assert counts.instructions == {"heartbeat": 101_000, "api-versions": 60_000, "join-100": 10}
    failure, _ = report.failures(comparison)
    assert failure.startswith("api-versions (ApiVersions) takes 60,000 instructions")


def test_operations_that_do_not_exist_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["--operations", "nothing"]) == 2
    assert "heartbeat" in capsys.readouterr().out


def test_a_machine_without_a_counter_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(perf_event, "is_supported", lambda: False)
    assert __main__.main([]) == 2
    assert "apt-get install valgrind" in capsys.readouterr().out


def test_the_preferred_counter_is_taken_if_the_machine_has_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(perf_event, "is_supported", lambda: True)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert isinstance(find_counter(CALLGRIND), Perf)
    assert find_counter(CALLGRIND, only=True) is None
    (tmp_path / "valgrind").touch(mode=0o755)
    assert isinstance(find_counter(CALLGRIND), Callgrind)
    assert isinstance(find_counter(PERF), Perf)


def test_callgrind_counts_from_mark_to_mark(tmp_path: Path) -> None:
    (tmp_path / "callgrind.3").write_text("summary: 9\n\ntotals: 1234\n")
    counter = Callgrind()
    assert counter.count(tmp_path, [0, 0, 0]) == 1234
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "callgrind.4").write_text("cut off")
    with pytest.raises(RuntimeError, match="has no totals"):
        counter.count(tmp_path, [0] * 4)


def test_perf_counts_from_mark_to_mark(tmp_path: Path) -> None:
    assert Perf().count(tmp_path, [5, 100, 130]) == 30


def test_an_event_of_the_kernel_is_counted() -> None:
    """The processor's own events are opened in the same way; a virtual machine often has none."""
    if not perf_event.is_supported(PAGE_FAULTS):
        pytest.skip("perf_event_open is not allowed here")
    event = perf_event.PerfEvent(PAGE_FAULTS)
    try:
        before = event.read()
        memory = bytearray(1 << 24)
        memory[:: 1 << 12] = bytes(len(memory) >> 12)
        # How many there are depends on the size of the pages that the kernel chooses.
        assert event.read() > before
    finally:
        event.close()


def test_an_event_that_the_machine_does_not_count_is_not_supported() -> None:
    assert not perf_event.is_supported(perf_event.EventKind(0xFFFF, 0))


def test_the_calibration_does_the_same_work_each_time() -> None:
    assert calibrate() == calibrate()
