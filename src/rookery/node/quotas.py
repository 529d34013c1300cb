"""The quotas of a node's clients: windows from its settings, limits from the image."""

from rookery.base.clock import Clock
from rookery.base.config import BrokerLayers
from rookery.broker.throttling import Throttling
from rookery.metadata.image import ClusterImage, Delta
from rookery.metadata.publisher import ImageListener, MetadataPublisher
from rookery.quotas.clients import ClientQuotas
from rookery.telemetry.sensors import Windows


def follow_quotas(metadata: MetadataPublisher, layers: BrokerLayers, clock: Clock) -> Throttling:
    """Return the quotas of a node's clients, which follow the images that `metadata` publishes from now on."""
    quotas = ClientQuotas(_windows(layers, "quota"), _windows(layers, "controller.quota"))

    def configure(image: ClusterImage, delta: Delta) -> None:
        if delta.client_quotas:
            quotas.configure(image.client_quotas)

    metadata.add(ImageListener("quotas", configure))
    return Throttling(quotas, clock)


def _windows(layers: BrokerLayers, prefix: str) -> Windows:
    return Windows(layers.integer(f"{prefix}.window.num"), layers.integer(f"{prefix}.window.size.seconds"))
