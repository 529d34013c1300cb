"""The work of `rookery dlq`: connects, reads or sends dead letters, and shows the progress."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from rookery.base.types import TopicName, TopicPartition
from rookery.cli.client_configs import admin_config, consumer_config, producer_config
from rookery.cli.progress import counted
from rookery.client import Admin, Consumer, Producer
from rookery.dead_letters.letters import DeadLetter, Selection, Summary, newest
from rookery.dead_letters.plan import RedriveRequest
from rookery.dead_letters.reader import READER_CONFIG, find_topics, measure, read_letters, read_progresses
from rookery.dead_letters.redrive import Redrive, Report, redrive_config

Result = TypeVar("Result")

# The oldest letters are dropped when there are this many times as many as wanted.
_BUFFER_FACTOR = 2


class _Session(NamedTuple):
    admin: Admin
    consumer: "Consumer[bytes, bytes]"


class DeadLetterRun:
    """The operations of `rookery dlq` on one cluster."""

    def __init__(self, bootstrap_server: str, timeout_s: float) -> None:
        self._bootstrap_server = bootstrap_server
        self._timeout_s = timeout_s

    def summarize(self, names: list[TopicName]) -> dict[TopicName, Summary]:
        async def work() -> dict[TopicName, Summary]:
            async with self._connected() as session:
                topics = await find_topics(session.admin, names)
                return {topic: await _summarize(session, topic) for topic in topics}

        return _run(work())

    def find(self, topic: TopicName, selection: Selection, *, count: int) -> list[DeadLetter]:
        """Return the newest `count` dead letters that match the selection."""

        async def work() -> list[DeadLetter]:
            async with self._connected() as session:
                await find_topics(session.admin, [topic])
                return await _find(session, topic, selection, count)

        return _run(work())

    def preview(self, request: RedriveRequest) -> Report:
        async def work() -> Report:
            async with self._connected() as session:
                await find_topics(session.admin, [request.topic])
                return await Redrive(request, admin=session.admin, consumer=session.consumer).preview()

        return _run(work())

    def redrive(self, request: RedriveRequest) -> Report:
        async def work() -> Report:
            async with self._connected() as session:
                await find_topics(session.admin, [request.topic])
                size = (await measure(session.consumer, request.topic)).size
                config = producer_config(self._bootstrap_server, self._timeout_s) | redrive_config(request.topic)
                with counted(f"redriving {request.topic}", size) as advance:
                    run = Redrive(request, admin=session.admin, consumer=session.consumer, on_letters=advance)
                    async with Producer[bytes, bytes](config) as producer:
                        return await run.run(producer)

        return _run(work())

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[_Session]:
        """Connect the clients. The Admin connects first: it fails immediately if no broker can be reached."""
        address = (self._bootstrap_server, self._timeout_s)
        async with (
            Admin(admin_config(*address)) as admin,
            Consumer[bytes, bytes]({**consumer_config(*address), **READER_CONFIG}) as consumer,
        ):
            yield _Session(admin, consumer)


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    return asyncio.run(work)


async def _summarize(session: _Session, topic: TopicName) -> Summary:
    summary = Summary()
    progresses = await read_progresses(session.admin, topic)

    def add(letter: DeadLetter) -> None:
        progress = progresses.get(TopicPartition(topic, letter.record.partition))
        summary.add(letter, is_redriven=progress is not None and letter.record.offset in progress)

    await _each_letter(session, topic, add)
    return summary


async def _find(session: _Session, topic: TopicName, selection: Selection, count: int) -> list[DeadLetter]:
    found: list[DeadLetter] = []

    def add(letter: DeadLetter) -> None:
        if selection.matches(letter):
            found.append(letter)
            if len(found) > _BUFFER_FACTOR * count:
                found[:] = newest(found, count)

    await _each_letter(session, topic, add)
    return newest(found, count)


async def _each_letter(session: _Session, topic: TopicName, visit: Callable[[DeadLetter], None]) -> None:
    span = await measure(session.consumer, topic)
    with counted(f"reading {topic}", span.size) as advance:
        async for letters in read_letters(session.consumer, span):
            for letter in letters:
                visit(letter)
            advance(len(letters))
