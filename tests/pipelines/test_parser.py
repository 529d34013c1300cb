from pathlib import Path
from textwrap import dedent

import pytest

from rookery.pipelines.parser import parse_pipeline
from rookery.pipelines.spec import (
    AvailableNow,
    Cast,
    ConsoleSink,
    Continuous,
    DeduplicateTransform,
    Drop,
    Every,
    FileSource,
    Filter,
    Flatten,
    GeneratorSource,
    JdbcSource,
    Location,
    Mask,
    ParquetSink,
    Pipeline,
    PipelineError,
    PostgresSink,
    PostgresSource,
    PythonTransform,
    Rename,
    Route,
    Set,
    SqlTransform,
    StepsTransform,
    TopicSink,
    TopicSource,
    ToTimestamp,
    Watermark,
)

FILE = Path("dir/pipeline.yaml")
FILE_NAME = "dir/pipeline.yaml"

EVERYTHING = """\
name: page-views
platform: {bootstrap.servers: "${BROKER:-localhost:9092}", schema.registry.url: "http://${HOST}:8081"}
trigger: every 10 seconds
delivery: at-least-once
on_error: null
checkpoint: s3://bucket/checkpoints
restarts: 2
sources:
  events:
    topic: [views, clicks]
    value_format: avro
    starting_offsets: latest
    watermark: {column: at, delay: 10 seconds}
    options: {maxOffsetsPerTrigger: 1000}
  users: {topic: users, table: true, key_format: string, value_format: json, value_schema: "id int"}
  files: {files: in/*.json, format: json, schema: "id int"}
  shop: {postgres: "postgresql://localhost/shop", query: SELECT 1}
  ticks: {generator: {rows_per_second: 5}}
transforms:
  - name: clean
    from: events
    steps:
      - mask: [email]
      - mask: {phone: hash, name: null}
      - rename: {old: new}
      - cast: {count: bigint}
      - filter: count > 0
      - route: concat('to-', page)
      - flatten: true
      - flatten: {columns: [address], separator: "."}
      - timestamp: {at: unix_ms}
      - drop: secret
      - set: {total: price * count}
  - name: counts
    sql: |
      SELECT page,
        count(*) FROM clean
    watermark: {column: at, delay: 1 minute}
  - {name: unique, from: clean, deduplicate: {keys: [id]}}
sinks:
  - {topic: page-counts, from: counts, key: page, value_format: json, output_mode: update, partitions: 3}
  - {parquet: out/views, from: clean, partition_by: day, target_file_size: 64 MB}
  - {name: shop-db, postgres: "postgresql://localhost/shop", table: public.views, key: [id], from: unique}
  - {console: true, from: unique, output_mode: complete}
"""


def parse(text: str, **environment: str) -> Pipeline:
    return parse_pipeline(dedent(text), FILE, environment)


def problems(text: str) -> list[str]:
    """Return the problems of a file as `line: message`."""
    with pytest.raises(PipelineError) as caught:
        parse(text)
    return [f"{problem.location.line}: {problem.message}" for problem in caught.value.problems]


def location(line: int) -> Location:
    return Location(FILE_NAME, line)


def test_all_keys_of_a_file() -> None:
    pipeline = parse(EVERYTHING, HOST="registry")
    assert pipeline.name == "page-views"
    assert pipeline.platform == {"bootstrap.servers": "localhost:9092", "schema.registry.url": "http://registry:8081"}
    assert (pipeline.trigger, pipeline.delivery, pipeline.on_error) == (Every("10 seconds"), "at-least-once", "null")
    assert pipeline.checkpoint_of("page-counts") == "s3://bucket/checkpoints/page-counts"
    assert pipeline.restarts_max == 2


def test_sources() -> None:
    sources = parse(EVERYTHING, HOST="registry").sources
    assert sources["events"] == TopicSource(
        name="events",
        location=location(10),
        topics=("views", "clicks"),
        is_table=False,
        key_format=None,
        value_format="avro",
        value_schema=None,
        starting_offsets="latest",
        watermark=Watermark(location(13), "at", "10 seconds"),
        options={"maxOffsetsPerTrigger": "1000"},
    )
    users, files, shop, ticks = (sources[name] for name in ("users", "files", "shop", "ticks"))
    assert isinstance(users, TopicSource)
    assert (users.is_table, users.key_format, users.value_schema) == (True, "string", "id int")
    assert isinstance(files, FileSource)
    assert files.path == str(Path("dir/in/*.json").absolute())
    assert isinstance(shop, PostgresSource)
    assert (shop.connection, shop.query) == ("postgresql://localhost/shop", "SELECT 1")
    assert isinstance(ticks, GeneratorSource)
    assert ticks.rows_per_second == 5


