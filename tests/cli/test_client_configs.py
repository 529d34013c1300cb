"""What the options of a command stand for in a client's configuration."""

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
def test_the_delivery_has_the_time_that_its_parts_have(settings: list[str], timeout_ms: int) -> None:
    config = producer_config("localhost:9092", 2.0, settings)
    assert ProducerSettings.parse(config).delivery_timeout_ms == timeout_ms


@pytest.mark.parametrize("setting", ["linger.ms=soon", "linger.ms=-5", "request.timeout.ms="])
def test_a_part_that_is_no_number_is_named(setting: str) -> None:
    with pytest.raises(ConfigError, match=setting.partition("=")[0]):
        ProducerSettings.parse(producer_config("localhost:9092", 2.0, [setting]))
