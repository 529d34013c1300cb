"""What a checkpoint was made for, with directories as Spark writes them."""

from pathlib import Path
from textwrap import dedent

import pytest

from rookery.pipelines.checkpoint_files import CheckpointFiles
from rookery.pipelines.parser import parse_pipeline
from rookery.pipelines.pins import check_pins, letters_come_later, write_pins
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


def began(pipeline: Pipeline, flow: str, batches: int = 1) -> None:
    """As Spark leaves a checkpoint."""
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
        began(pipeline, flow)
    assert list(check_pins(pipeline, FILES)) == []
    return tmp_path


def messages(directory: Path, text: str) -> list[str]:
    return [f"{each.place.line}: {each.message}" for each in check_pins(parse(directory, text), FILES)]


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
def test_sinks_may_come_go_and_change_places(ran: Path, old: str, new: str) -> None:
    assert old in TEXT
    assert messages(ran, TEXT.replace(old, new)) == []


def test_a_sink_with_another_target_is_refused(ran: Path) -> None:
    (problem,) = messages(ran, TEXT.replace("topic: out", "topic: other"))
    assert problem == (
        f"9: the checkpoint {ran}/checkpoints/p/one was made for topic out, and the sink now is topic other: restore "
        "it, or give the sink a new name, and it begins anew"
    )
    (problem,) = messages(ran, TEXT.replace("name: two, parquet: files", "name: two, console: true"))
    assert "was made for Parquet in " in problem
    write_pins(parse(ran, TEXT.replace("      - {name: one, topic: out, from: events}\n", "")), FILES)
    assert len(messages(ran, TEXT.replace("topic: out", "topic: other"))) == 1, "it is known while the sink is away"


def test_other_origins_of_dead_letters_are_refused(ran: Path) -> None:
    cast = TEXT.replace("transforms: []", "transforms: [{name: typed, from: clicks, steps: [{cast: {id: int}}]}]")
    (problem,) = messages(ran, cast)
    directory = f"{ran}/checkpoints/p/dead-letters"
    assert problem == (
        f"1: the checkpoint {directory} was made for the dead letters of values of clicks, values of events, and there "
        "now are those of values of clicks, values of events, steps of typed: restore them; or remove "
        f"{directory}, and the dead letters of all records that the topics still have are written again"
    )
    (problem,) = messages(ran, TEXT.replace("topic: events,", "topic: events, key_format: string,"))
    assert "keys of events" in problem
    (Path(directory) / "metadata").unlink()
    assert messages(ran, cast) == []


def test_parquet_with_batches_that_the_checkpoint_does_not_know_is_refused(ran: Path) -> None:
    """Spark leaves out batches whose numbers are in the directory already."""
    metadata = ran / "files" / "_spark_metadata"
    metadata.mkdir(parents=True)
    (metadata / "0").touch()
    assert messages(ran, TEXT) == []
    renamed = TEXT.replace("name: two", "name: renamed")
    (problem,) = messages(ran, renamed)
    assert problem.startswith(f"10: {ran}/files has batches up to 0 that the checkpoint {ran}/checkpoints/p/renamed")
    assert len(messages(ran, TEXT.replace("name: p", "name: q"))) == 1
    (metadata / "9.compact").touch()
    assert "batches up to 9" in messages(ran, TEXT)[0]


def test_dead_letters_that_come_later(ran: Path) -> None:
    pipeline = parse(ran)
    assert not letters_come_later(pipeline, FILES)
    (Path(pipeline.checkpoint_of("dead-letters")) / "metadata").unlink()
    assert letters_come_later(pipeline, FILES)
    assert not letters_come_later(parse(ran / "new"), FILES)