def test_transforms() -> None:
    clean, counts, unique = parse(EVERYTHING, HOST="registry").transforms.values()
    assert isinstance(clean, StepsTransform)
    assert clean.steps == (
        Mask(location(23), (("email", "redact"),)),
        Mask(location(24), (("phone", "hash"), ("name", "null"))),
        Rename(location(25), (("old", "new"),)),
        Cast(location(26), (("count", "bigint"),)),
        Filter(location(27), "count > 0"),
        Route(location(28), "concat('to-', page)"),
        Flatten(location(29), (), "_"),
        Flatten(location(30), ("address",), "."),
        ToTimestamp(location(31), (("at", "unix_ms"),)),
        Drop(location(32), ("secret",)),
        Set(location(33), (("total", "price * count"),)),
    )
    assert counts == SqlTransform(
        name="counts",
        location=location(34),
        text="SELECT page,\n  count(*) FROM clean\n",
        text_location=location(36),
        watermark=Watermark(location(38), "at", "1 minute"),
    )
    assert unique == DeduplicateTransform(
        name="unique", location=location(39), source="clean", keys=("id",), within_watermark=True
    )


def test_sinks() -> None:
    topic, parquet, postgres, console = parse(EVERYTHING, HOST="registry").sinks
    assert isinstance(topic, TopicSink)
    assert (topic.name, topic.key, topic.output_mode, topic.partitions) == ("page-counts", "page", "update", 3)
    assert isinstance(parquet, ParquetSink)
    assert (parquet.name, parquet.partition_by, parquet.target_file_size_bytes) == ("views", ("day",), 64 * 1024**2)
    assert isinstance(postgres, PostgresSink)
    assert (postgres.name, postgres.table, postgres.key) == ("shop-db", "public.views", ("id",))
    assert isinstance(console, ConsoleSink)
    assert console.output_mode == "complete"


MINIMAL = """\
name: minimal
sources: {ticks: {generator: {}}}
sinks: [{console: true, from: ticks}]
"""


def test_a_minimal_file() -> None:
    pipeline = parse(MINIMAL)
    assert pipeline.trigger == Continuous()
    assert (pipeline.delivery, pipeline.on_error, pipeline.restarts_max) == ("exactly-once", "fail", 5)
    assert pipeline.checkpoint == str(Path("dir/checkpoints/minimal").absolute())
    assert parse(MINIMAL + "trigger: available-now").trigger == AvailableNow()


def test_all_problems_are_reported_together_with_their_lines() -> None:
    text = """\
        name: Bad Name
        triger: continuous
        on_error: ignore
        sources:
          events: {topic: e, value_format: avor, wattermark: {column: at}}
          2nd: {topic: x, files: y, format: json}
          users: {topic: u, table: perhaps, watermark: {column: at, delay: soon}}
        transforms:
          - {name: clean, from: event, steps: [{maks: [a]}, {mask: {a: rot13}}]}
          - {name: nothing}
          - {name: events, sql: SELECT 1}
        sinks:
          - {topic: out, from: clean, output_mode: complete}
          - {topic: out, from: clean}
          - {parquet: x, target_file_size: big}
          - {postgres: p, from: clean, output_mode: update}
        """
    assert problems(text) == [
        "1: the name Bad Name must begin with a lower-case letter or a digit and have only lower-case letters, digits, "
        "dots, dashes and underscores",
        "1: platform needs bootstrap.servers, since the pipeline reads or writes topics",
        "2: the pipeline has no key triger: did you mean trigger?",
        "3: on_error is ignore, but must be one of fail, null, dead-letter",
        "5: value_format is avor, but must be one of avro, json, json-schema, protobuf, string",
        "5: source events has no key wattermark: did you mean watermark?",
        "6: the name 2nd must begin with a letter and have only letters, digits and underscores: SQL refers to it",
        "6: source 2nd needs one of topic, files, postgres, jdbc, generator, but has topic and files",
        "7: table is perhaps, but must be true or false",
        "7: delay is soon, but must be a duration such as 10 seconds",
        "9: there is no step maks: did you mean mask?",
        "9: a cannot be masked by rot13: use one of hash, null, redact",
        "9: no source or transform above is named event: did you mean events?",
        "10: transform nothing needs one of steps, sql, sql_file, python, deduplicate, but has none",
        "10: transform nothing needs the key from",
        "11: the name events is already used above: give the transform another name",
        "13: output_mode is complete, but must be one of append, update",
        "14: another sink is named out: give this one a different name",
        "15: sink 3 needs the key from",
        "15: target_file_size is big, but must be a size such as 64 MB",
        "16: sink 4 needs the key table",
        "16: output_mode update needs a key: rows replace those with the same key",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [", "1: the file is not valid YAML: "),
        ("- a", "1: a pipeline must be a YAML mapping, with the keys name, sources and sinks"),
        ("", "1: a pipeline must be a YAML mapping, with the keys name, sources and sinks"),
    ],
)
def test_a_file_that_is_no_mapping(text: str, expected: str) -> None:
    assert problems(text)[0].startswith(expected)


