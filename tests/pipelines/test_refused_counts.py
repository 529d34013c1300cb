from rookery.pipelines.progress import read_report
from rookery.pipelines.refused_counts import RefusedCounts
from tests.pipelines.test_progress import report_json


def test_what_became_a_dead_letter_was_not_written() -> None:
    counts = RefusedCounts()
    counts.note(3, 2)
    counts.note(4, 0)
    report = read_report(report_json(3))
    complete = counts.complete(report)
    assert (complete.rows_out, complete.dead_letters) == (report.rows_out - 2, report.dead_letters + 2)
    # A report may be looked at more than once.
    assert counts.complete(report) == complete
    other = read_report(report_json(4))
    assert counts.complete(other) == other


def test_old_batches_are_forgotten() -> None:
    counts = RefusedCounts()
    for batch in range(2000):
        counts.note(batch, 1)
    first, last = read_report(report_json(0)), read_report(report_json(1999))
    assert counts.complete(first) == first
    assert counts.complete(last) != last
