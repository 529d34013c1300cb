from pathlib import Path

import pytest

from bench import plots, report, results
from bench.model import FLOOR, Metric
from bench.results import COMPILED, KAFKA, ROOKERY, Results, RowResult

SPEED = Metric(name="produce.1KB: MB/s", unit="MB/s", better="higher", goal=">= 1.0")
START = Metric(name="startup.empty: s", unit="s", better="lower", goal="<= 0.4 s, <= 0.2")
DELAY = Metric(name="latency.1000: p50", unit="ms", better="lower", goal="<= 1.0")
RAW = Metric(name="floor.tcp: MB/s", unit="MB/s", better="higher")


def row(metric: Metric, family: str, **values: list[float]) -> RowResult:
    return RowResult(
        name=metric.name.partition(":")[0].replace(".", "/"),
        title=f"the {family.lower()} row",
        family=family,
        metrics=[metric],
        values={metric.name: values},
        timestamp="2030-01-02T03:04:05+00:00",
        commit="abc1234",
    )


@pytest.fixture
def measured() -> Results:
    return Results(
        machine={"cores": "2"},
        rows=[
            row(SPEED, "Produce", rookery=[300, 330, 270], kafka=[200, 220, 180]),
            row(DELAY, "Latency", rookery=[3.0], kafka=[2.0]),
            row(START, "Start", rookery=[0.5, 0.5, 0.5], kafka=[5.0, 5.0, 5.0]),
            row(RAW, "Floor", floor=[4000.0]),
        ],
    )


def test_medians_spread_and_ratio(measured: Results) -> None:
    produce = measured.rows[0]
    assert produce.median(SPEED, ROOKERY) == 300
    assert produce.spread(SPEED, ROOKERY) == pytest.approx(0.2)
    assert produce.ratio(SPEED) == pytest.approx(1.5)
    assert measured.rows[1].spread(DELAY, KAFKA) is None


def test_goals_bound_the_ratio_or_with_a_unit_the_figure(measured: Results) -> None:
    assert [goal.is_met for goal in report.goals(measured.rows[0], SPEED)] == [True]
    assert [(goal.text, goal.is_met) for goal in report.goals(measured.rows[2], START)] == [
        ("<= 0.4 s", False),
        ("<= 0.2", True),
    ]
    alone = row(SPEED, "Produce", rookery=[1.0])
    assert [goal.is_met for goal in report.goals(alone, SPEED)] == [None]


def test_clients_are_compared_with_each_other() -> None:
    metric = Metric(name="clients.produce: records/s", unit="records/s", better="higher", goal=">= 1.5 x aiokafka")
    measured = row(metric, "Clients", rookery=[300.0], aiokafka=[100.0])
    measured.values[metric.name]["kafka-python"] = [50.0]
    assert [(goal.is_met, goal.shown) for goal in report.goals(measured, metric)] == [(True, "3.00")]
    page = report.render(Results(machine={}, rows=[measured]), drawn=[])
    assert "| row |  | Rookery | aiokafka | kafka-python | to aiokafka | to kafka-python |" in page
    assert "| the clients row | records/s | 300 records/s | 100 records/s | 50 records/s | 3.00 | 6.00 |" in page
    assert "| Clients: the clients row, records/s | >= 1.5 x aiokafka | 1 of 1 | 3.00 | 3.00 | ✅ met |" in page


def test_the_page(measured: Results) -> None:
    measured.rows[1].fail(KAFKA, "TimeoutError: too slow\nmore")
    page = report.render(measured, drawn=[plots.THROUGHPUT], notes="[Because](why.svg).\n")
    assert "| the produce row | MB/s | 300 MB/s ±10 % | 200 MB/s ±10 % | 1.50 | 🟢 higher is better |" in page
    assert "| the latency row | p50 | 3 ms | failed | – | lower is better |" in page
    assert "failed on kafka: TimeoutError: too slow\n" in page
    assert "| Start: the start row, s | <= 0.4 s | 0 of 1 | 0.5 s | 0.5 s | ❌ not met |" in page
    assert "| Start: the start row, s | ratio <= 0.2 | 1 of 1 | 0.10 | 0.10 | ✅ met |" in page
    assert "| Latency: the latency row, p50 | ratio <= 1.0 | 0 of 0 | – | – | not measured |" in page
    assert "| the floor row | MB/s | 4,000 MB/s |" in page
    assert "Measured 2030-01-02 at commit abc1234; rounds: 3." in page
    assert "(performance/throughput.svg)" in page
    assert page.endswith("## What explains the rows that fall short\n\n[Because](performance/why.svg).\n")


def test_page_and_plots_are_written_and_the_same_each_time(measured: Results, tmp_path: Path) -> None:
    written = []
    for _ in range(2):
        report.write(measured, tmp_path)
        written.append({path.name: path.read_bytes() for path in tmp_path.rglob("*.*")})
    assert written[0] == written[1]
    assert set(written[0]) == {"performance.md", "throughput.svg", "latency.svg", "footprint.svg"}
    assert b"<text" in written[0]["throughput.svg"], "text stays text"


def test_results_are_loaded_and_merged(measured: Results, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    results.save(measured, path)
    assert results.load(path) == measured
    again = row(SPEED, "Produce", rookery=[1.0], kafka=[1.0])
    measured.merge([again], ["startup/empty", "produce/1KB", "floor/tcp"])
    assert [found.name for found in measured.rows] == ["startup/empty", "produce/1KB", "floor/tcp"]
    assert measured.rows[1] is again
    assert results.load(tmp_path / "missing.json") == Results()
    assert FLOOR in measured.rows[2].values[RAW.name]


def test_a_compiled_build_has_its_own_columns_if_it_was_measured(measured: Results) -> None:
    measured.rows[0].add(COMPILED, {SPEED.name: 400.0})
    page = report.render(measured, drawn=[])
    produce, latency = page.split("## Produce")[1].split("## ")[0], page.split("## Latency")[1].split("## ")[0]
    assert "| compiled | ratio |" in produce
    assert "| 400 MB/s | 2.00 |" in produce
    assert "compiled" not in latency
    assert measured.rows[0].ratio(SPEED) == pytest.approx(1.5), "the goals do not use it"
