"""The quotas of a node: windows from its settings, limits from the image."""

from rookery.base.clock import Clock
from rookery.base.config import BrokerLayers
from rookery.broker.throttling import Throttling
from rookery.metadata.image import ClusterImage, Delta
from rookery.metadata.publisher import ImageListener, MetadataPublisher
from rookery.node.settings import Settings
from rookery.quotas.clients import ClientQuotas
from rookery.quotas.connections import ConnectionRates
from rookery.telemetry.sensors import Windows


class NodeQuotas:
    """The quotas of clients and of new connections. They follow the images that `metadata` publishes."""

    def __init__(self, settings: Settings, metadata: MetadataPublisher, clock: Clock) -> None:
        windows = windows_of(settings.layers, "quota")
        self.throttling = Throttling(ClientQuotas(windows, windows_of(settings.layers, "controller.quota")), clock)
        # With one listener only, clients and brokers share it, and the rate of the broker is that of all.
        protected = settings.inter_broker_listener if len(settings.listeners) > 1 else None
        self.connection_rates = ConnectionRates(windows, protected=protected)
        metadata.add(ImageListener("quotas", self._configure))

    def _configure(self, image: ClusterImage, delta: Delta) -> None:
        if delta.client_quotas:
            self.throttling.quotas.configure(image.client_quotas)
            self.connection_rates.configure_addresses(image.client_quotas)


def windows_of(layers: BrokerLayers, prefix: str) -> Windows:
    return Windows(layers.integer(f"{prefix}.window.num"), layers.integer(f"{prefix}.window.size.seconds"))
