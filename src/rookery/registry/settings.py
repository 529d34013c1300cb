"""The settings of a registry, with Confluent's names. Pure; `node`, `service`, `server` and `rest` read it.

All errors of a mapping are in one ConfigError, a line each. Each line names the key as it was written: in a broker the
keys are `schema.registry.<name>`. The table of keys is `base.config_registry`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final, NamedTuple

from rookery.base.config_access import SUPER_USERS, principals_of
from rookery.base.config_key import ConfigKey, parse_value
from rookery.base.config_registry import CLIENT_PREFIX, REGISTRY_ROWS, broker_name
from rookery.base.errors import ConfigError
from rookery.base.values import value_class
from rookery.client.settings.common import COMMON_ROWS
from rookery.client.settings.parser import Values, check_together, table
from rookery.registry.roles import parse_rules
from rookery.security.sasl import PLAIN, SCRAM_MECHANISMS

# With these a password can be checked: they prove that the client knows it.
LOGIN_MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS)
_KEYS: Final[Mapping[str, ConfigKey]] = table(REGISTRY_ROWS)
# The settings of the registry's Kafka clients that may be configured. The registry sets client.id itself.
_CLIENT_KEYS: Final[Mapping[str, ConfigKey]] = table(row for row in COMMON_ROWS if row.name != "client.id")
_LISTENER = re.compile(
    r"(?P<scheme>https?)://(?:\[(?P<bracketed>[0-9A-Fa-f:.]+)\]|(?P<host>[^:\[\]/]*)):(?P<port>\d{1,5})/?",
    re.IGNORECASE,
)
_ANY_ADDRESS = ("", "0.0.0.0", "::")


class RegistryListener(NamedTuple):
    """`scheme://host:port`; an empty host means every interface, port 0 any free port."""

    scheme: str
    host: str
    port: int

    @property
    def listens_everywhere(self) -> bool:
        return self.host in _ANY_ADDRESS

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class SearchLimit(NamedTuple):
    """The default and the maximum number of results of a list."""

    default: int
    maximum: int


@value_class(kw_only=True)
class Authentication:
    """`roles` are the roles of the file that may use the registry; "*" means every user with a valid password.

    Without `credentials_file`, the users are those of the brokers.
    """

    is_basic: bool
    realm: str
    roles: frozenset[str]
    credentials_file: Path | None


@value_class(kw_only=True)
class Authorization:
    """`rules` and the lines of `rules_file` grant roles on subjects (`registry.roles`)."""

    rules: tuple[str, ...]
    rules_file: Path | None
    super_users: tuple[str, ...]


@value_class(kw_only=True)
class TlsFiles:
    """PEM files. `client_authentication` is NONE, REQUESTED or REQUIRED."""

    keystore: Path | None
    key_password: str | None = field(repr=False)
    truststore: Path | None
    client_authentication: str


@value_class(kw_only=True)
class RegistrySettings:
    """`client_config` is the configuration of all Kafka clients: bootstrap.servers and the keys passed on.

    It may contain passwords, so it is not part of the repr.
    """

    listeners: tuple[RegistryListener, ...]
    host_name: str | None
    inter_instance_protocol: str
    client_config: Mapping[str, str] = field(repr=False)
    topic: str
    topic_replication_factor: int
    topic_skip_validation: bool
    timeout_ms: int
    init_timeout_ms: int
    group_id: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    leader_eligibility: bool
    leader_connect_timeout_ms: int
    leader_read_timeout_ms: int
    forwarded_headers: tuple[str, ...]
    compatibility_level: str
    mode_mutability: bool
    request_body_bytes_max: int
    schema_limit: SearchLimit
    subject_limit: SearchLimit
    version_limit: SearchLimit
    context_limit: SearchLimit
    authentication: Authentication
    # None: every user may do everything.
    authorization: Authorization | None
    tls: TlsFiles

    @classmethod
    def parse(cls, config: Mapping[str, str]) -> "RegistrySettings":
        """Parse a mapping with Confluent's names. Raises ConfigError, which names every invalid key."""
        return _parse(config, in_broker=False)

    @classmethod
    def of_broker(cls, static: Mapping[str, str], *, bootstrap_servers: str) -> "RegistrySettings":
        """Parse a broker's `schema.registry.*` keys. By default that broker stores the schemas, and its super users
        are the registry's."""
        names = {broker_name(name): name for name in _KEYS}
        passed_on = broker_name(CLIENT_PREFIX)
        config = {"kafkastore.bootstrap.servers": bootstrap_servers, SUPER_USERS: static.get(SUPER_USERS, "")}
        for name, value in static.items():
            if name in names:
                config[names[name]] = value
            elif name.startswith(passed_on):
                config[CLIENT_PREFIX + name.removeprefix(passed_on)] = value
        return _parse(config, in_broker=True)


