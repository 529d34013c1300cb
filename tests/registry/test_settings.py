"""The registry's settings: Confluent's names, their parsed values, and the errors."""

from pathlib import Path

import pytest

from rookery.base.config_registry import REGISTRY_BROKER_ROWS, REGISTRY_ROWS
from rookery.base.errors import ConfigError
from rookery.registry.settings import RegistryListener, RegistrySettings, SearchLimit

BROKERS = {"kafkastore.bootstrap.servers": "b1:9092"}


def test_the_defaults_are_confluents() -> None:
    settings = RegistrySettings.parse(BROKERS)
    assert settings.listeners == (RegistryListener("http", "0.0.0.0", 8081),)
    assert settings.client_config == {"bootstrap.servers": "b1:9092"}
    assert (settings.topic, settings.topic_replication_factor) == ("_schemas", 3)
    assert settings.group_id == "schema-registry"
    assert settings.compatibility_level == "BACKWARD"
    assert (settings.leader_eligibility, settings.mode_mutability) == (True, True)
    assert settings.schema_limit == SearchLimit(1000, 1000)
    assert not settings.authentication.is_basic
    assert settings.authentication.roles == {"*"}
    assert settings.inter_instance_protocol == "http"


def test_all_settings() -> None:
    settings = RegistrySettings.parse(
        {
            "kafkastore.bootstrap.servers": "PLAINTEXT://b1:9092, PLAINTEXT://b2:9093",
            "kafkastore.request.timeout.ms": "1234",
            "listeners": "https://127.0.0.1:8443,HTTP://[::1]:0/",
            "inter.instance.protocol": "HTTPS",
            "schema.compatibility.level": "full_transitive",
            "authentication.method": "BASIC",
            "authentication.realm": "Registry",
            "authentication.roles": "admin,developer",
            "authentication.credentials.file": "users.properties",
            "ssl.keystore.location": "server.pem",
            "ssl.key.password": "secret",
            "ssl.truststore.location": "authorities.pem",
            "ssl.client.authentication": "REQUIRED",
        }
    )
    assert settings.client_config == {"bootstrap.servers": "b1:9092,b2:9093", "request.timeout.ms": "1234"}
    assert [listener.url for listener in settings.listeners] == ["https://127.0.0.1:8443", "http://[::1]:0"]
    assert settings.inter_instance_protocol == "https"
    assert settings.compatibility_level == "FULL_TRANSITIVE"
    assert settings.authentication.roles == {"admin", "developer"}
    assert settings.authentication.credentials_file == Path("users.properties")
    assert settings.tls.keystore == Path("server.pem")
    assert settings.tls.client_authentication == "REQUIRED"


def test_client_settings_are_passed_on() -> None:
    settings = RegistrySettings.parse(
        {
            "kafkastore.bootstrap.servers": "SASL_SSL://b1:9092,b2:9093",
            "kafkastore.security.protocol": "SASL_SSL",
            "kafkastore.sasl.mechanism": "PLAIN",
        }
    )
    assert settings.client_config == {
        "bootstrap.servers": "b1:9092,b2:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
    }


