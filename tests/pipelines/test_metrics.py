from pathlib import Path
from urllib.request import urlopen

from rookery.pipelines.metrics import COUNTERS, GAUGES, FiguresCollector, serve_metrics
from rookery.pipelines.progress import Figures


def test_figures_are_served() -> None:
    collector = FiguresCollector("views")
    running = Figures(flow="out", state="running", rows_in=5, batch_ms=250, lags={"views-0": 7})
    collector.update([running, Figures(flow="more")])
    with serve_metrics(collector, "127.0.0.1", 0) as port, urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        lines = response.read().decode().splitlines()
    assert 'rookery_pipeline_rows_in_total{flow="out",pipeline="views"} 5.0' in lines
    assert 'rookery_pipeline_batch_duration_seconds{flow="out",pipeline="views"} 0.25' in lines
    assert 'rookery_pipeline_lag_records{flow="out",pipeline="views"} 7.0' in lines
    assert 'rookery_pipeline_up{flow="more",pipeline="views"} 0.0' in lines
    assert not any(line.startswith('rookery_pipeline_lag_records{flow="more"') for line in lines), (
        "unknown figures are not served"
    )


def test_names_are_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
    names = [f"rookery_pipeline_{name}_total" for name, *_ in COUNTERS] + [
        f"rookery_pipeline_{name}" for name, *_ in GAUGES
    ]
    assert [name for name in names if f"`{name}`" not in page] == []
