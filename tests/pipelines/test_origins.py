from dataclasses import replace
from pathlib import Path

import pytest

from rookery.pipelines.origins import (
    dead_letter_origins,
    dead_letter_sinks,
    dead_letter_sources,
    needed_by,
    needs_raw_bytes,
    record_source,
    sink_dead_letter_topic,
)
from rookery.pipelines.parser import parse_pipeline
from rookery.pipelines.platform import written_topics
from rookery.pipelines.spec import Pipeline

TEXT = """\
name: x
platform: {bootstrap.servers: "localhost:9092"}
on_error: dead-letter
sources:
  events: {topic: events, value_format: json, value_schema: "id int"}
  clicks: {topic: clicks, value_format: json, value_schema: "id int"}
  users: {topic: users, table: true, value_format: json, value_schema: "id int"}
  raw: {topic: raw}
transforms:
  - {name: plain, from: raw, steps: [{drop: [x]}]}
  - {name: typed, from: plain, steps: [{cast: {id: int}}]}
  - {name: joined, sql: "SELECT * FROM Events JOIN users USING (id)"}
  - {name: again, from: joined, steps: [{cast: {id: int}}]}
sinks:
  - {parquet: files, from: joined}
  - {topic: out, from: joined, partitions: 2}
  - {topic: more, from: joined}
  - {parquet: clicks, from: clicks}
  - {topic: typed, from: typed}
"""


@pytest.fixture
def pipeline() -> Pipeline:
    return parse_pipeline(TEXT, Path("x.yaml"), {})


def test_relations_that_a_relation_reads(pipeline: Pipeline) -> None:
    assert needed_by(pipeline, "again") == {"again", "joined", "events", "users"}
    assert needed_by(pipeline, "typed") == {"typed", "plain", "raw"}


def test_origins_of_dead_letters_do_not_depend_on_the_order_of_the_file(pipeline: Pipeline) -> None:
    """A checkpoint identifies origins by position: neither sinks nor the order of the file may change it."""
    origins = dead_letter_origins(pipeline)
    assert origins == ("clicks", "events", "typed", "users")
    reordered = replace(
        pipeline, sources=dict(reversed(list(pipeline.sources.items()))), sinks=tuple(reversed(pipeline.sinks[1:]))
    )
    assert dead_letter_origins(reordered) == origins


def test_only_sources_of_steps_that_can_fail_need_raw_bytes(pipeline: Pipeline) -> None:
    assert [name for name in pipeline.sources if needs_raw_bytes(pipeline, name, "files")] == ["raw"]
    assert dead_letter_sources(pipeline) == ("clicks", "events", "raw", "users")


def test_refused_rows_belong_to_records_unless_sql_made_them() -> None:
    text = TEXT.replace(
        "sinks:",
        """\
  - {name: unique, from: plain, deduplicate: {keys: [id], within: forever}}
sinks:
  - {postgres: "host=x", table: plain, from: unique}
  - {postgres: "host=x", table: sums, from: joined}""",
    )
    pipeline = parse_pipeline(text, Path("x.yaml"), {})
    records, sums = dead_letter_sinks(pipeline)
    assert (record_source(pipeline, records), sink_dead_letter_topic(pipeline, records)) == ("raw", None)
    assert (record_source(pipeline, sums), sink_dead_letter_topic(pipeline, sums)) == (None, "x.sums.dlq")
    alone = parse_pipeline(text.replace("[{cast: {id: int}}]", "[{drop: [id]}]"), Path("x.yaml"), {})
    kept = {flow: [name for name in alone.sources if needs_raw_bytes(alone, name, flow)] for flow in ("plain", "sums")}
    assert kept == {"plain": ["raw"], "sums": []}
    assert written_topics(alone).keys() >= {"raw.dlq", "x.sums.dlq"}
    assert dead_letter_sinks(replace(pipeline, on_error="null")) == ()


def test_topics_that_the_pipeline_may_create(pipeline: Pipeline) -> None:
    letters = dict.fromkeys(["events.dlq", "clicks.dlq", "users.dlq", "raw.dlq"])
    assert written_topics(pipeline) == {"out": 2, "more": None, "typed": None, **letters}


def test_dead_letters_with_a_configured_topic() -> None:
    text = TEXT.replace("on_error: dead-letter", "on_error: dead-letter\ndead_letters: {topic: lost}")
    assert written_topics(parse_pipeline(text, Path("x.yaml"), {})) == {
        "out": 2,
        "more": None,
        "typed": None,
        "lost": None,
    }