def _parse(config: Mapping[str, str], *, in_broker: bool) -> RegistrySettings:
    own = {name: value for name, value in config.items() if name in _KEYS or not name.startswith(CLIENT_PREFIX)}
    passed_on = {name: value for name, value in config.items() if name not in own}
    try:
        values = Values(_KEYS, own)
        check_together(_passed_on_problems(passed_on))
        return _make(values, passed_on)
    except ConfigError as error:
        raise ConfigError(with_broker_names(str(error)) if in_broker else str(error)) from None


def with_broker_names(problems: str) -> str:
    """Replace the names of keys in a text by their names in a broker's configuration."""
    known = sorted([*_KEYS, CLIENT_PREFIX], key=len, reverse=True)
    pattern = re.compile(r"(?<![\w.])(?:" + "|".join(map(re.escape, known)) + r")")
    return pattern.sub(lambda match: broker_name(match.group()), problems)


def _passed_on_problems(passed_on: Mapping[str, str]) -> Iterator[str]:
    for name, value in passed_on.items():
        key = _CLIENT_KEYS.get(name.removeprefix(CLIENT_PREFIX))
        if key is None:
            yield f"unknown configuration {name!r}: neither a key of the registry nor one of its Kafka clients"
            continue
        try:
            parse_value(key, value)
        except ConfigError as error:
            yield f"{name}: {error}"


def _make(values: Values, passed_on: Mapping[str, str]) -> RegistrySettings:
    listeners = _listeners(values.items("listeners"))
    client_config = {name.removeprefix(CLIENT_PREFIX): value for name, value in passed_on.items()}
    protocol = client_config.get("security.protocol", "PLAINTEXT").upper()
    check_together([*_conflicts(values, listeners, client_config), *_broker_problems(values, protocol)])
    client_config["bootstrap.servers"] = ",".join(_brokers(values.items("kafkastore.bootstrap.servers")))
    return RegistrySettings(
        listeners=listeners,
        host_name=values.optional_text("host.name"),
        inter_instance_protocol=_advertised_scheme(values, listeners),
        client_config=client_config,
        topic=values.text("kafkastore.topic"),
        topic_replication_factor=values.integer("kafkastore.topic.replication.factor"),
        topic_skip_validation=values.boolean("kafkastore.topic.skip.validation"),
        timeout_ms=values.integer("kafkastore.timeout.ms"),
        init_timeout_ms=values.integer("kafkastore.init.timeout.ms"),
        group_id=values.text("schema.registry.group.id"),
        rebalance_timeout_ms=values.integer("kafkagroup.rebalance.timeout.ms"),
        session_timeout_ms=values.integer("kafkagroup.session.timeout.ms"),
        heartbeat_interval_ms=values.integer("kafkagroup.heartbeat.interval.ms"),
        leader_eligibility=values.boolean("leader.eligibility"),
        leader_connect_timeout_ms=values.integer("leader.connect.timeout.ms"),
        leader_read_timeout_ms=values.integer("leader.read.timeout.ms"),
        forwarded_headers=values.items("inter.instance.headers.whitelist"),
        compatibility_level=values.text("schema.compatibility.level").upper(),
        mode_mutability=values.boolean("mode.mutability"),
        request_body_bytes_max=values.integer("size.limit.filter.max.request.body.size"),
        schema_limit=_limit(values, "schema.search"),
        subject_limit=_limit(values, "subject.search"),
        version_limit=_limit(values, "subject.version.search"),
        context_limit=_limit(values, "context.search"),
        authentication=Authentication(
            is_basic=values.text("authentication.method") == "BASIC",
            realm=values.text("authentication.realm"),
            roles=frozenset(values.items("authentication.roles")),
            credentials_file=_path(values, "authentication.credentials.file"),
        ),
        authorization=_authorization(values),
        tls=TlsFiles(
            keystore=_path(values, "ssl.keystore.location"),
            key_password=values.optional_text("ssl.key.password"),
            truststore=_path(values, "ssl.truststore.location"),
            client_authentication=values.text("ssl.client.authentication"),
        ),
    )


