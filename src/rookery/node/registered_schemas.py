"""The registered schemas, for a node that checks produced records: a state that is replayed from the registry's log.

The log is read with a separate client, from the cluster that the `schema.registry.kafkastore.*` keys name. So the node
need not lead the log's partition, and the registry may run anywhere. A registry in the same process has its own state.

To find a schema's record name the schema must be parsed, and a large one takes seconds. This is done in a thread, as
part of `catch_up`, and the name is cached, because an id always stands for the same schema.

Soft-deleted versions do not count as registered: the registry does not list them among the subjects of an id either. A
subject may be an alias for another one, also in another context; then the ids of that subject count.
"""

import asyncio
from collections.abc import Mapping

import structlog

from rookery.base.errors import RookeryError
from rookery.broker.schema_checks import CATCH_UP_SECONDS_MAX
from rookery.registry.candidates import find_record_name, find_source
from rookery.registry.errors import RegistryError
from rookery.registry.log import SchemasReader
from rookery.registry.scopes import actual_subject
from rookery.registry.settings import RegistrySettings
from rookery.registry.state import State
from rookery.registry.subjects import DEFAULT_CONTEXT, context_of
from rookery.schemas.interface import InvalidSchemaError

logger = structlog.get_logger(__name__)


class RegisteredSchemas:
    """Implements `broker.schema_checks.KnownSchemas`."""

    def __init__(self, static: Mapping[str, str], *, bootstrap_servers: str) -> None:
        """Create the reader from the broker's start-up configuration, `static`; `start` begins to read.

        Raises ConfigError if the configuration does not say where the schemas are.
        """
        settings = RegistrySettings.of_broker(static, bootstrap_servers=bootstrap_servers)
        self._topic = settings.topic
        self._state = State()
        self._reader = SchemasReader(settings.client_config, settings.topic, self._replay, on_restart=self._reset)
        self._names: dict[int, str | None] = {}
        # Ids whose names were requested and are unknown; the next round finds them.
        self._unnamed: set[int] = set()
        self._round: asyncio.Task[bool] | None = None
        self._next_round: asyncio.Task[bool] | None = None

    def start(self) -> None:
        logger.info("reading the registered schemas, to check produced records", topic=self._topic)
        self._reader.start()

    async def stop(self) -> None:
        rounds = [each for each in (self._round, self._next_round) if each is not None]
        for each in rounds:
            each.cancel()
        await asyncio.gather(*rounds, return_exceptions=True)
        await self._reader.stop()

    def is_registered(self, subject: str, schema_id: int) -> bool:
        subject = actual_subject(self._state, subject)
        versions = self._state.with_id(context_of(subject), schema_id)
        return any(version.subject == subject and not version.deleted for version in versions)

    def record_name(self, schema_id: int) -> str | None:
        """Return the record name of a schema; None if it is unknown. The next `catch_up` then finds it."""
        if schema_id not in self._names:
            self._unnamed.add(schema_id)
        return self._names.get(schema_id)

    async def catch_up(self) -> bool:
        """Read to the end of the log; returns False if that fails.

        Concurrent callers share one round, but never a round that has already begun: it may miss the records that were
        written before this call, and a schema that was registered just now would count as unknown.
        """
        if self._next_round is None:
            self._next_round = asyncio.create_task(self._catch_up(self._round))
        joined = self._next_round
        await asyncio.wait([joined])
        return not joined.cancelled() and joined.result()

    async def _catch_up(self, before: "asyncio.Task[bool] | None") -> bool:
        if before is not None:
            await asyncio.wait([before])
        self._round, self._next_round = self._next_round, None
        unnamed, self._unnamed = self._unnamed, set()
        # First the names of schemas that are already read: the log may have nothing new.
        await self._find_names(unnamed)
        try:
            await self._reader.catch_up(CATCH_UP_SECONDS_MAX)
        except RookeryError as error:
            logger.warning("cannot read the registered schemas", topic=self._topic, error=str(error))
            return False
        await self._find_names(unnamed)
        return True

    async def _find_names(self, schema_ids: set[int]) -> None:
        """Find the record names of those ids that are registered."""
        for schema_id in schema_ids:
            # Taken before the await: if the log is read again from its start meanwhile, the name goes to the old dict.
            names = self._names
            # Every version with this id has the same text.
            value = self._state.any_with_id(DEFAULT_CONTEXT, schema_id)
            if value is None or schema_id in names:
                continue
            try:
                source = find_source(self._state, value, is_new=False)
                names[schema_id] = await asyncio.to_thread(find_record_name, source)
            except (RegistryError, InvalidSchemaError, ImportError) as error:
                logger.warning("cannot find a schema's record name", schema_id=schema_id, error=str(error))
                names[schema_id] = None

    def _replay(self, key: bytes, value: bytes | None) -> None:
        self._state.replay(key, value)

    def _reset(self) -> None:
        self._state = State()
        # A new dict, not `clear()`: a name that a thread is still finding belongs to the old log.
        self._names = {}
