"""Runs an `Admin` against a scripted broker."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from rookery.client.admin import Admin
from rookery.client.cluster import Cluster
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.client.fake_broker import NODE_ID, FakeBroker, Responder

Result = TypeVar("Result")


def coordinator(version: int, request: Message) -> Message:
    """Answer FindCoordinator: the fake broker coordinates all keys."""
    found = Message(node_id=NODE_ID, host="127.0.0.1", port=1, error_code=0, error_message=None)
    (key,) = request.get("coordinator_keys", [request.get("key")])
    return Message(throttle_time_ms=0, coordinators=[Message(key=key, **found.__dict__)], **found.__dict__)


def run_with(
    answers: Mapping[ApiKey, Responder],
    work: Callable[[Admin], Awaitable[Result]],
    leaderless: Collection[int] = (),
    /,
    **versions: int,
) -> tuple[Result, FakeBroker]:
    """Return the result of `work`, and the broker, which records its requests; topic `t` has three partitions."""

    async def run() -> tuple[Result, FakeBroker]:
        script = {ApiKey.FIND_COORDINATOR: coordinator, **answers}
        async with (
            FakeBroker(script, topics={"t": 3}, leaderless=leaderless, versions=versions) as broker,
            Cluster.at(str(broker.address), timeout_s=10) as cluster,
        ):
            return await work(Admin.over(cluster)), broker

    return asyncio.run(run())


def in_turn(*answers: Responder) -> Responder:
    """Return an answer that uses `answers` one after the other, and repeats the last one."""
    remaining = list(answers)
    return lambda version, request: (remaining.pop(0) if len(remaining) > 1 else remaining[0])(version, request)