def _authorization(values: Values) -> Authorization | None:
    rules = values.optional_text("authorization.rules")
    rules_file = _path(values, "authorization.rules.file")
    if rules is None and rules_file is None:
        return None
    given = tuple(rule.strip() for rule in (rules or "").split(";") if rule.strip())
    list(parse_rules(given, "authorization.rules"))
    return Authorization(rules=given, rules_file=rules_file, super_users=tuple(principals_of(values.text(SUPER_USERS))))


def _limit(values: Values, name: str) -> SearchLimit:
    return SearchLimit(values.integer(f"{name}.default.limit"), values.integer(f"{name}.max.limit"))


def _path(values: Values, name: str) -> Path | None:
    text = values.optional_text(name)
    return Path(text) if text else None


def _listeners(items: Iterable[str]) -> tuple[RegistryListener, ...]:
    listeners = tuple(_listener(item) for item in items)
    ports = [(listener.host, listener.port) for listener in listeners if listener.port]
    if not listeners or len(set(ports)) < len(ports):
        raise ConfigError("listeners: give one or more addresses, each once, such as http://127.0.0.1:8081")
    return listeners


def _listener(text: str) -> RegistryListener:
    match = _LISTENER.fullmatch(text)
    if match is None or int(match["port"]) > 65_535:
        raise ConfigError(f"listeners: expected http://host:port or https://host:port, got {text!r}")
    return RegistryListener(match["scheme"].lower(), match["bracketed"] or match["host"] or "", int(match["port"]))


def _brokers(items: Iterable[str]) -> Iterator[str]:
    """Yield the addresses without the security protocol that Confluent's form has in front."""
    for item in items:
        yield item.partition("://")[2] or item


def _advertised_scheme(values: Values, listeners: Sequence[RegistryListener]) -> str:
    has_http = any(listener.scheme == "http" for listener in listeners)
    return (values.optional_text("inter.instance.protocol") or ("http" if has_http else "https")).lower()


def _broker_problems(values: Values, protocol: str) -> Iterator[str]:
    brokers = values.items("kafkastore.bootstrap.servers")
    if not any(brokers):
        yield "kafkastore.bootstrap.servers is required: give host:port of one or more brokers"
    for broker in brokers:
        prefix, separator, _ = broker.partition("://")
        if separator and prefix.upper() != protocol:
            yield f"kafkastore.bootstrap.servers: {broker} does not match kafkastore.security.protocol, {protocol}"


def _logs_in(client_config: Mapping[str, str]) -> bool:
    """Whether a password can be checked by a login with the protocol and the mechanism of the registry's clients."""
    protocol = client_config.get("security.protocol", "").upper()
    return protocol.startswith("SASL_") and client_config.get("sasl.mechanism", "") in LOGIN_MECHANISMS


def _conflicts(
    values: Values, listeners: Sequence[RegistryListener], client_config: Mapping[str, str]
) -> Iterator[str]:
    schemes = {listener.scheme for listener in listeners}
    if "https" in schemes and not values.is_given("ssl.keystore.location"):
        yield "ssl.keystore.location is required for a listener with https: name a PEM file with key and certificates"
    if _advertised_scheme(values, listeners) not in schemes:
        yield "inter.instance.protocol names a scheme that none of listeners has"
    needs_authorities = values.text("ssl.client.authentication") != "NONE"
    if needs_authorities and not values.is_given("ssl.truststore.location"):
        yield "ssl.truststore.location is required with ssl.client.authentication: name a PEM file with authorities"
    is_basic = values.text("authentication.method") == "BASIC"
    if is_basic and not values.is_given("authentication.credentials.file") and not _logs_in(client_config):
        yield (
            "authentication.credentials.file is required with authentication.method=BASIC, unless "
            f"{CLIENT_PREFIX}sasl.mechanism is {' or '.join(LOGIN_MECHANISMS)}: then the brokers' users are accepted"
        )
    if values.is_given("authentication.roles") and not values.is_given("authentication.credentials.file"):
        yield (
            "authentication.roles are roles of authentication.credentials.file: for users of the brokers, give roles "
            "by authorization.rules"
        )
    if not is_basic and any(map(values.is_given, ("authorization.rules", "authorization.rules.file"))):
        yield "authorization.rules and authorization.rules.file need authentication.method=BASIC: roles belong to users"
    session_ms = values.integer("kafkagroup.session.timeout.ms")
    if values.integer("kafkagroup.heartbeat.interval.ms") >= session_ms:
        yield f"kafkagroup.heartbeat.interval.ms must be below kafkagroup.session.timeout.ms ({session_ms})"
    for name in ("kafkastore.topic", "schema.registry.group.id"):
        if not values.text(name).strip():
            yield f"{name} must not be empty"
