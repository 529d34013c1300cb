import json
from dataclasses import replace

from rookery.base.types import TopicPartition
from rookery.pipelines.progress import BatchReport, Figures, RefusedCounts, advance, gaps, read_report, records_behind

RUN = "11111111-1111-1111-1111-111111111111"
EVENTS_0, EVENTS_1 = TopicPartition("events", 0), TopicPartition("events", 1)


def report_json(batch_id: int = 3, *, ran: bool = True, run_id: str = RUN) -> str:
    durations = {"triggerExecution": 500, "addBatch": 400} if ran else {"triggerExecution": 5}
    return json.dumps(
        {
            "runId": run_id,
            "batchId": batch_id,
            "durationMs": durations,
            "sources": [
                {
                    # Spark counts a source that a query uses twice, twice.
                    "numInputRows": 200,
                    "inputRowsPerSecond": 50.0,
                    "startOffset": {"events": {"0": 0, "1": 0}},
                    "endOffset": {"events": {"0": 90, "1": 100}},
                    "latestOffset": {"events": {"0": 100, "1": 100}},
                },
                {"numInputRows": 0, "inputRowsPerSecond": "NaN", "endOffset": '{"logOffset": 0}'},
            ],
            "observedMetrics": {
                "rows_in.events": {"count": 100},
                "rows_out": {"count": 60},
                "dead_letters.events.0": {"count": 4},
                "dead_letters.clean.0": {"count": 1},
            },
        }
    )


def test_a_report_is_read() -> None:
    report = read_report(report_json())
    assert report == BatchReport(
        run_id=RUN,
        batch_id=3,
        ran=True,
        rows_in=100,
        rows_out=60,
        dead_letters=5,
        rows_in_per_s=50.0,
        batch_ms=500,
        ends={EVENTS_0: 90, EVENTS_1: 100},
        latest={EVENTS_0: 100, EVENTS_1: 100},
    )
    assert report.lags == {"events-0": 10}
    assert gaps(report.ends, report.latest) == {EVENTS_0: 10}


def test_sources_without_observations_and_offsets() -> None:
    sources = [{"numInputRows": 7, "processedRowsPerSecond": 3.5, "endOffset": "12", "latestOffset": None}]
    report = read_report(json.dumps({"runId": RUN, "batchId": 0, "durationMs": {"addBatch": 1}, "sources": sources}))
    assert (report.rows_in, report.rows_in_per_s, report.lags) == (7, 3.5, None)


def test_batches_are_counted_once() -> None:
    figures = advance(Figures(flow="out"), read_report(report_json(0)))
    figures = advance(figures, read_report(report_json(0)))
    figures = advance(figures, read_report(report_json(1)))
    assert (figures.batches, figures.rows_in, figures.rows_out, figures.dead_letters) == (2, 200, 120, 10)
    assert (figures.rows_in_per_s, figures.rows_out_per_s, figures.lag_records) == (50.0, 30.0, 10)


def test_batches_of_a_restarted_query_are_counted_again() -> None:
    figures = advance(Figures(flow="out"), read_report(report_json(5)))
    figures = advance(figures, read_report(report_json(5, run_id="another")))
    assert (figures.batches, figures.batch_id) == (2, 5)


def test_a_trigger_without_new_data_is_no_batch() -> None:
    figures = advance(advance(Figures(flow="out"), read_report(report_json(0))), read_report(report_json(1, ran=False)))
    assert (figures.batches, figures.rows_in, figures.rows_in_per_s) == (1, 100, 0.0)


def test_the_age_of_new_records_is_unknown_at_first() -> None:
    idle = advance(Figures(flow="out"), replace(read_report(report_json(0)), latest={EVENTS_0: 90, EVENTS_1: 100}))
    assert (idle.lag_records, idle.lag_s) == (0, 0.0)
    lagging = advance(idle, read_report(report_json(1)))
    assert (lagging.lag_records, lagging.lag_s) == (10, None)
    assert advance(replace(lagging, lag_s=3.0), read_report(report_json(2))).lag_s == 3.0


def test_a_first_batch_has_no_lag() -> None:
    """Its offsets are only those at which the query begins."""
    offsets = {"events": {"0": 5}}
    sources = [{"startOffset": None, "endOffset": offsets, "latestOffset": offsets}]
    first = read_report(json.dumps({"runId": RUN, "batchId": 0, "durationMs": {"addBatch": 1}, "sources": sources}))
    assert (first.ends, first.lags) == ({EVENTS_0: 5}, None)
    figures = advance(Figures(flow="out"), first)
    assert (figures.lag_records, figures.lag_s) == (None, None)


def test_records_behind_count_each_partition_once() -> None:
    flows = [{"views-0": 10_000, "views-1": 100}, {"views-0": 9_000, "views-1": 200}, None, {}]
    assert records_behind(flows) == 10_200
    assert records_behind([{}, None]) == 0
    assert records_behind([None]) is None


def test_refused_rows_are_counted_as_dead_letters_and_not_as_written() -> None:
    counts = RefusedCounts()
    counts.add(3, 2)
    counts.add(4, 0)
    report = read_report(report_json(3))
    corrected = counts.correct(report)
    assert (corrected.rows_out, corrected.dead_letters) == (report.rows_out - 2, report.dead_letters + 2)
    # A report may be read more than once.
    assert counts.correct(report) == corrected
    other = read_report(report_json(4))
    assert counts.correct(other) == other


def test_counts_of_old_batches_are_dropped() -> None:
    counts = RefusedCounts()
    for batch in range(2000):
        counts.add(batch, 1)
    first, last = read_report(report_json(0)), read_report(report_json(1999))
    assert counts.correct(first) == first
    assert counts.correct(last) != last
