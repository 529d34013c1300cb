"""The quotas and throttles of a node: windows from its settings, limits from the image."""

from collections.abc import Mapping

from rookery.base.clock import Clock
from rookery.base.codes import ResourceType
from rookery.base.config import BrokerLayers
from rookery.base.types import TopicName
from rookery.broker.throttling import Throttling
from rookery.metadata.image import ClusterImage, Delta
from rookery.metadata.log_config import broker_layers
from rookery.metadata.publisher import ImageListener, MetadataPublisher
from rookery.node.settings import Settings
from rookery.quotas.clients import ClientQuotas
from rookery.quotas.connections import ConnectionRates
from rookery.quotas.replication import ReplicationThrottle, ReplicationThrottles
from rookery.telemetry.sensors import Windows


class NodeQuotas:
    """The quotas of clients, new connections and replication. They follow the images that `metadata` publishes."""

    def __init__(self, settings: Settings, metadata: MetadataPublisher, clock: Clock) -> None:
        windows = windows_of(settings.layers, "quota")
        self.throttling = Throttling(ClientQuotas(windows, windows_of(settings.layers, "controller.quota")), clock)
        # With one listener only, clients and brokers share it, and the rate of the broker is that of all.
        protected = settings.inter_broker_listener if len(settings.listeners) > 1 else None
        self.connection_rates = ConnectionRates(windows, protected=protected)
        self._node_id, self._static = settings.node_id, settings.layers.static
        windows = windows_of(settings.layers, "replication.quota")
        self.replication = ReplicationThrottles(ReplicationThrottle(windows), ReplicationThrottle(windows))
        self._set_rates(settings.layers)
        metadata.add(ImageListener("quotas", self._configure))

    def _configure(self, image: ClusterImage, delta: Delta) -> None:
        if delta.client_quotas:
            self.throttling.quotas.configure(image.client_quotas)
            self.connection_rates.configure_addresses(image.client_quotas)
        for resource in delta.configs:
            if resource.type == ResourceType.TOPIC:
                self._throttle_topic(resource.name, image.topic_config(resource.name))
        if any(resource.type == ResourceType.BROKER for resource in delta.configs):
            self._set_rates(broker_layers(image, self._node_id, self._static))

    def _set_rates(self, layers: BrokerLayers) -> None:
        for role, throttle in self._throttles():
            throttle.set_rate(layers.integer(f"{role}.replication.throttled.rate"))

    def _throttle_topic(self, topic: TopicName, config: Mapping[str, str]) -> None:
        for role, throttle in self._throttles():
            replicas = config.get(f"{role}.replication.throttled.replicas", "")
            throttle.set_replicas(topic, [item.strip() for item in replicas.split(",") if item.strip()], self._node_id)

    def _throttles(self) -> tuple[tuple[str, ReplicationThrottle], ...]:
        return ("leader", self.replication.leader), ("follower", self.replication.follower)


def windows_of(layers: BrokerLayers, prefix: str) -> Windows:
    return Windows(layers.integer(f"{prefix}.window.num"), layers.integer(f"{prefix}.window.size.seconds"))
