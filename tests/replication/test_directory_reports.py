"""Reports of replicas' log directories on their way to the controller: batches and retries."""

import asyncio
from typing import Any, cast
from uuid import UUID

from rookery.base.errors import ApiError, ErrorCode
from rookery.metadata.controller_link import ControllerLink
from rookery.protocol.message import Message
from rookery.replication.directory_reports import DirectoryReports, ReportedReplica

TOPIC, FIRST, SECOND = UUID(int=7), UUID(int=101), UUID(int=102)


class Link:
    """A controller link that answers with the error codes of a list, or raises them if they are errors."""

    def __init__(self, *answers: ErrorCode | ApiError) -> None:
        self.answers = list(answers)
        self.sent: list[dict[UUID, list[int]]] = []

    async def send(self, api_key: object, request: Any, *, timeout_s: float) -> Any:
        assert (request.broker_id, request.broker_epoch) == (1, 70)
        self.sent.append(
            {
                directory.id_: [each.partition_index for topic in directory.topics for each in topic.partitions]
                for directory in request.directories
            }
        )
        await asyncio.sleep(0)
        answer = self.answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return Message(error_code=answer, directories=[])


def play(link: Link, *reports: tuple[int, UUID], later: tuple[int, UUID] | None = None) -> None:
    """Report partitions and their directories, and one more while the first request is under way."""

    async def main() -> None:
        sender = DirectoryReports(cast(ControllerLink, link), node_id=1, broker_epoch=lambda: 70)
        for index, directory in reports:
            sender.report(ReportedReplica(TOPIC, index), directory)
        if later is not None:
            await asyncio.sleep(0)
            sender.report(ReportedReplica(TOPIC, later[0]), later[1])
        async with asyncio.timeout(5):
            while link.answers:
                await asyncio.sleep(0.01)
        await sender.close()

    asyncio.run(main())


def test_reports_of_one_turn_are_one_request() -> None:
    link = Link(ErrorCode.NONE)
    play(link, (0, FIRST), (1, SECOND), (2, FIRST))
    assert link.sent == [{FIRST: [0, 2], SECOND: [1]}]


def test_a_report_is_repeated_until_it_is_answered_and_replaced_by_a_newer_one() -> None:
    link = Link(ApiError(ErrorCode.REQUEST_TIMED_OUT), ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NONE)
    play(link, (0, FIRST), (1, FIRST), later=(1, SECOND))
    assert link.sent == [{FIRST: [0, 1]}, {FIRST: [0], SECOND: [1]}, {FIRST: [0], SECOND: [1]}]
