"""Starts to read the registered schemas as soon as the cluster has a topic with schema validation.

Until then nothing is read, and no module of the registry is imported. Once started, the reader keeps running, even if
no topic needs it any more: it costs little, and the next topic with schema validation need not wait for it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import structlog

from rookery.base.codes import ResourceType
from rookery.base.config import BrokerLayers
from rookery.base.errors import ConfigError
from rookery.base.types import TopicName
from rookery.broker.schema_checks import KnownSchemas, NoSchemas
from rookery.metadata.image import ClusterImage, Delta
from rookery.metadata.log_config import LogConfigs
from rookery.metadata.publisher import ImageListener, MetadataPublisher

if TYPE_CHECKING:
    from rookery.node.registered_schemas import RegisteredSchemas

logger = structlog.get_logger(__name__)


class SchemasOnDemand:
    """Implements `broker.schema_checks.KnownSchemas`. `address` returns this node's address once it serves."""

    def __init__(self, static: Mapping[str, str], *, address: Callable[[], str]) -> None:
        self._static = static
        self._address = address
        self._known: KnownSchemas = NoSchemas()
        self._registered: RegisteredSchemas | None = None
        # True when the reader was started, could not be created, or must not be started any more.
        self._is_decided = False

    def start(self, metadata: MetadataPublisher) -> None:
        """Start to follow the image. The node must already serve, because the reader may connect to it."""
        self._check_topics(metadata.image, metadata.image.topics)
        metadata.add(ImageListener("schema checks", self._apply))

    async def stop(self) -> None:
        self._is_decided = True
        self._known = NoSchemas()
        if self._registered is not None:
            await self._registered.stop()

    def is_registered(self, subject: str, schema_id: int) -> bool:
        return self._known.is_registered(subject, schema_id)

    def record_name(self, schema_id: int) -> str | None:
        return self._known.record_name(schema_id)

    async def catch_up(self) -> bool:
        return await self._known.catch_up()

    def _apply(self, image: ClusterImage, delta: Delta) -> None:
        created = [topic.name for topic in delta.created]
        configured = [resource.name for resource in delta.configs if resource.type == ResourceType.TOPIC]
        self._check_topics(image, created + configured)

    def _check_topics(self, image: ClusterImage, topics: Iterable[TopicName]) -> None:
        """Start the reader if one of the topics has schema validation."""
        if self._is_decided:
            return
        # The broker has no defaults for schema validation, so the topic's own configs are enough.
        configs = LogConfigs(BrokerLayers())
        if any(configs.get(image.topic_config(topic)).schema_rules is not None for topic in topics):
            self._is_decided = True
            self._start_reader()

    def _start_reader(self) -> None:
        # Imported here because most brokers never need it.
        from rookery.node.registered_schemas import RegisteredSchemas

        try:
            registered = RegisteredSchemas(self._static, bootstrap_servers=self._address())
        except ConfigError as error:
            logger.error(
                "schema ids cannot be checked: records of topics with schema validation are rejected", error=str(error)
            )
            return
        registered.start()
        self._known = self._registered = registered
