"""When a node begins to read the registered schemas: as soon as the cluster has a topic that asks for checks.

Until then nothing is read, and nothing of the registry is imported. From then on the reading stays: it costs little,
and the next topic that asks need not wait for it.
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
    """Fulfils `broker.schema_checks.KnownSchemas`. `address` is where a client reaches this node, once it serves."""

    def __init__(self, static: Mapping[str, str], *, address: Callable[[], str]) -> None:
        self._static = static
        self._address = address
        self._known: KnownSchemas = NoSchemas()
        self._registered: RegisteredSchemas | None = None
        self._is_settled = False

    def start(self, metadata: MetadataPublisher) -> None:
        """Follow the image from now on; the node must serve."""
        self._look_at(metadata.image, metadata.image.topics)
        metadata.add(ImageListener("schema checks", self._apply))

    async def stop(self) -> None:
        self._is_settled = True
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
        self._look_at(image, created + configured)

    def _look_at(self, image: ClusterImage, topics: Iterable[TopicName]) -> None:
        if self._is_settled:
            return
        # A topic cannot get the checks from its broker's configs.
        configs = LogConfigs(BrokerLayers())
        if any(configs.get(image.topic_config(topic)).schema_rules is not None for topic in topics):
            self._is_settled = True
            self._begin()

    def _begin(self) -> None:
        # Most brokers never need it.
        from rookery.node.registered_schemas import RegisteredSchemas

        try:
            registered = RegisteredSchemas(self._static, bootstrap_servers=self._address())
        except ConfigError as error:
            logger.error(
                "schema ids cannot be checked, and records of topics that ask for it are refused", error=str(error)
            )
            return
        registered.start()
        self._known = self._registered = registered
