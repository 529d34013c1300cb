"""`rookery consume`: print a topic's records."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rookery.cli.options import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_TIMEOUT_S, BootstrapServer, Timeout, unescape
from rookery.cli.session import with_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rookery.base.types import Offset, TopicPartition
    from rookery.cli.positions import StartTail
    from rookery.client.cluster import Cluster
    from rookery.client.consumer import ConsumedRecord, Consumer, Start

EXAMPLES = (
    "Examples:"
    "\n\nrookery consume orders --from beginning --until-end --json"
    "\n\nrookery consume orders --from -10 --format '%p:%o %k=%v\\n'"
    "\n\nrookery consume orders --from 2026-03-01T12:00Z --count 5"
    "\n\nrookery consume orders --group billing --from beginning"
)


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
        help="Read as a member of this group: go on where it committed (else at --from), and commit as it goes.",
    ),
]


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    start: From = "end",
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one. Repeatable.")
    ] = None,
    group: Group = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after so many records.")] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", "-e", help="Stop at what is the end when the command starts.")
    ] = False,
    template: Annotated[
        str,
        typer.Option(
            "--format",
            help="%k key, %v value, %t topic, %p partition, %o offset, %T timestamp, %h headers, %% percent; \\n, \\t.",
        ),
    ] = "%v\\n",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    null_text: Annotated[str, typer.Option("--null-marker", "-Z", help="How --format shows null.")] = "null",
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Print a topic's records as they come, until Ctrl-C, --count or --until-end."""
    from rookery.cli.lines import compile_format, render_json
    from rookery.cli.positions import parse_start

    if group is not None and partitions:
        raise typer.BadParameter("the group chooses the partitions: leave out --partition or --group")
    try:
        position = parse_start(start)
        render = render_json if as_json else compile_format(unescape(template), null_text.encode())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None

    async def work(cluster: "Cluster") -> None:
        reader = _Reader(cluster, topic, render, count_max=count)
        if group is None:
            await reader.run(position, partitions or [], until_end=until_end)
        else:
            await reader.run_in_group(group, position, until_end=until_end)

    try:
        with_cluster(bootstrap_server, timeout_s, work)
    except KeyboardInterrupt:
        # The usual way to end a command that has no end of its own.
        if count is not None or until_end:
            raise


class _Reader:
    def __init__(
        self,
        cluster: "Cluster",
        topic: str,
        render: "Callable[[ConsumedRecord], bytes]",
        *,
        count_max: int | None,
    ) -> None:
        from rookery.client.admin import Admin

        self._cluster = cluster
        self._admin = Admin(cluster)
        self._topic = topic
        self._render = render
        self._count_max = count_max
        self._count = 0

    async def run(self, start: "Start | StartTail", partitions: list[int], *, until_end: bool) -> None:
        from rookery.cli.output import note
        from rookery.client.admin import LATEST
        from rookery.client.consumer import END, Consumer

        chosen = await self._partitions(partitions)
        async with Consumer(self._cluster) as consumer:
            ends = await consumer.offsets_at(chosen, LATEST) if until_end else None
            await consumer.assign(await _starts(consumer, chosen, start))
            if start == END and not until_end:
                note(f"waiting for new records in {self._topic}; Ctrl-C stops, --from beginning reads what is there")
            while not self._is_done(ends, consumer.positions()):
                self._print(await consumer.poll(), ends)

    async def run_in_group(self, group_id: str, start: "Start | StartTail", *, until_end: bool) -> None:
        from rookery.cli.output import note
        from rookery.client.admin import LATEST
        from rookery.client.consumer import Consumer
        from rookery.client.group_consumer import GroupConsumer

        partitions = await self._partitions([])
        ends = await Consumer(self._cluster).offsets_at(partitions, LATEST) if until_end else None

        async def starts(consumer: "Consumer", fresh: "list[TopicPartition]") -> "Mapping[TopicPartition, Start]":
            return await _starts(consumer, fresh, start)

        async with GroupConsumer(self._cluster, group_id, [self._topic], find_starts=starts) as member:
            note(f"reading {self._topic} as a member of group {group_id}; Ctrl-C stops")
            while not self._is_done(ends, member.positions(), settled=member.is_settled):
                records = await member.poll()
                printed = set(map(id, self._print(records, ends)))
                member.give_back(record for record in records if id(record) not in printed)
            await member.commit()

    async def _partitions(self, wanted: list[int]) -> "list[TopicPartition]":
        from rookery.base.errors import ApiError, ErrorCode
        from rookery.base.types import TopicPartition

        (topic,) = await self._admin.describe_topics([self._topic])
        if topic.error != ErrorCode.NONE:
            raise ApiError(topic.error, f"topic {self._topic}")
        present = [partition.index for partition in topic.partitions]
        missing = [index for index in wanted if index not in present]
        if missing:
            message = f"topic {self._topic} has {len(present)} partitions, there is no {missing[0]}"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        return [TopicPartition(self._topic, index) for index in sorted(set(wanted)) or present]

    def _is_done(
        self,
        ends: "Mapping[TopicPartition, Offset] | None",
        positions: "Mapping[TopicPartition, Offset]",
        *,
        settled: bool = True,
    ) -> bool:
        """A group's member that has no partitions, or not yet all of them, is not at their end."""
        if self._count == self._count_max:
            return True
        if ends is None or not positions or not settled:
            return False
        return all(position >= ends.get(tp, 0) for tp, position in positions.items())

    def _print(
        self, records: "list[ConsumedRecord]", ends: "Mapping[TopicPartition, Offset] | None"
    ) -> "list[ConsumedRecord]":
        """What was printed: not what lies behind the end, nor what is too much."""
        from rookery.base.types import TopicPartition

        if ends is not None:
            records = [
                record for record in records if record.offset < ends[TopicPartition(record.topic, record.partition)]
            ]
        if self._count_max is not None:
            records = records[: self._count_max - self._count]
        self._count += len(records)
        if records:
            sys.stdout.buffer.write(b"".join(map(self._render, records)))
            sys.stdout.buffer.flush()
        return records


async def _starts(
    consumer: "Consumer", partitions: "list[TopicPartition]", start: "Start | StartTail"
) -> "Mapping[TopicPartition, Start]":
    from rookery.cli.positions import StartTail
    from rookery.client.admin import EARLIEST, LATEST
    from rookery.client.consumer import StartOffset

    if not isinstance(start, StartTail):
        return dict.fromkeys(partitions, start)
    first = await consumer.offsets_at(partitions, EARLIEST)
    last = await consumer.offsets_at(partitions, LATEST)
    return {tp: StartOffset(max(first[tp], last[tp] - start.records)) for tp in partitions}
