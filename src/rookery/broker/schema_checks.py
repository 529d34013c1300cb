"""May these records be written? What Produce asks about schemas, for topics whose configs want it.

Each key or value that a topic checks must be null, or begin with a zero byte and the id of a schema that is registered
for its subject. Nothing behind these five bytes is looked at. All records that do not pass are named in the answer,
INVALID_RECORD, and nothing of their batch is written.

The ids come from `KnownSchemas`, what this node has read of the registry's log. An id that is not there may just be
too new: such a batch waits until the log has been read to its end, for a second at most. If that does not work, the
answer is NOT_ENOUGH_REPLICAS: of the errors after which every producer tries again, it is the one that says that
nothing was written and that asks for no new metadata.

A batch that is in the log already, which a producer sends again, is not judged again: its answer is where it is, even
if its schema has been deleted since. `broker.inspections` sees to that, and to the order of batches that wait.
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
        """Whether a version of the subject that is not deleted has this id."""
        ...

    def record_name(self, schema_id: int) -> str | None:
        """The full name of what the schema describes; None if it has none, there is no such schema, or it takes a
        `catch_up` to know it."""
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


class SchemaJudge:
    """Looks at the records of one batch, some at a time."""

    def __init__(self, schemas: KnownSchemas, topic: TopicName, rules: SchemaRules) -> None:
        self._schemas = schemas
        self._topic = topic
        self._rules = rules
        # Whether there was an id that is not known; it may be known when more of the registry's log has been read.
        self.found_unknown = False

    def __call__(self, columns: RecordColumns) -> dict[int, str]:
        """Why records are refused, by their places in the columns."""
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
    """One for all connections of a broker."""

    def __init__(self, schemas: KnownSchemas) -> None:
        self._schemas = schemas

    def judge(self, topic: TopicName, rules: SchemaRules) -> SchemaJudge:
        return SchemaJudge(self._schemas, topic, rules)

    async def catch_up(self) -> bool:
        """Read all that is registered by now; False if that could not be done for `CATCH_UP_SECONDS_MAX`.

        An early failure is no answer: what the producer has sent meanwhile must get into the line first.
        """
        try:
            async with asyncio.timeout(CATCH_UP_SECONDS_MAX):
                while not await self._schemas.catch_up():
                    await asyncio.sleep(_PAUSE_SECONDS)
        except TimeoutError:
            return False
        return True
