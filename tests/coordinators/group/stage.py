"""A group shard with virtual time and a log in memory, which collects the responses of all requests.

The `Stage` implements the runtime (append, replay, install, timers, completions) without an event loop, so that
scenarios and models can drive the core step by step.
"""

from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

from rookery.base.errors import ErrorCode
from rookery.coordinators.group.settings import GroupSettings
from rookery.coordinators.group.shard import GroupShard
from rookery.coordinators.result import PARKED, CoordinatorResult, TimerKey, Token

START_MS = 1_700_000_000_000


class Written(NamedTuple):
    """A record in the log; `producer_id` if it is part of a transaction."""

    key: bytes
    value: bytes | None
    producer_id: int | None = None


class Ended(NamedTuple):
    """A marker in the log."""

    producer_id: int
    committed: bool


class Stage:
    """`responses` are those of parked requests, in the order of their completion."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.now_ms = START_MS
        self.log: list[Written | Ended] = []
        self.log_works = True
        self.responses: list[tuple[Token, Any]] = []
        self._tokens = count(1)
        self._ids = count(1)
        self._timers: dict[TimerKey, int] = {}
        self._waiting: set[Token] = set()
        self.shard = self._new_shard()
        self.run(lambda shard, now_ms: shard.on_loaded(now_ms))

    def _new_shard(self) -> GroupShard:
        return GroupShard(self.settings, new_id=lambda: str(next(self._ids)))

    def new_token(self) -> Token:
        return next(self._tokens)

    def delete_topic_offsets(self, topics: set[str]) -> None:
        steps = self.shard.steps_to_delete_topic_offsets(topics)
        while self.run(lambda *_: next(steps, CoordinatorResult(response=True))) is None:
            pass

    def run(self, decide: Callable[[GroupShard, int], CoordinatorResult[Any]], token: Token | None = None) -> Any:
        """Run a result. Return the response, PARKED if it comes later, or NOT_COORDINATOR if the log fails."""
        result = decide(self.shard, self.now_ms)
        if result.records and not self.log_works:
            return ErrorCode.NOT_COORDINATOR
        producer_id = None if result.producer is None else result.producer.producer_id
        for record in result.records:
            written = Written(*self.shard.encode(record), producer_id)
            assert self.shard.decode(written.key, written.value) == record
            self._write(written)
        for change in result.volatile_changes:
            self.shard.install(change)
        for timer in result.timers:
            if timer.delay_ms is None:
                self._timers.pop(timer.key, None)
            else:
                self._timers[timer.key] = self.now_ms + timer.delay_ms
        if result.response is PARKED:
            assert token is not None
            self._waiting.add(token)
        for completion in result.completions:
            assert completion.token in self._waiting, "completed twice, or never parked"
            self._waiting.remove(completion.token)
            self.responses.append((completion.token, completion.response))
        return result.response

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        self._write(Ended(producer_id, committed))

    def _write(self, entry: Written | Ended) -> None:
        self.log.append(entry)
        replay(self.shard, entry)

    def take_responses(self) -> list[tuple[Token, Any]]:
        responses, self.responses = self.responses, []
        return responses

    def is_waiting(self, token: Token) -> bool:
        return token in self._waiting

    def pass_time(self, duration_ms: int) -> None:
        """Advance the clock and fire every timer that becomes due, in order."""
        end_ms = self.now_ms + duration_ms
        while True:
            due = [(at_ms, position, key) for position, (key, at_ms) in enumerate(self._timers.items())]
            at_ms, _, key = min(due, key=lambda item: item[:2], default=(end_ms + 1, 0, None))
            if at_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, at_ms)
            assert key is not None
            del self._timers[key]
            self._fire(key)
        self.now_ms = end_ms

    def _fire(self, key: TimerKey) -> None:
        failed = self.run(lambda shard, now_ms: shard.on_timer(key, now_ms)) is ErrorCode.NOT_COORDINATOR
        if failed:
            self._timers[key] = self.now_ms + 1000

    def restart(self) -> None:
        """Replace the shard by one that is loaded from the log. Parked requests get no response."""
        self._timers.clear()
        self._waiting.clear()
        self.shard = self._new_shard()
        for entry in self.log:
            replay(self.shard, entry)
        self.run(lambda shard, now_ms: shard.on_loaded(now_ms))


def replay(shard: GroupShard, entry: Written | Ended) -> None:
    if isinstance(entry, Ended):
        shard.end_transaction(entry.producer_id, committed=entry.committed)
        return
    record = shard.decode(entry.key, entry.value)
    assert record is not None
    if entry.producer_id is None:
        shard.replay(record)
    else:
        shard.replay_pending(record, entry.producer_id)
