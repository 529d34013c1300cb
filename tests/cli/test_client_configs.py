"""How the options of a command become the client's configuration."""

import pytest

from rookery.base.errors import ConfigError
from rookery.cli.client_configs import producer_config
from rookery.client.settings.producer import ProducerSettings


@pytest.mark.parametrize(
    ("settings", "timeout_ms"),
    [
        ([], 2005),
        (["linger.ms=50"], 2050),
        (["linger.ms=50", "request.timeout.ms=100"], 150),
        (["linger.ms=50", "delivery.timeout.ms=9000"], 9000),
        (["request.timeout.ms=2147483647"], 2**31 - 1),
    ],
)
def test_the_delivery_timeout_is_the_sum_of_its_parts(settings: list[str], timeout_ms: int) -> None:
    config = producer_config("localhost:9092", 2.0, settings)
    assert ProducerSettings.parse(config).delivery_timeout_ms == timeout_ms


@pytest.mark.parametrize("setting", ["linger.ms=soon", "linger.ms=-5", "request.timeout.ms="])
def test_an_invalid_part_is_reported(setting: str) -> None:
    with pytest.raises(ConfigError, match=setting.partition("=")[0]):
        ProducerSettings.parse(producer_config("localhost:9092", 2.0, [setting]))
