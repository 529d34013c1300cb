"""Checks the schema ids of produced records, for topics whose configs require it.

Each key or value that a topic checks must be null, or begin with a zero byte and the id of a schema that is registered
for its subject. The bytes after these five are not checked. The response lists all records that fail, with
INVALID_RECORD, and nothing of their batch is written.

The ids come from `KnownSchemas`, the part of the registry's log that this node has read. An unknown id may be too new:
its batch waits until the log has been read to its end, for a second at most. If the log cannot be read, the batch gets
NOT_ENOUGH_REPLICAS. Of the errors that every producer retries, it is the one that says that nothing was written and
does not make the producer refresh its metadata.

A duplicate of a batch that is already in the log is not checked again: it gets its old offset, even if its schema was
deleted since. `broker.inspections` ensures that, and keeps the order of batches that wait.
"""

import asyncio
from typing import Final, Protocol

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicName
from rookery.records.batch_reader import RecordColumns
from rookery.replication.replica import Appended
from rookery.storage.config import SchemaRules

CATCH_UP_SECONDS_MAX: Final = 1.0
_PAUSE_SECONDS: Final = 0.1

_PREFIX_SIZE: Final = 5
_MAGIC: Final = 0
UNREADABLE: Final = Appended(
    ErrorCode.NOT_ENOUGH_REPLICAS,
    message="The registered schemas cannot be read at the moment, so that a schema id could not be checked.",
)


class KnownSchemas(Protocol):
    """The registered schemas, as far as this node knows them. Subjects are in the default context."""

    def is_registered(self, subject: str, schema_id: int) -> bool:
        """Return whether a version of the subject that is not deleted has this id."""
        ...

    def record_name(self, schema_id: int) -> str | None:
        """Return the full name of the schema's record; None if it has none, or is unknown until `catch_up`."""
        ...

    async def catch_up(self) -> bool:
        """Read the registry's log to its present end; False if it cannot be read. May be cancelled."""
        ...


class NoSchemas:
    """The schemas of a broker that cannot read a registry's log: none."""

    def is_registered(self, subject: str, schema_id: int) -> bool:
        return False

    def record_name(self, schema_id: int) -> str | None:
        return None

    async def catch_up(self) -> bool:
        return False


class SchemaJudge:
    """Checks the records of one batch, some at a time."""

    def __init__(self, schemas: KnownSchemas, topic: TopicName, rules: SchemaRules) -> None:
        self._schemas = schemas
        self._topic = topic
        self._rules = rules
        # Whether a record had an unknown id, which may become known when more of the registry's log is read.
        self.found_unknown = False

    def __call__(self, columns: RecordColumns) -> dict[int, str]:
        """Return why records are rejected, by their index in the columns."""
        problems: dict[int, str] = {}
        for part, strategy, bodies in (
            ("key", self._rules.key, columns.keys),
            ("value", self._rules.value, columns.values),
        ):
            if strategy is None:
                continue
            prefixes = [None if body is None else body[:_PREFIX_SIZE] for body in bodies]
            bad = {
                prefix: problem
                for prefix in set(prefixes)
                if prefix is not None and (problem := self._find_problem(part, strategy, prefix)) is not None
            }
            if bad:
                found = {place: bad[prefix] for place, prefix in enumerate(prefixes) if prefix in bad}
                problems = found | problems
        return problems

    def _find_problem(self, part: str, strategy: str, prefix: bytes) -> str | None:
        if len(prefix) < _PREFIX_SIZE or prefix[0] != _MAGIC:
            return f"its {part} does not begin with a schema id"
        schema_id = int.from_bytes(prefix[1:], "big", signed=True)
        subject = self._subject(part, strategy, schema_id)
        if subject is not None and self._schemas.is_registered(subject, schema_id):
            return None
        self.found_unknown = True
        if subject is None:
            return f"the schema of its {part}, {schema_id}, has no known record name"
        return f"the schema id of its {part}, {schema_id}, is not registered for subject {subject}"

    def _subject(self, part: str, strategy: str, schema_id: int) -> str | None:
        if strategy == "TopicNameStrategy":
            return f"{self._topic}-{part}"
        name = self._schemas.record_name(schema_id)
        if name is None or strategy == "RecordNameStrategy":
            return name
        return f"{self._topic}-{name}"


class SchemaChecks:
    """Makes the checks for all connections of a broker."""

    def __init__(self, schemas: KnownSchemas) -> None:
        self._schemas = schemas

    def judge(self, topic: TopicName, rules: SchemaRules) -> SchemaJudge:
        return SchemaJudge(self._schemas, topic, rules)

    async def catch_up(self) -> bool:
        """Read the registry's log to its present end; False if that fails for `CATCH_UP_SECONDS_MAX`.

        A failed read is retried until then: the producer's later batches must be queued before this one fails, so that
        they fail with it. If one arrived later and were appended, the retry of this one would be out of order.
        """
        try:
            async with asyncio.timeout(CATCH_UP_SECONDS_MAX):
                while not await self._schemas.catch_up():
                    await asyncio.sleep(_PAUSE_SECONDS)
        except TimeoutError:
            return False
        return True
