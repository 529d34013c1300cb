"""Parts of a file that do not fit each other."""

from pathlib import Path
from textwrap import dedent

import pytest

from rookery.spark.pipelines.parsing import parse_pipeline
from rookery.spark.pipelines.spec import PipelineError


def problems(text: str) -> list[str]:
    with pytest.raises(PipelineError) as caught:
        parse_pipeline(dedent(text), Path("p.yaml"), {})
    return [f"{problem.place.line}: {problem.message}" for problem in caught.value.problems]


def test_keys_of_the_platform() -> None:
    text = """\
        name: x
        platform: {bootstrap.servers: "localhost:9092", sasl.mechanisim: PLAIN, schema.registry.ulr: x, colour: red}
        sources: {ticks: {generator: {}}}
        sinks: [{console: true, from: ticks}]
        """
    assert problems(text) == [
        "2: platform has no sasl.mechanisim: did you mean sasl.mechanism?",
        "2: platform has no schema.registry.ulr: did you mean schema.registry.url?",
        "2: platform has no colour: its keys are those of the clients, and schema.registry.*",
    ]


def test_empty_lists() -> None:
    text = """\
        name: x
        platform: {bootstrap.servers: "localhost:9092"}
        sources: {events: {topic: []}}
        transforms:
          - {name: a, from: [], steps: [{drop: [x]}]}
          - {name: b, from: events, deduplicate: {keys: []}}
        sinks: []
        """
    assert problems(text) == [
        "3: topic of source events is an empty list",
        "5: from of transform a is an empty list",
        "6: keys of deduplicate of transform b is an empty list",
        "7: the pipeline needs sinks",
    ]
    assert problems("name: x\nsources: {}\nsinks: []") == [
        "2: the pipeline needs sources",
        "3: the pipeline needs sinks",
    ]


def test_names_paths_and_loops() -> None:
    text = """\
        name: x
        platform: {bootstrap.servers: "localhost:9092"}
        on_error: dead-letter
        dead_letters: {topic: events}
        sources:
          events: {topic: events, value_format: string}
          ticks: {generator: {}}
        transforms:
          - {name: Ticks, sql: SELECT * FROM events}
        sinks:
          - {name: loop, topic: events, from: Ticks}
          - {name: one, parquet: out, from: ticks}
          - {name: One, parquet: ./x/../out/, from: ticks}
        """
    path = Path("out").absolute()
    assert problems(text) == [
        "6: the dead letters of events go to events, which it reads",
        "9: Ticks and ticks differ in case only: SQL and file systems take them for the same",
        "11: sink loop writes to events, which its own rows come from",
        "13: One and one differ in case only: SQL and file systems take them for the same",
        f"13: sink one writes to {path} already: Spark would lose rows of one of them",
    ]


def test_a_topic_for_dead_letters_needs_dead_letters() -> None:
    text = """\
        name: x
        dead_letters: {topic: lost}
        sources: {ticks: {generator: {}}}
        sinks: [{console: true, from: ticks}]
        """
    assert problems(text) == ["2: dead_letters needs on_error: dead-letter"]


def test_rows_that_tables_refuse_need_a_topic_of_their_own() -> None:
    text = """\
        name: x
        on_error: dead-letter
        dead_letters: {topic: lost}
        platform: {$PLATFORM}
        sources: {events: {$SOURCE}}
        transforms: [{name: counts, sql: "SELECT count(*) AS n FROM events"}]
        sinks: [{postgres: "host=x", table: t, from: counts}]
        """
    ticks = text.replace("$SOURCE", "generator: {}")
    assert problems(ticks.replace("$PLATFORM", "")) == [
        "4: platform needs bootstrap.servers: on_error dead-letter writes rows that a table refuses to a topic"
    ]
    loop = text.replace("$SOURCE", "topic: lost").replace("$PLATFORM", 'bootstrap.servers: "localhost:9092"')
    assert problems(loop) == ["7: rows that t refuses go to lost, which its own rows come from"]


@pytest.mark.parametrize("part", ["key", "value"])
def test_formats_with_schemas_need_a_registry(part: str) -> None:
    text = f"""\
        name: x
        platform: {{bootstrap.servers: "localhost:9092"}}
        sources: {{events: {{topic: e, {part}_format: avro}}}}
        sinks: [{{topic: out, from: events, {part}_format: protobuf}}]
        """
    assert problems(text) == [
        "3: platform needs schema.registry.url: events is avro",
        "4: platform needs schema.registry.url: out is protobuf",
    ]


@pytest.mark.parametrize("sql", ["SELECT 1\n    FROM x", '"SELECT 1\n    FROM x"', ">\n    SELECT 1\n    FROM x"])
def test_sql_whose_lines_yaml_joins_is_refused(sql: str) -> None:
    text = f"name: x\nsources: {{t: {{generator: {{}}}}}}\ntransforms:\n- name: a\n  sql: {sql}\n"
    assert problems(text + "sinks: [{console: true, from: a}]") == [
        "5: sql of transform a has several lines: write it below a |, so that errors can name the line"
    ]
