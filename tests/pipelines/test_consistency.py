"""Checks that the parts of a file fit each other."""

from pathlib import Path
from textwrap import dedent

import pytest

from rookery.pipelines.parser import parse_pipeline
from rookery.pipelines.spec import PipelineError


def problems(text: str) -> list[str]:
    with pytest.raises(PipelineError) as caught:
        parse_pipeline(dedent(text), Path("p.yaml"), {})
    return [f"{problem.location.line}: {problem.message}" for problem in caught.value.problems]


def test_keys_of_the_platform() -> None:
    text = """\
        name: x
        platform: {bootstrap.servers: "localhost:9092", sasl.mechanisim: PLAIN, schema.registry.ulr: x, colour: red}
        sources: {ticks: {generator: {}}}
        sinks: [{console: true, from: ticks}]
        """
    assert problems(text) == [
        "2: platform has no key sasl.mechanisim: did you mean sasl.mechanism?",
        "2: platform has no key schema.registry.ulr: did you mean schema.registry.url?",
        "2: platform has no key colour: use settings of the clients, and schema.registry.*",
    ]


def test_values_of_the_platform() -> None:
    text = """\
        name: x
        platform:
          bootstrap.servers: "localhost:9092"
          acks: maybe
          request.timeout.ms: soon
          transactional.id: mine
          auto.offset.reset: earliest
          schema.registry.max.retries: -1
        sources: {events: {topic: e}}
        sinks: [{topic: out, from: events}]
        """
    assert problems(text) == [
        "4: Invalid value maybe for configuration acks: must be one of: all, -1, 0, 1",
        "5: Invalid value soon for configuration request.timeout.ms: not a number of type INT",
        "6: platform cannot have transactional.id: the sink generates a transactional id for each task; set txnAppId "
        "to name a write",
        "7: platform cannot have auto.offset.reset: set starting_offsets instead: earliest, latest or offsets",
        "8: Invalid value -1 for configuration max.retries: must be at least 0",
    ]


def test_values_of_the_platform_that_contradict_each_other() -> None:
    text = """\
        name: x
        platform: {bootstrap.servers: "h:1", delivery.timeout.ms: 5, security.protocol: SASL_SSL, sasl.mechanism: PLAIN}
        sources: {events: {topic: e}}
        sinks: [{SINK, from: events}]
        """
    login, delivery = "2: sasl.jaas.config is required: ", "2: delivery.timeout.ms (5) must be at least"
    assert [each.startswith(login) for each in problems(text.replace("SINK", "console: true"))] == [True]
    assert any(each.startswith(delivery) for each in problems(text.replace("SINK", "topic: out")))
    assert problems(
        """\
        name: x
        platform: {schema.registry.url: "http://h", schema.registry.basic.auth.user.info: ann}
        sources: {ticks: {generator: {}}}
        sinks: [{console: true, from: ticks}]
        """
    ) == ["2: schema.registry.basic.auth.user.info must be user:password"]


def test_invalid_topic_names() -> None:
    text = """\
        name: x
        platform: {bootstrap.servers: "localhost:9092"}
        on_error: dead-letter
        dead_letters: {topic: "a/b"}
        sources:
          events: {topic: [fine.1_2-3, "bad topic!"]}
        sinks:
          - {name: out, topic: "..", from: events}
        """
    reason = "has characters other than ASCII letters, digits, '.', '_' and '-'"
    assert problems(text) == [
        f"4: Topic name is invalid: 'a/b' {reason}",
        f"6: Topic name is invalid: 'bad topic!' {reason}",
        "8: Topic name is invalid: '..' is not allowed",
    ]


def test_misspelled_kinds() -> None:
    text = """\
        name: x
        sources:
          ticks: {generator: {}}
          users: {topik: u}
        transforms:
          - {name: ticks, from: ticks, stepps: []}
        sinks:
          - {console: true, from: ticcks}
          - {topik: out, from: tocks}
        """
    assert problems(text) == [
        "4: source users has no key topik: did you mean topic?",
        "6: transform ticks has no key stepps: did you mean steps?",
        "6: the name ticks is already used above: give the transform another name",
        "8: no source or transform above is named ticcks: did you mean ticks?",
        "9: sink 2 has no key topik: did you mean topic?",
        "9: no source or transform above is named tocks: did you mean ticks?",
    ]
    far = text.replace("ticcks", "qqqq")
    assert "8: no source or transform above is named qqqq: use one of ticks" in problems(far), (
        "each name is listed once"
    )


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
        "7: the pipeline needs at least one sink",
    ]
    assert problems("name: x\nsources: {}\nsinks: []") == [
        "2: the pipeline needs at least one source",
        "3: the pipeline needs at least one sink",
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
        "6: the dead letters of events go to events, which events reads: change dead_letters",
        "9: Ticks and ticks differ only in case: rename one, since SQL and some file systems ignore case",
        "11: sink loop writes to events, from which its own rows are read",
        "13: One and one differ only in case: rename one, since SQL and some file systems ignore case",
        f"13: sink one also writes to {path}: change the path, or Spark would lose rows of one",
    ]


def test_a_topic_of_dead_letters_needs_on_error_dead_letter() -> None:
    text = """\
        name: x
        dead_letters: {topic: lost}
        sources: {ticks: {generator: {}}}
        sinks: [{console: true, from: ticks}]
        """
    assert problems(text) == ["2: dead_letters needs on_error: dead-letter"]


def test_refused_rows_need_a_topic_that_the_sink_does_not_read() -> None:
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
    assert problems(loop) == ["7: rows that t refuses go to lost, from which its own rows are read"]


@pytest.mark.parametrize("part", ["key", "value"])
def test_formats_with_schemas_need_a_registry(part: str) -> None:
    text = f"""\
        name: x
        platform: {{bootstrap.servers: "localhost:9092"}}
        sources: {{events: {{topic: e, {part}_format: avro}}}}
        sinks: [{{topic: out, from: events, {part}_format: protobuf}}]
        """
    assert problems(text) == [
        "3: platform needs schema.registry.url, since events has the format avro",
        "4: platform needs schema.registry.url, since out has the format protobuf",
    ]


@pytest.mark.parametrize("sql", ["SELECT 1\n    FROM x", '"SELECT 1\n    FROM x"', ">\n    SELECT 1\n    FROM x"])
def test_sql_of_several_lines_must_be_a_block(sql: str) -> None:
    text = f"name: x\nsources: {{t: {{generator: {{}}}}}}\ntransforms:\n- name: a\n  sql: {sql}\n"
    assert problems(text + "sinks: [{console: true, from: a}]") == [
        "5: sql of transform a has several lines: write it as a block after |, so that errors can name the line"
    ]


def test_settings_of_a_sink_are_checked_together_with_those_of_the_platform() -> None:
    text = """\
        name: x
        platform: {bootstrap.servers: "localhost:9092", delivery.timeout.ms: 20000}
        sources: {ticks: {generator: {}}}
        sinks:
          - {topic: fine, from: ticks, options: {kafka.request.timeout.ms: "5000"}}
          - {topic: slow, from: ticks, options: {kafka.request.timeout.ms: "60000"}}
        """
    [problem] = problems(text)
    assert problem.startswith("6: delivery.timeout.ms (20000) must be at least linger.ms + request.timeout.ms")