def test_a_yaml_error_names_its_line() -> None:
    assert problems("name: x\nsources: {a: b\nsinks: ]\n")[0].startswith("3: the file is not valid YAML")


def test_wrong_shapes() -> None:
    text = """\
        name: [x]
        name: y
        sources: 5
        transforms: {}
        sinks:
        restarts: -1
        trigger: hourly
        """
    assert problems(text) == [
        "1: name of the pipeline must be a single value",
        "2: the pipeline has the key name twice",
        "3: sources of the pipeline must be a mapping, with keys and values",
        "4: transforms of the pipeline must be a list",
        "5: sinks of the pipeline must be a list",
        "6: restarts is -1, but must be a whole number of at least 0",
        "7: trigger is hourly, but must be continuous, available-now or an interval such as every 10 seconds",
    ]


def test_environment_variables() -> None:
    text = MINIMAL + "checkpoint: ${BASE}://${DIR:-x}/$${not}/${\n"
    assert parse(text, BASE="s3").checkpoint == "s3://x/${not}/${"
    assert problems(text) == ["4: the environment variable BASE is not set: set it, or write ${BASE:-default}"]


def test_paths_of_python_and_sql_files_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "counts.sql").write_text("SELECT 1")
    (tmp_path / "enrich.py").write_text("")
    file = tmp_path / "pipeline.yaml"
    text = MINIMAL + dedent("""\
        transforms:
          - {name: counts, sql_file: counts.sql}
          - {name: more, python: "enrich.py:enrich", from: [ticks, counts]}
        """)
    counts, more = parse_pipeline(text, file, {}).transforms.values()
    assert isinstance(counts, SqlTransform)
    assert (counts.text, counts.text_location) == ("SELECT 1", Location(str(tmp_path / "counts.sql"), 1))
    assert isinstance(more, PythonTransform)
    assert (more.file, more.function, more.sources) == (tmp_path / "enrich.py", "enrich", ("ticks", "counts"))
    missing = text.replace("counts.sql", "no.sql").replace("enrich.py:enrich", "enrich")
    with pytest.raises(PipelineError) as caught:
        parse_pipeline(missing, file, {})
    assert [problem.message for problem in caught.value.problems] == [
        f"there is no file {tmp_path / 'no.sql'}",
        "python must be FILE:FUNCTION, such as enrich.py:enrich",
    ]


def test_other_databases() -> None:
    text = """\
        name: x
        sources: {shop: {jdbc: "jdbc:mysql://host/shop", table: orders, options: {fetchsize: 10}}}
        sinks: [{console: true, from: shop}]
        """
    assert parse(text).sources["shop"] == JdbcSource(
        name="shop",
        location=location(2),
        url="jdbc:mysql://host/shop",
        table="orders",
        query=None,
        options={"fetchsize": "10"},
    )
    assert problems(text.replace("jdbc:mysql", "mysql").replace("table: orders, ", "")) == [
        "2: source shop needs either table or query",
        "2: jdbc must be an address such as jdbc:mysql://host:3306/database",
    ]


def test_unknown_units_of_timestamps() -> None:
    text = """\
        name: x
        sources: {ticks: {generator: {}}}
        transforms: [{name: a, from: ticks, steps: [{timestamp: {value: unix_ns, at: yyyy, then: unix_ms}}]}]
        sinks: [{console: true, from: a}]
        """
    assert problems(text) == ["3: value cannot be read as unix_ns: did you mean unix_us?"]


def test_sinks_are_numbered_in_the_order_of_the_file() -> None:
    text = """\
        name: p
        sources: {t: {generator: {}}}
        sinks:
          - {consle: true, from: t}
          - nothing
          - {console: true}
          - {parquet: a, postgres: b, from: t}
        """
    found = problems(text)
    assert [line.partition(" ")[0] for line in found] == sorted(line.partition(" ")[0] for line in found)
    for number, line in ((1, 4), (2, 5), (3, 6), (4, 7)):
        assert any(each.startswith(f"{line}: sink {number} ") for each in found), found
