"""Pins of checkpoints, with directories as Spark writes them."""

from pathlib import Path
from textwrap import dedent

import pytest

from rookery.pipelines.checkpoint_files import CheckpointFiles
from rookery.pipelines.parser import parse_pipeline
from rookery.pipelines.pins import check_pins, dead_letters_start_late, write_pins
from rookery.pipelines.spec import Pipeline

FILES = CheckpointFiles()
TEXT = """\
    name: p
    platform: {bootstrap.servers: "localhost:9092"}
    on_error: dead-letter
    sources:
      events: {topic: events, value_format: json, value_schema: "id int"}
      clicks: {topic: clicks, value_format: json, value_schema: "id int"}
    transforms: []
    sinks:
      - {name: one, topic: out, from: events}
      - {name: two, parquet: files, from: clicks}
    """


def parse(directory: Path, text: str = TEXT) -> Pipeline:
    return parse_pipeline(dedent(text), directory / "p.yaml", {})


def create_checkpoint(pipeline: Pipeline, flow: str, batches: int = 1) -> None:
    """Create the files of a checkpoint, as Spark does."""
    offsets = Path(pipeline.checkpoint_of(flow)) / "offsets"
    offsets.mkdir(parents=True)
    (offsets.parent / "metadata").touch()
    for number in range(batches):
        (offsets / str(number)).touch()
        (offsets / f".{number}.crc").touch()


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """The directory of a pipeline that has run."""
    pipeline = parse(tmp_path)
    assert list(check_pins(pipeline, FILES)) == []
    write_pins(pipeline, FILES)
    for flow in ("one", "two", "dead-letters"):
        create_checkpoint(pipeline, flow)
    assert list(check_pins(pipeline, FILES)) == []
    return tmp_path


def messages(directory: Path, text: str) -> list[str]:
    return [f"{each.location.line}: {each.message}" for each in check_pins(parse(directory, text), FILES)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("on_error: dead-letter", "on_error: fail"),
        ("- {name: one, topic: out, from: events}", "- {name: three, topic: out, from: events}"),
        ("      - {name: one, topic: out, from: events}\n", ""),
        ("  - {name: one, topic", "  - {name: new, topic: more, from: clicks}\n      - {name: one, topic"),
        ("sinks:\n", "sinks:\n      - {name: zero, topic: first, from: events}\n"),
        ("localhost", "elsewhere"),
    ],
)
def test_sinks_can_be_added_removed_and_reordered(ran: Path, old: str, new: str) -> None:
    assert old in TEXT
    assert messages(ran, TEXT.replace(old, new)) == []


def test_a_sink_with_another_target_is_refused(ran: Path) -> None:
    (problem,) = messages(ran, TEXT.replace("topic: out", "topic: other"))
    assert problem == (
        f"9: the checkpoint {ran}/checkpoints/p/one was made for topic out, but the sink now writes to topic other: "
        "restore the old target, or give the sink a new name, so that it starts from the beginning"
    )
    (problem,) = messages(ran, TEXT.replace("name: two, parquet: files", "name: two, console: true"))
    assert "was made for Parquet in " in problem
    write_pins(parse(ran, TEXT.replace("      - {name: one, topic: out, from: events}\n", "")), FILES)
    assert len(messages(ran, TEXT.replace("topic: out", "topic: other"))) == 1, "the pin of a removed sink is kept"


def test_other_origins_of_dead_letters_are_refused(ran: Path) -> None:
    cast = TEXT.replace("transforms: []", "transforms: [{name: typed, from: clicks, steps: [{cast: {id: int}}]}]")
    (problem,) = messages(ran, cast)
    directory = f"{ran}/checkpoints/p/dead-letters"
    assert problem == (
        f"1: the checkpoint {directory} was made for the dead letters of values of clicks, values of events, but the "
        "file now has those of values of clicks, values of events, steps of typed: restore the old ones; or remove "
        f"{directory}, and the dead letters of all records that the topics still have are written again"
    )
    (problem,) = messages(ran, TEXT.replace("topic: events,", "topic: events, key_format: string,"))
    assert "keys of events" in problem
    (Path(directory) / "metadata").unlink()
    assert messages(ran, cast) == []


def test_parquet_with_batches_that_the_checkpoint_does_not_have_is_refused(ran: Path) -> None:
    """Spark skips batches whose numbers are already in the directory."""
    metadata = ran / "files" / "_spark_metadata"
    metadata.mkdir(parents=True)
    (metadata / "0").touch()
    assert messages(ran, TEXT) == []
    renamed = TEXT.replace("name: two", "name: renamed")
    (problem,) = messages(ran, renamed)
    assert problem.startswith(f"10: {ran}/files has batches up to 0, which the checkpoint {ran}/checkpoints/p/renamed")
    assert len(messages(ran, TEXT.replace("name: p", "name: q"))) == 1
    (metadata / "9.compact").touch()
    assert "batches up to 9" in messages(ran, TEXT)[0]


def test_dead_letters_that_start_after_the_sinks(ran: Path) -> None:
    pipeline = parse(ran)
    assert not dead_letters_start_late(pipeline, FILES)
    (Path(pipeline.checkpoint_of("dead-letters")) / "metadata").unlink()
    assert dead_letters_start_late(pipeline, FILES)
    assert not dead_letters_start_late(parse(ran / "new"), FILES)
