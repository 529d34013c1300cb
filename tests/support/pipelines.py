"""Runs a whole pipeline inside a test."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from threading import Event
from typing import TYPE_CHECKING

from rookery.base.clock import SystemClock
from rookery.pipelines.checks import check_pipeline
from rookery.pipelines.lag import LagLookup
from rookery.pipelines.parser import parse_pipeline
from rookery.pipelines.platform import create_topics
from rookery.pipelines.progress import Figures
from rookery.pipelines.runner import Runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_pipeline(spark: "SparkSession", directory: Path, text: str) -> dict[str, Figures]:
    """Run a pipeline that ends by itself; return its last figures by flow."""
    pipeline = parse_pipeline(dedent(text), directory / "pipeline.yaml", {})
    flows = check_pipeline(spark, pipeline)
    create_topics(pipeline)
    last: dict[str, Figures] = {}

    def on_figures(figures: Sequence[Figures]) -> None:
        last.update({each.flow: each for each in figures})

    with LagLookup(pipeline.platform, SystemClock()) as lags:
        Runner(pipeline, flows, lags=lags, clock=SystemClock()).run(Event(), on_figures)
    return last
