"""Settings of consumer groups, as read from server.properties."""

import pytest

from rookery.base.config import BrokerLayers
from rookery.base.errors import ConfigError
from rookery.coordinators.group.consumer.environment import ConsumerSettings, MigrationPolicy


def settings(**static: str) -> ConsumerSettings:
    return ConsumerSettings.of(
        BrokerLayers(static={f"group.consumer.{name.replace('_', '.')}": text for name, text in static.items()})
    )


def test_the_defaults_are_those_of_kafka() -> None:
    assert settings() == ConsumerSettings()


def test_assignors_by_name_and_by_class() -> None:
    java = "org.apache.kafka.coordinator.group.assignor.UniformAssignor"
    assert settings(assignors=f"range, {java}").assignors == ("range", "uniform")
    for text in ("magic", "", "org.example.Assignor"):
        with pytest.raises(ConfigError, match=r"group\.consumer\.assignors"):
            settings(assignors=text)


def test_times_have_limits() -> None:
    assert settings(min_heartbeat_interval_ms="10", heartbeat_interval_ms="10").heartbeat_interval_ms == 10
    for fault in (
        {"heartbeat_interval_ms": "4999"},
        {"heartbeat_interval_ms": "15001"},
        {"session_timeout_ms": "44999"},
        {"session_timeout_ms": "60001"},
        {"min_session_timeout_ms": "5000", "session_timeout_ms": "5000"},
    ):
        with pytest.raises(ConfigError, match=r"group\.consumer\."):
            settings(**fault)


def test_the_policy_is_read_in_any_case() -> None:
    policy = settings(migration_policy="Upgrade").migration_policy
    assert policy is MigrationPolicy.UPGRADE
    assert policy.may_upgrade
    assert not policy.may_downgrade
