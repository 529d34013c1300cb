"""What checkpoints were made for, noted beside them in `_pipeline.json`: what a flow may go on with, and what not.

Spark knows a checkpoint by its directory only. One that is used for something else loses or repeats rows without a
word: a Parquet directory skips the batches whose numbers it has, a topic gets what belongs to another one, and the flow
of dead letters counts the places where its sources stand in its plan. All of that is refused before the start.
"""

import json
from collections.abc import Iterator
from typing import Final

from rookery.pipelines.checkpoint_files import CheckpointFiles
from rookery.pipelines.origins import dead_letter_origins
from rookery.pipelines.spec import (
    DEAD_LETTER_FLOW,
    ConsoleSink,
    ParquetSink,
    Pipeline,
    PostgresSink,
    Problem,
    Sink,
    TopicSink,
    TopicSource,
)

# No sink can have a name, and so a directory, that begins with an underscore.
_FILE: Final = "_pipeline.json"
_FILE_METADATA: Final = "_spark_metadata"
_NO_BATCH: Final = -1


def check_pins(pipeline: Pipeline, files: CheckpointFiles) -> Iterator[Problem]:
    pinned = _read(pipeline, files)
    for sink in pipeline.sinks:
        before, now = pinned.get(sink.name), _target(sink)
        if _is_begun(pipeline, sink.name, files) and before is not None and before != now:
            yield Problem(
                sink.place,
                f"the checkpoint {pipeline.checkpoint_of(sink.name)} was made for {before}, and the sink now is "
                f"{now}: restore it, or give the sink a new name, and it begins anew",
            )
        elif isinstance(sink, ParquetSink):
            yield from _check_parquet(sink, pipeline, files)
    before, now = pinned.get(DEAD_LETTER_FLOW), _letters(pipeline)
    if now and before and _is_begun(pipeline, DEAD_LETTER_FLOW, files) and before != now:
        directory = pipeline.checkpoint_of(DEAD_LETTER_FLOW)
        yield Problem(
            pipeline.place,
            f"the checkpoint {directory} was made for the dead letters of {before}, and there now are those of "
            f"{now}: restore them; or remove {directory}, and the dead letters of all records that the topics "
            "still have are written again",
        )


def _check_parquet(sink: ParquetSink, pipeline: Pipeline, files: CheckpointFiles) -> Iterator[Problem]:
    written = _last_batch(files.names(f"{sink.path}/{_FILE_METADATA}"))
    begun = _last_batch(files.names(f"{pipeline.checkpoint_of(sink.name)}/offsets"))
    if written > begun:
        yield Problem(
            sink.place,
            f"{sink.path} has batches up to {written} that the checkpoint {pipeline.checkpoint_of(sink.name)} does not "
            "know, and Spark would leave out new rows with these numbers: restore the names of pipeline and sink, or "
            "the checkpoint, or write to another directory",
        )


def write_pins(pipeline: Pipeline, files: CheckpointFiles) -> None:
    """To be called before the flows start. What was noted of sinks that are not in the file now stays."""
    pins = _read(pipeline, files) | {sink.name: _target(sink) for sink in pipeline.sinks}
    letters = _letters(pipeline)
    if letters:
        pins[DEAD_LETTER_FLOW] = letters
    files.write(f"{pipeline.checkpoint}/{_FILE}", json.dumps({"version": 1, "flows": pins}, indent=2) + "\n")


def letters_come_later(pipeline: Pipeline, files: CheckpointFiles) -> bool:
    """Whether sinks have begun and the flow of dead letters has not: it must look at what they pass over from now on,
    which may be older than where a new flow would begin.
    """
    has_begun = any(_is_begun(pipeline, sink.name, files) for sink in pipeline.sinks)
    return has_begun and not _is_begun(pipeline, DEAD_LETTER_FLOW, files)


def _read(pipeline: Pipeline, files: CheckpointFiles) -> dict[str, str]:
    text = files.read(f"{pipeline.checkpoint}/{_FILE}")
    return {} if text is None else dict(json.loads(text)["flows"])


def _is_begun(pipeline: Pipeline, flow: str, files: CheckpointFiles) -> bool:
    return "metadata" in files.names(pipeline.checkpoint_of(flow))


def _target(sink: Sink) -> str:
    """The kind and the name of what is written to. Not the server: it may move."""
    match sink:
        case TopicSink(topic=topic):
            return f"topic {topic}"
        case ParquetSink(path=path):
            return f"Parquet in {path}"
        case PostgresSink(table=table):
            return f"table {table}"
        case ConsoleSink():
            return "the console"


def _letters(pipeline: Pipeline) -> str:
    """The places where sources stand in the plan, in its order: see `FlowBuilder.dead_letters`."""
    return ", ".join(part for origin in dead_letter_origins(pipeline) for part in _parts(pipeline, origin))


def _parts(pipeline: Pipeline, origin: str) -> list[str]:
    source = pipeline.sources.get(origin)
    if not isinstance(source, TopicSource):
        return [f"steps of {origin}"]
    formats = {"values": source.value_format, "keys": source.key_format}
    return [f"{part} of {origin}" for part, form in formats.items() if form is not None]


def _last_batch(names: list[str]) -> int:
    """Of a log of Spark's: files are named by batches, some with a suffix."""
    numbers = (name.partition(".")[0] for name in names)
    return max((int(number) for number in numbers if number.isdecimal()), default=_NO_BATCH)
