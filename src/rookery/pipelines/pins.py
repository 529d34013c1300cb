"""Pins each checkpoint to the target that it was made for, in `_pipeline.json` next to the checkpoints.

Spark identifies a checkpoint by its directory alone. A flow that continues from the checkpoint of a different target
would silently lose or repeat rows: a Parquet directory skips batches whose numbers it already has, a topic receives the
records of another one, and the flow of dead letters resumes its sources by their position in its plan. All of that is
refused before the start.
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

# The parser refuses sink names that begin with an underscore, so this is never the checkpoint directory of a flow.
_FILE: Final = "_pipeline.json"
_FILE_METADATA: Final = "_spark_metadata"
_NO_BATCH: Final = -1


def check_pins(pipeline: Pipeline, files: CheckpointFiles) -> Iterator[Problem]:
    pinned = _read(pipeline, files)
    for sink in pipeline.sinks:
        before, now = pinned.get(sink.name), _target(sink)
        if _has_started(pipeline, sink.name, files) and before is not None and before != now:
            yield Problem(
                sink.location,
                f"the checkpoint {pipeline.checkpoint_of(sink.name)} was made for {before}, but the sink now writes to "
                f"{now}: restore the old target, or give the sink a new name, so that it starts from the beginning",
            )
        elif isinstance(sink, ParquetSink):
            yield from _check_parquet(sink, pipeline, files)
    before, now = pinned.get(DEAD_LETTER_FLOW), _dead_letter_parts(pipeline)
    if now and before and _has_started(pipeline, DEAD_LETTER_FLOW, files) and before != now:
        directory = pipeline.checkpoint_of(DEAD_LETTER_FLOW)
        yield Problem(
            pipeline.location,
            f"the checkpoint {directory} was made for the dead letters of {before}, but the file now has those of "
            f"{now}: restore the old ones; or remove {directory}, and the dead letters of all records that the topics "
            "still have are written again",
        )


def _check_parquet(sink: ParquetSink, pipeline: Pipeline, files: CheckpointFiles) -> Iterator[Problem]:
    written = _last_batch(files.names(f"{sink.path}/{_FILE_METADATA}"))
    begun = _last_batch(files.names(f"{pipeline.checkpoint_of(sink.name)}/offsets"))
    if written > begun:
        yield Problem(
            sink.location,
            f"{sink.path} has batches up to {written}, which the checkpoint {pipeline.checkpoint_of(sink.name)} does "
            "not have, and Spark would skip new batches with these numbers: restore the names of pipeline and sink, or "
            "the checkpoint, or write to another directory",
        )


def write_pins(pipeline: Pipeline, files: CheckpointFiles) -> None:
    """Write the pins; to be called before the flows start. Pins of sinks that are not in the file any more are kept."""
    pins = _read(pipeline, files) | {sink.name: _target(sink) for sink in pipeline.sinks}
    letters = _dead_letter_parts(pipeline)
    if letters:
        pins[DEAD_LETTER_FLOW] = letters
    files.write(f"{pipeline.checkpoint}/{_FILE}", json.dumps({"version": 1, "flows": pins}, indent=2) + "\n")


def dead_letters_start_late(pipeline: Pipeline, files: CheckpointFiles) -> bool:
    """Return whether sinks have started and the flow of dead letters has not.

    The flow must then read from the earliest offsets: the records that the sinks skip from now on may be older than the
    offset at which a new flow would start.
    """
    has_sink_started = any(_has_started(pipeline, sink.name, files) for sink in pipeline.sinks)
    return has_sink_started and not _has_started(pipeline, DEAD_LETTER_FLOW, files)


def _read(pipeline: Pipeline, files: CheckpointFiles) -> dict[str, str]:
    text = files.read(f"{pipeline.checkpoint}/{_FILE}")
    return {} if text is None else dict(json.loads(text)["flows"])


def _has_started(pipeline: Pipeline, flow: str, files: CheckpointFiles) -> bool:
    return "metadata" in files.names(pipeline.checkpoint_of(flow))


def _target(sink: Sink) -> str:
    """Return the kind and the name of the sink's target, without the server's address, which may change."""
    match sink:
        case TopicSink(topic=topic):
            return f"topic {topic}"
        case ParquetSink(path=path):
            return f"Parquet in {path}"
        case PostgresSink(table=table):
            return f"table {table}"
        case ConsoleSink():
            return "the console"


def _dead_letter_parts(pipeline: Pipeline) -> str:
    """Return the sources of the dead-letter flow's plan, in their order there (`FlowBuilder.dead_letters`)."""
    return ", ".join(part for origin in dead_letter_origins(pipeline) for part in _parts(pipeline, origin))


def _parts(pipeline: Pipeline, origin: str) -> list[str]:
    source = pipeline.sources.get(origin)
    if not isinstance(source, TopicSource):
        return [f"steps of {origin}"]
    formats = {"values": source.value_format, "keys": source.key_format}
    return [f"{part} of {origin}" for part, form in formats.items() if form is not None]


def _last_batch(names: list[str]) -> int:
    """Return the last batch of one of Spark's logs, whose files are named by their batches, some with a suffix."""
    numbers = (name.partition(".")[0] for name in names)
    return max((int(number) for number in numbers if number.isdecimal()), default=_NO_BATCH)