def test_https_is_advertised_if_there_is_no_http_listener() -> None:
    settings = RegistrySettings.parse({**BROKERS, "listeners": "https://:8443", "ssl.keystore.location": "server.pem"})
    assert settings.inter_instance_protocol == "https"
    assert settings.listeners[0].listens_everywhere


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("listners", "http://:8081", "unknown configuration 'listners'; did you mean listeners?"),
        (
            "listeners",
            "ftp://host:21",
            "listeners: expected http://host:port or https://host:port, got 'ftp://host:21'",
        ),
        ("listeners", "http://host:70000", "listeners: expected"),
        ("listeners", "", "listeners: give one or more addresses"),
        ("listeners", "http://a:1,http://a:1", "listeners: give one or more addresses, each once"),
        ("listeners", "https://a:1", "ssl.keystore.location is required"),
        ("inter.instance.protocol", "https", "inter.instance.protocol names a scheme that none of listeners has"),
        ("kafkastore.bootstrap.servers", "", "kafkastore.bootstrap.servers is required"),
        ("kafkastore.bootstrap.servers", "SSL://b1:9092", "SSL://b1:9092 does not match kafkastore.security.protocol"),
        ("kafkastore.security.protocol", "TLS", "kafkastore.security.protocol: .*must be one of"),
        ("kafkastore.no.such.key", "1", "unknown configuration 'kafkastore.no.such.key'"),
        ("kafkastore.client.id", "mine", "unknown configuration 'kafkastore.client.id'"),
        ("kafkastore.request.timeout.ms", "soon", "kafkastore.request.timeout.ms: .*not a number"),
        ("kafkastore.timeout.ms", "0", "kafkastore.timeout.ms: must be at least 1"),
        ("kafkastore.topic", " ", "kafkastore.topic must not be empty"),
        ("schema.compatibility.level", "sideways", "schema.compatibility.level: must be one of"),
        ("leader.eligibility", "maybe", "leader.eligibility: expected true or false"),
        ("kafkagroup.heartbeat.interval.ms", "10000", "kafkagroup.heartbeat.interval.ms must be below"),
        ("authentication.method", "BEARER", "authentication.method: must be one of: NONE, BASIC"),
        ("authentication.method", "BASIC", "authentication.credentials.file is required"),
        ("ssl.keystore.type", "JKS", "ssl.keystore.type: must be one of: PEM"),
        ("ssl.client.authentication", "REQUIRED", "ssl.truststore.location is required"),
    ],
)
def test_an_error_names_its_key(key: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RegistrySettings.parse({**BROKERS, key: value})


SASL = {"kafkastore.security.protocol": "SASL_SSL", "authentication.method": "BASIC"}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_without_a_file_the_users_are_those_of_the_brokers(mechanism: str) -> None:
    settings = RegistrySettings.parse({**BROKERS, **SASL, "kafkastore.sasl.mechanism": mechanism})
    assert settings.authentication.credentials_file is None
    assert settings.authorization is None


def test_a_mechanism_without_passwords_needs_a_file() -> None:
    with pytest.raises(
        ConfigError, match=r"credentials\.file is required .*unless kafkastore\.sasl\.mechanism is PLAIN"
    ):
        RegistrySettings.parse({**BROKERS, **SASL, "kafkastore.sasl.mechanism": "OAUTHBEARER"})


def test_roles_of_a_file_need_the_file() -> None:
    """Without the error, the users of the brokers would have more access than the settings seem to say."""
    users = {**BROKERS, **SASL, "kafkastore.sasl.mechanism": "PLAIN"}
    with pytest.raises(ConfigError, match=r"authentication\.roles are roles of authentication\.credentials\.file"):
        RegistrySettings.parse({**users, "authentication.roles": "admin"})


def test_rules_need_users_and_are_checked() -> None:
    rules = {"authorization.rules": "User:a=read:*; User:b=write:c-*;"}
    with pytest.raises(ConfigError, match=r"authorization\.rules.* need authentication\.method=BASIC"):
        RegistrySettings.parse({**BROKERS, **rules})
    users = {**BROKERS, **SASL, "kafkastore.sasl.mechanism": "PLAIN"}
    settings = RegistrySettings.parse({**users, **rules, "super.users": "User:x;User:y"})
    assert settings.authorization is not None
    assert settings.authorization.rules == ("User:a=read:*", "User:b=write:c-*")
    assert settings.authorization.super_users == ("User:x", "User:y")
    # No rules at all: only super users may.
    assert RegistrySettings.parse({**users, "authorization.rules": ""}).authorization is not None
    with pytest.raises(ConfigError, match=r"authorization\.rules: 'sing:\*' must be ROLE:SUBJECT"):
        RegistrySettings.parse({**users, "authorization.rules": "User:a=sing:*"})


def test_the_super_users_of_a_broker_are_those_of_its_registry() -> None:
    static = {
        "super.users": "User:admin",
        "schema.registry.authorization.rules": "User:*=read:*",
        "schema.registry.authentication.method": "BASIC",
        "schema.registry.authentication.credentials.file": "users",
    }
    settings = RegistrySettings.of_broker(static, bootstrap_servers="h:1")
    assert settings.authorization is not None
    assert settings.authorization.super_users == ("User:admin",)
    own = RegistrySettings.of_broker({**static, "schema.registry.super.users": "User:x"}, bootstrap_servers="h:1")
    assert own.authorization is not None
    assert own.authorization.super_users == ("User:x",)


def test_several_errors_are_reported_together() -> None:
    with pytest.raises(ConfigError) as refused:
        RegistrySettings.parse({**BROKERS, "listners": "x", "leader.eligibility": "y"})
    assert len(str(refused.value).splitlines()) == 2


def test_a_broker_has_every_key_under_its_prefix() -> None:
    names = {row.name for row in REGISTRY_BROKER_ROWS}
    assert len(names) == len(REGISTRY_ROWS)
    assert all(name.startswith("schema.registry.") for name in names)
    assert {"schema.registry.listeners", "schema.registry.group.id", "schema.registry.kafkastore.topic"} <= names


def test_a_brokers_keys_become_settings() -> None:
    static = {
        "log.dirs": "data",
        "schema.registry.listeners": "http://127.0.0.1:8081",
        "schema.registry.group.id": "mine",
        "schema.registry.kafkastore.topic": "_mine",
        "schema.registry.kafkastore.retry.backoff.ms": "7",
    }
    settings = RegistrySettings.of_broker(static, bootstrap_servers="127.0.0.1:9092")
    assert settings.listeners[0].port == 8081
    assert (settings.group_id, settings.topic) == ("mine", "_mine")
    assert settings.client_config == {"bootstrap.servers": "127.0.0.1:9092", "retry.backoff.ms": "7"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema.registry.listeners", "invalid"),
        ("schema.registry.kafkastore.unknown", "1"),
        ("schema.registry.kafkastore.topic", ""),
        ("schema.registry.group.id", " "),
        ("schema.registry.inter.instance.protocol", "https"),
    ],
)
def test_errors_have_the_brokers_names_of_keys(key: str, value: str) -> None:
    static = {"schema.registry.listeners": "http://127.0.0.1:8081", key: value}
    with pytest.raises(ConfigError, match=rf"(^|\W){key}"):
        RegistrySettings.of_broker(static, bootstrap_servers="127.0.0.1:9092")
