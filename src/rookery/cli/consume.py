"""`rookery consume`: print the records of a topic."""

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from rookery.cli import completion
from rookery.cli.client_configs import consumer_config
from rookery.cli.option_values import unescape
from rookery.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    DEFAULT_REGISTRY,
    DEFAULT_TIMEOUT_S,
    BootstrapServer,
    ClientSettings,
    Registry,
    Timeout,
)
from rookery.cli.session import with_consumer
from rookery.cli.value_formats import Format, ReadKeyFormat, ReadValueFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from rookery.base.types import Offset, TopicPartition
    from rookery.cli.positions import Start
    from rookery.client.consume.consumer import Consumer
    from rookery.client.consume.records import ConsumerRecord

    Record = ConsumerRecord[bytes, bytes]

EXAMPLES = (
    "Examples:"
    "\n\nrookery consume orders --from beginning --until-end --json"
    "\n\nrookery consume orders --from -10 --format '%p:%o %k=%v\\n'"
    "\n\nrookery consume orders --from 2026-03-01T12:00Z --count 5"
    "\n\nrookery consume orders --group billing --from beginning"
    "\n\nrookery consume orders --from beginning --value-format auto --json"
)


_POLL_S = 0.5


class Isolation(StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


From = Annotated[
    str,
    typer.Option(
        "--from",
        "-f",
        metavar="POSITION",
        help="beginning, end, an offset, -N (the last N of each partition), an ISO time, or timestamp:MS.",
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="GROUP",
        autocompletion=completion.groups,
        help="Join this group: start at its committed offsets (else at --from), and commit what is printed.",
    ),
]
Partitions = Annotated[
    list[int] | None, typer.Option("--partition", "-p", min=0, help="Read only this partition. Repeatable.")
]
Template = Annotated[
    str,
    typer.Option(
        "--format",
        help="%k key, %v value, %t topic, %p partition, %o offset, %T timestamp, %h headers, %% percent; \\n, \\t.",
    ),
]
IsolationLevel = Annotated[
    Isolation | None,
    typer.Option(
        "--isolation-level",
        help="read_committed skips records of open and aborted transactions.",
        show_default=Isolation.READ_UNCOMMITTED,
    ),
]


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=completion.topics)],
    start: From = "end",
    partitions: Partitions = None,
    group: Group = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after this many records.")] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", "-e", help="Stop at the offsets that are the end when the command starts.")
    ] = False,
    template: Template = "%v\\n",
    as_json: Annotated[bool, typer.Option("--json", help="Print each record as one line of JSON.")] = False,
    null_text: Annotated[str, typer.Option("--null-marker", "-Z", help="The text for null in --format.")] = "null",
    isolation: IsolationLevel = None,
    value_format: ReadValueFormat = Format.TEXT,
    key_format: ReadKeyFormat = Format.TEXT,
    registry: Registry = DEFAULT_REGISTRY,
    settings: ClientSettings = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Print the records of a topic as they arrive, until Ctrl-C, --count or --until-end."""
    from rookery.cli.lines import compile_format, render_json
    from rookery.cli.positions import parse_start

    if group is not None and partitions:
        raise typer.BadParameter("the group assigns the partitions: remove --partition or --group")
    try:
        position = parse_start(start)
        render = render_json if as_json else compile_format(unescape(template), null_text.encode())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None

    options = {"isolation.level": isolation, "group.id": group, "enable.auto.commit": group is not None}
    config = {"auto.offset.reset": "earliest", **consumer_config(bootstrap_server, timeout_s, settings, options)}
    show = (
        render if value_format is key_format is Format.TEXT else _decoding(render, registry, key_format, value_format)
    )

    async def work(consumer: "Consumer[bytes, bytes]") -> None:
        reader = _Reader(consumer, topic, show, count_max=count)
        if group is None:
            await reader.run(position, partitions or [], until_end=until_end)
        else:
            await reader.run_in_group(group, position, until_end=until_end)

    try:
        with_consumer(config, work)
    except KeyboardInterrupt:
        # Ctrl-C is the usual end of a command that otherwise never ends.
        if count is not None or until_end:
            raise


def _decoding(
    render: "Callable[[Record], bytes]", registry: str, key: Format, value: Format
) -> "Callable[[Record], bytes]":
    """Return a renderer that decodes records first."""
    from rookery.cli.registry_access import connect_registry
    from rookery.cli.value_formats import record_decoder

    decode = record_decoder(connect_registry(registry, None), key=key, value=value)
    return lambda record: render(decode(record))


class _Reader:
    def __init__(
        self,
        consumer: "Consumer[bytes, bytes]",
        topic: str,
        render: "Callable[[Record], bytes]",
        *,
        count_max: int | None,
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._render = render
        self._count_max = count_max
        self._count = 0

    async def run(self, start: "Start", partitions: list[int], *, until_end: bool) -> None:
        from rookery.cli.output import note
        from rookery.client.consume.records import END

        chosen = await self._partitions(partitions)
        ends = await self._consumer.end_offsets(chosen) if until_end else None
        self._consumer.assign(chosen)
        await self._seek(chosen, start)
        if start is END and not until_end:
            note(f"waiting for new records in {self._topic}; Ctrl-C stops, --from beginning reads the existing ones")
        while not await self._is_done(ends):
            await self._print_next(ends)

    async def run_in_group(self, group_id: str, start: "Start", *, until_end: bool) -> None:
        from rookery.cli.output import note
        from rookery.client.consume.records import RebalanceListener

        partitions = await self._partitions([])
        ends = await self._consumer.end_offsets(partitions) if until_end else None
        consumer, seek = self._consumer, self._seek

        class SeekToStart(RebalanceListener):
            """Seeks to --from on partitions for which the group has committed no offset."""

            async def on_partitions_assigned(self, partitions: "Collection[TopicPartition]") -> None:
                committed = await consumer.committed(partitions)
                await seek([tp for tp in partitions if tp not in committed], start)

        consumer.subscribe([self._topic], SeekToStart())
        note(f"reading {self._topic} as a member of group {group_id}; Ctrl-C stops")
        while not await self._is_done(ends):
            await self._print_next(ends)
        await consumer.commit()

    async def _partitions(self, wanted: list[int]) -> "list[TopicPartition]":
        from rookery.base.errors import ApiError, ErrorCode
        from rookery.base.types import TopicPartition

        present = [partition.index for partition in await self._consumer.partitions_for(self._topic)]
        missing = [index for index in wanted if index not in present]
        if missing:
            message = f"topic {self._topic} has {len(present)} partitions, and no partition {missing[0]}"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        return [TopicPartition(self._topic, index) for index in sorted(set(wanted)) or present]

    async def _seek(self, partitions: "list[TopicPartition]", start: "Start") -> None:
        from rookery.cli.positions import Tail
        from rookery.client.consume.records import BEGINNING, END, Timestamp

        consumer = self._consumer
        if not partitions:
            return
        if start is BEGINNING:
            consumer.seek_to_beginning(*partitions)
        elif start is END:
            consumer.seek_to_end(*partitions)
        elif isinstance(start, Timestamp):
            await consumer.seek_to_timestamp(dict.fromkeys(partitions, start.timestamp_ms))
        elif isinstance(start, Tail):
            first, last = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
            for tp in partitions:
                consumer.seek(tp, max(first[tp], last[tp] - start.records))
        elif isinstance(start, int):
            for tp in partitions:
                consumer.seek(tp, start)

    async def _is_done(self, ends: "Mapping[TopicPartition, Offset] | None") -> bool:
        """Return whether to stop. A group member that has no partitions yet is not at their end."""
        if self._count == self._count_max:
            return True
        assigned = self._consumer.assignment()
        if ends is None or not assigned:
            return False
        return all([await self._consumer.position(tp) >= ends.get(tp, 0) for tp in assigned])

    async def _print_next(self, ends: "Mapping[TopicPartition, Offset] | None") -> None:
        """Print the next records; seek back to the end offset if there are records after it, lest they be committed."""
        remaining = None if self._count_max is None else self._count_max - self._count
        records = await self._consumer.poll(_POLL_S, max_records=remaining)
        printed: list[Record] = records
        if ends is not None:
            printed = []
            for tp, found in records.by_partition().items():
                end = ends.get(tp, 0)
                printed += (kept := [record for record in found if record.offset < end])
                if len(kept) < len(found):
                    self._consumer.seek(tp, end)
        self._count += len(printed)
        if printed:
            sys.stdout.buffer.write(b"".join(map(self._render, printed)))
            sys.stdout.buffer.flush()
