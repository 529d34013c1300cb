from pathlib import Path

import pytest

from rookery.spark.pipelines.origins import dead_letter_owners, keeps_bytes, needed_by, roots
from rookery.spark.pipelines.parsing import parse_pipeline
from rookery.spark.pipelines.platform import written_topics
from rookery.spark.pipelines.spec import Pipeline

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


def test_what_a_relation_needs(pipeline: Pipeline) -> None:
    assert needed_by(pipeline, "again") == {"again", "joined", "events", "users"}
    assert needed_by(pipeline, "typed") == {"typed", "plain", "raw"}


def test_each_dead_letter_has_one_writer(pipeline: Pipeline) -> None:
    """The first topic sink that reads its origin; tables, and what only other sinks read, have a flow of their own."""
    assert dead_letter_owners(pipeline) == {
        "out": ("events",),
        "dead-letters": ("clicks", "users"),
        "typed": ("typed",),
    }


def test_only_steps_that_can_fail_need_the_bytes(pipeline: Pipeline) -> None:
    assert [name for name in pipeline.sources if keeps_bytes(pipeline, name)] == ["raw"]
    assert roots(pipeline, ("events", "typed")) == ("events", "raw")


def test_topics_that_may_have_to_be_made(pipeline: Pipeline) -> None:
    letters = dict.fromkeys(["events.dlq", "clicks.dlq", "users.dlq", "raw.dlq"])
    assert written_topics(pipeline) == {"out": 2, "more": None, "typed": None, **letters}
