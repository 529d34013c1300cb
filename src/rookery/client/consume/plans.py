"""What `fetcher` notes of its requests: what is asked of which broker, and how it stands with each broker."""

import asyncio
from typing import NamedTuple, Protocol

from rookery.base.types import NodeId, TopicPartition
from rookery.client.consume.sessions import FetchSession, Wanted
from rookery.client.consume.subscription import FetchPosition


class FetchMetrics(Protocol):
    """A part of `metrics.consumer.ConsumerMetrics`."""

    def fetch(self, latency_s: float, throttle_time_ms: int) -> None: ...

    def fetched(self, tp: TopicPartition, records: int, size_bytes: int) -> None: ...

    def lag(self, tp: TopicPartition, lag: int) -> None: ...

    def lead(self, tp: TopicPartition, lead: int) -> None: ...

    def read_replica(self, tp: TopicPartition, node: NodeId | None) -> None: ...

    def forget(self, tp: TopicPartition) -> None: ...


class Asked(NamedTuple):
    """Of one partition."""

    generation: int
    position: FetchPosition


class Plan(NamedTuple):
    """One request to one broker."""

    node: NodeId
    asked: dict[TopicPartition, Asked]
    wanted: dict[TopicPartition, Wanted]
    is_peek: bool


class Node:
    """What is known of a broker that we fetch from."""

    __slots__ = ("attempts", "give_up_at_s", "is_given_up", "lane", "retry_at_s", "session", "task", "waiting")

    def __init__(self) -> None:
        self.session = FetchSession()
        # The request that the broker may keep for a while.
        self.waiting: Plan | None = None
        self.is_given_up = False
        # Not before this time: until then the other connection may still have a request that was given up.
        self.give_up_at_s = 0.0
        self.lane = 0
        self.task: asyncio.Task[None] | None = None
        self.attempts = 0
        self.retry_at_s = 0.0
