"""May these records be written? What Produce asks about schemas, for topics whose configs want it.

Each key or value that a topic checks must be null, or begin with a zero byte and the id of a schema that is registered
for its subject. Nothing behind these five bytes is looked at. The first record that does not pass is named in the
answer, INVALID_RECORD, and nothing of its batch is written.

The ids come from `KnownSchemas`, what this node has read of the registry's log. An id that is not there may just be
too new: a verdict that depends on it waits until the log has been read to its end, for a second at most. If that does
not work, nobody knows, and the answer is NOT_ENOUGH_REPLICAS: of the errors after which every producer tries again, it
is the one that says that nothing was written and that asks for no new metadata.

A batch that waits keeps its place: later ones of its line, which is for one partition and one connection, go behind
it. If it has to be tried again, those behind it have to be, too, or a producer that numbers its batches would be told
that they are out of order. That holds for those that need no verdict, too: the rules may have changed meanwhile. Other
partitions of the same request, and other connections, do not wait.

A batch that is in the log already, which a producer sends again, is not judged again: its answer is where it is, even
if its schema has been deleted since.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from rookery.base.errors import ErrorCode, InvalidBatchError
from rookery.base.types import Buffer, TopicName
from rookery.broker.turns import Turns
from rookery.records.batch import BatchHeader, check_batch
from rookery.records.dense import unpack_dense
from rookery.records.record import open_records
from rookery.records.unpacking import unpack_records
from rookery.replication.replica import Appended, Replica
from rookery.storage.config import SchemaRules

CATCH_UP_SECONDS_MAX: Final = 1.0
_PAUSE_SECONDS: Final = 0.1

_PREFIX_SIZE: Final = 5
_MAGIC: Final = 0
_UNREADABLE: Final = Appended(
    ErrorCode.NOT_ENOUGH_REPLICAS,
    message="The registered schemas cannot be read at the moment, so that a schema id could not be checked.",
)

# Why a batch may not be written; None if it may.
Verdict: TypeAlias = Appended | None


class KnownSchemas(Protocol):
    """The registered schemas, as far as this node knows them. Subjects are in the default context."""

    def is_registered(self, subject: str, schema_id: int) -> bool:
        """Whether a version of the subject that is not deleted has this id."""
        ...

    def record_name(self, schema_id: int) -> str | None:
        """The full name of what the schema describes; None if it has none, or there is no such schema."""
        ...

    async def catch_up(self) -> bool:
        """Read all that is registered by now; False if that cannot be. May be cancelled."""
        ...


class NoSchemas:
    """Of a broker that cannot read any."""

    def is_registered(self, subject: str, schema_id: int) -> bool:
        return False

    def record_name(self, schema_id: int) -> str | None:
        return None

    async def catch_up(self) -> bool:
        return False


class _Claim(NamedTuple):
    """What keys or values of a batch begin with, and the first record where one does."""

    record_index: int
    part: str
    strategy: str
    prefix: bytes

    @property
    def is_framed(self) -> bool:
        return len(self.prefix) == _PREFIX_SIZE and self.prefix[0] == _MAGIC

    @property
    def schema_id(self) -> int:
        return int.from_bytes(self.prefix[1:], "big", signed=True)


class SchemaChecks:
    """One for all connections of a broker."""

    def __init__(self, schemas: KnownSchemas) -> None:
        self._schemas = schemas
        self._turns = Turns()
        # The lines in which one could not be judged, as long as somebody is in them.
        self._held_up: set[str] = set()

    def check(self, replica: Replica, records: Buffer) -> Verdict | Awaitable[Verdict]:
        """The verdict, or that of a task which has begun; `records` are not needed any more."""
        rules, topic = replica.schema_rules, replica.state.topic_partition.topic
        if rules is None or not replica.state.is_leader or len(records) > replica.policy.batch_size_max:
            # Nothing is checked, or the append needs no help to refuse it.
            return None
        try:
            header = check_batch(records)
            if replica.is_known(header):
                return None
            claims = _read_claims(header, records, rules, size_max=replica.policy.decompressed_size_max)
        except InvalidBatchError as error:
            return Appended(error.code, message=str(error), record_index=error.record_index)
        unframed = next((claim for claim in claims if not claim.is_framed), None)
        if unframed is not None:
            return _refuse(unframed, f"its {unframed.part} does not begin with a schema id")
        if self._judge(topic, claims) is None:
            return None
        return asyncio.ensure_future(self._judge_later(topic, claims))

    def is_free(self, line: str) -> bool:
        return self._turns.is_free(line)

    def delay(
        self, line: str, verdict: Verdict | Awaitable[Verdict], act: Callable[[Verdict], None]
    ) -> "asyncio.Task[None]":
        """Act on a verdict when it is there and it is this one's turn."""
        task = self._turns.take(line, lambda: self._act(line, verdict, act))
        task.add_done_callback(lambda _: self._leave(line))
        return task

    async def _act(self, line: str, verdict: Verdict | Awaitable[Verdict], act: Callable[[Verdict], None]) -> None:
        if isinstance(verdict, Awaitable):
            verdict = await verdict
        if verdict is _UNREADABLE:
            self._held_up.add(line)
        act(_UNREADABLE if line in self._held_up else verdict)

    def _leave(self, line: str) -> None:
        if self._turns.is_free(line):
            self._held_up.discard(line)

    async def _judge_later(self, topic: TopicName, claims: Sequence[_Claim]) -> Verdict:
        """An early failure is no answer: what the producer has sent meanwhile must get into the line first."""
        try:
            async with asyncio.timeout(CATCH_UP_SECONDS_MAX):
                while not await self._schemas.catch_up():
                    await asyncio.sleep(_PAUSE_SECONDS)
        except TimeoutError:
            # What has been read is good, even if there may be more.
            return None if self._judge(topic, claims) is None else _UNREADABLE
        return self._judge(topic, claims)

    def _judge(self, topic: TopicName, claims: Sequence[_Claim]) -> Verdict:
        for claim in claims:
            subject = self._subject(topic, claim)
            if subject is None:
                return _refuse(claim, f"the schema of its {claim.part}, {claim.schema_id}, has no known record name")
            if not self._schemas.is_registered(subject, claim.schema_id):
                what = f"the schema id of its {claim.part}, {claim.schema_id}, is not registered for subject {subject}"
                return _refuse(claim, what)
        return None

    def _subject(self, topic: TopicName, claim: _Claim) -> str | None:
        if claim.strategy == "TopicNameStrategy":
            return f"{topic}-{claim.part}"
        name = self._schemas.record_name(claim.schema_id)
        if name is None or claim.strategy == "RecordNameStrategy":
            return name
        return f"{topic}-{name}"


def _read_claims(header: BatchHeader, records: Buffer, rules: SchemaRules, *, size_max: int) -> list[_Claim]:
    """Each different beginning once, by the first record that has it. InvalidBatchError if the records are no good."""
    payload = open_records(header, records, size_max=size_max)
    columns = unpack_dense(header, payload) or unpack_records(header, payload)
    claims: list[_Claim] = []
    for part, strategy, bodies in (("key", rules.key, columns.keys), ("value", rules.value, columns.values)):
        if strategy is not None:
            prefixes = [None if body is None else body[:_PREFIX_SIZE] for body in bodies]
            # Of several places of one prefix the last that is put in stays: the first record's.
            first_places = dict(zip(reversed(prefixes), range(len(prefixes) - 1, -1, -1), strict=True))
            claims += [
                _Claim(place, part, strategy, prefix) for prefix, place in first_places.items() if prefix is not None
            ]
    return sorted(claims)


def _refuse(claim: _Claim, why: str) -> Appended:
    message = f"record {claim.record_index}: {why}"
    return Appended(ErrorCode.INVALID_RECORD, message=message, record_index=claim.record_index)
