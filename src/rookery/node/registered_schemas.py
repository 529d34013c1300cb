"""The schemas that are registered, read by a node that checks produced records: a fold over the registry's log.

The log is read by a client of its own, from wherever the `schema.registry.kafkastore.*` keys say that it is, so it does
not matter who leads its partition or where the registry runs. The registry of the same process has a fold of its own.

A record's name takes parsing its schema, and a large one takes seconds: that is done in a thread, as a part of catching
up, and remembered, because an id never stands for another schema.

Soft-deleted versions are not registered: a registry that is asked for the subjects of an id does not name them. A
subject may be an alias for another one, in another context too, whose ids then count.
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
    """Fulfils `broker.schema_checks.KnownSchemas`."""

    def __init__(self, static: Mapping[str, str], *, bootstrap_servers: str) -> None:
        """`static` is what the broker was started with; ConfigError if it does not say where the schemas are."""
        settings = RegistrySettings.of_broker(static, bootstrap_servers=bootstrap_servers)
        self._topic = settings.topic
        self._state = State()
        self._reader = SchemasReader(settings.client_config, settings.topic, self._replay, on_restart=self._forget)
        self._names: dict[int, str | None] = {}
        # Ids whose names were asked for and are not known, for the next round.
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
        """None the first time; `catch_up` finds it out."""
        if schema_id not in self._names:
            self._unnamed.add(schema_id)
        return self._names.get(schema_id)

    async def catch_up(self) -> bool:
        """Callers share a reading to the end, but not one that has begun: the newest records may have missed it."""
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
        # First those that are known already: there may be nothing more to read.
        await self._find_names(unnamed)
        try:
            await self._reader.catch_up(CATCH_UP_SECONDS_MAX)
        except RookeryError as error:
            logger.warning("cannot read the registered schemas", topic=self._topic, error=str(error))
            return False
        await self._find_names(unnamed)
        return True

    async def _find_names(self, schema_ids: set[int]) -> None:
        """Of those that are registered."""
        for schema_id in schema_ids:
            names = self._names
            # Every version with this id has the same text.
            value = self._state.any_with_id(DEFAULT_CONTEXT, schema_id)
            if value is None or schema_id in names:
                continue
            try:
                source = find_source(self._state, value, is_new=False)
                names[schema_id] = await asyncio.to_thread(find_record_name, source)
            except (RegistryError, InvalidSchemaError, ImportError) as error:
                logger.warning("cannot tell a schema's record name", schema_id=schema_id, error=str(error))
                names[schema_id] = None

    def _replay(self, key: bytes, value: bytes | None) -> None:
        self._state.replay(key, value)

    def _forget(self) -> None:
        self._state = State()
        # Another one: a name that is being found out goes to the old one.
        self._names = {}
