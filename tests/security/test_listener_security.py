"""The security of listeners from the configuration: what is read, and one sentence for each mistake."""

import re

import pytest

from rookery.base.codes import SecurityProtocol
from rookery.base.config import BrokerLayers
from rookery.base.errors import ConfigError
from rookery.security.listener_security import ClientCertificates, read_listener, read_peers
from rookery.security.settings import KerberosLogin

KEY = {"ssl.keystore.location": "key.jks"}
USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a" user_bob="b";'
KEYTAB = 'a.Krb5LoginModule required useKeyTab=true keyTab="/k" principal="kafka/host";'
MECHANISM = "sasl.mechanism.inter.broker.protocol"


def test_a_plaintext_listener_has_nothing() -> None:
    security = read_listener(BrokerLayers(static={"ssl.client.auth": "required"}), "X", SecurityProtocol.PLAINTEXT)
    assert (security.tls, security.sasl) == (None, None)


def test_a_listener_with_both() -> None:
    static = {
        **KEY,
        "listener.name.outside.ssl.client.auth": "requested",
        "listener.name.outside.ssl.keystore.location": "own.p12",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.outside.plain.sasl.jaas.config": USERS,
        "listener.name.outside.plain.connections.max.reauth.ms": "5000",
        "connections.max.reauth.ms": "7000",
    }
    security = read_listener(BrokerLayers(static=static), "OUTSIDE", SecurityProtocol.SASL_SSL)
    assert security.tls is not None
    assert security.tls.settings.keystore_location == "own.p12"
    assert security.tls.client_certificates is ClientCertificates.REQUESTED
    assert security.sasl is not None
    plain = security.sasl.mechanisms["PLAIN"]
    assert plain.login is not None
    assert plain.login.options == {"user_alice": "a", "user_bob": "b"}
    assert plain.max_reauth_ms == 5000
    assert security.sasl.mechanisms["SCRAM-SHA-512"].max_reauth_ms == 7000
    assert (security.sasl.receive_size_max, security.sasl.failure_delay_ms) == (524_288, 100)


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [(SecurityProtocol.SSL, ClientCertificates.REQUIRED), (SecurityProtocol.SASL_SSL, ClientCertificates.NONE)],
)
def test_a_listener_with_sasl_asks_for_certificates_only_by_its_own_key(
    protocol: SecurityProtocol, expected: ClientCertificates
) -> None:
    static = {**KEY, "ssl.client.auth": "required", "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    security = read_listener(BrokerLayers(static=static), "X", protocol)
    assert security.tls is not None
    assert security.tls.client_certificates is expected


@pytest.mark.parametrize(
    ("protocol", "static", "expected"),
    [
        (SecurityProtocol.SSL, {}, "listener X uses SSL, but has no key: set listener.name.x.ssl.keystore.location"),
        (
            SecurityProtocol.SASL_PLAINTEXT,
            {"sasl.enabled.mechanisms": "NTLM"},
            "sasl.enabled.mechanisms has NTLM, which is not supported: set it to",
        ),
        (
            SecurityProtocol.SASL_PLAINTEXT,
            {},
            "listener X offers GSSAPI, the default of sasl.enabled.mechanisms, without a keytab: set "
            "listener.name.x.gssapi.sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=",
        ),
        (
            SecurityProtocol.SASL_PLAINTEXT,
            {"sasl.jaas.config": 'a required useKeyTab=true keyTab="k";'},
            "listener X offers GSSAPI, the default of sasl.enabled.mechanisms, without a keytab",
        ),
        (
            SecurityProtocol.SASL_PLAINTEXT,
            {"sasl.jaas.config": KEYTAB, "sasl.kerberos.principal.to.local.rules": "DEFAULT,RULE:[1:$2]"},
            "listener X: sasl.kerberos.principal.to.local.rules: $2 in 'RULE:[1:$2]' is neither",
        ),
        (SecurityProtocol.SASL_PLAINTEXT, {"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms is empty: set it"),
        (
            SecurityProtocol.SASL_PLAINTEXT,
            {"sasl.enabled.mechanisms": "PLAIN"},
            "listener X offers PLAIN without users: set listener.name.x.plain.sasl.jaas.config=org.apache",
        ),
        (
            SecurityProtocol.SASL_PLAINTEXT,
            {"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": "secret"},
            "listener X, mechanism PLAIN: sasl.jaas.config is wrong at its end",
        ),
        (
            SecurityProtocol.SSL,
            {**KEY, "ssl.principal.mapping.rules": "RULE:x"},
            "ssl.principal.mapping.rules: 'RULE:x' is not a rule: write DEFAULT",
        ),
        (
            SecurityProtocol.SSL,
            {**KEY, "ssl.endpoint.identification.algorithm": "ldap"},
            "ssl.endpoint.identification.algorithm must be https",
        ),
    ],
)
def test_mistakes_name_the_key(protocol: SecurityProtocol, static: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(expected)) as error:
        read_listener(BrokerLayers(static=static), "X", protocol)
    assert "\n" not in str(error.value)


def test_kerberos() -> None:
    static = {
        "sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.x.gssapi.sasl.jaas.config": KEYTAB,
        "sasl.kerberos.principal.to.local.rules": "DEFAULT",
        "listener.name.x.sasl.kerberos.principal.to.local.rules": "RULE:[1:x$1], DEFAULT",
    }
    sasl = read_listener(BrokerLayers(static=static), "X", SecurityProtocol.SASL_PLAINTEXT).sasl
    assert sasl is not None
    service = sasl.mechanisms["GSSAPI"].kerberos
    assert service is not None
    assert (service.principal, service.keytab) == ("kafka/host", "/k")
    assert service.rules.local_name("alice@REALM", "REALM") == "xalice"


def test_nodes_log_in_with_their_keytab() -> None:
    static = {"sasl.jaas.config": KEYTAB, "sasl.kerberos.service.name": "kafka"}
    sasl = read_peers(BrokerLayers(static=static), "X", SecurityProtocol.SASL_PLAINTEXT, MECHANISM).sasl
    assert sasl is not None
    assert sasl.kerberos == KerberosLogin(service_name="kafka", principal="kafka/host", keytab="/k", ticket_cache=None)


def test_connections_to_other_nodes_have_the_keys_of_their_listener() -> None:
    static = {
        MECHANISM: "SCRAM-SHA-512",
        "listener.name.inside.scram-sha-512.sasl.jaas.config": 'x required username="broker" password="secret";',
        "listener.name.inside.ssl.truststore.location": "trust.jks",
    }
    security = read_peers(BrokerLayers(static=static), "INSIDE", SecurityProtocol.SASL_SSL, MECHANISM)
    assert security.tls is not None
    assert security.tls.truststore_location == "trust.jks"
    assert security.sasl is not None
    assert security.sasl.login.options == {"username": "broker", "password": "secret"}


def test_connections_with_tokens_of_an_identity_provider() -> None:
    static = {
        MECHANISM: "OAUTHBEARER",
        "listener.name.inside.oauthbearer.sasl.jaas.config": 'x required clientId="broker" clientSecret="secret" '
        'ssl.truststore.type="PEM" ssl.truststore.location="provider.pem";',
        "listener.name.inside.oauthbearer.sasl.oauthbearer.token.endpoint.url": "https://provider/token",
        "sasl.oauthbearer.scope": "kafka",
        "sasl.login.connect.timeout.ms": "5000",
    }
    security = read_peers(BrokerLayers(static=static), "INSIDE", SecurityProtocol.SASL_PLAINTEXT, MECHANISM)
    assert security.sasl is not None
    tokens = security.sasl.tokens
    assert tokens is not None
    assert (tokens.endpoint_url, tokens.scope) == ("https://provider/token", "kafka")
    assert (tokens.client_id, tokens.client_secret) == ("broker", "secret")
    assert (tokens.connect_timeout_ms, tokens.read_timeout_ms) == (5000, None)
    assert (tokens.refresh_window_factor, tokens.refresh_buffer_s) == (0.8, 300)
    assert tokens.tls is not None
    assert (tokens.tls.truststore_type, tokens.tls.truststore_location) == ("PEM", "provider.pem")


def test_connections_with_unsigned_tokens() -> None:
    static = {MECHANISM: "OAUTHBEARER", "sasl.jaas.config": 'x required unsecuredLoginStringClaim_sub="broker";'}
    security = read_peers(BrokerLayers(static=static), "X", SecurityProtocol.SASL_PLAINTEXT, MECHANISM)
    assert security.sasl is not None
    assert security.sasl.tokens is None


@pytest.mark.parametrize(
    ("static", "expected"),
    [
        (
            {MECHANISM: "OAUTHBEARER"},
            "this node has no bearer tokens (sasl.mechanism.inter.broker.protocol): set "
            "listener.name.x.oauthbearer.sasl.oauthbearer.token.endpoint.url to https://",
        ),
        ({MECHANISM: "OAUTHBEARER", "sasl.jaas.config": "x required;"}, "this node has no bearer tokens"),
        (
            {
                MECHANISM: "OAUTHBEARER",
                "sasl.jaas.config": 'x required ssl.cipher.suites="a";',
                "sasl.oauthbearer.token.endpoint.url": "https://provider",
            },
            "the option ssl.cipher.suites is not supported",
        ),
        ({}, "this node has no credentials for GSSAPI (sasl.mechanism.inter.broker.protocol): set listener.name.x.gss"),
        ({"sasl.jaas.config": KEYTAB}, "sasl.kerberos.service.name is required with GSSAPI"),
        (
            {"sasl.jaas.config": 'a required principal="x";', "sasl.kerberos.service.name": "kafka"},
            "listener X, sasl.mechanism.inter.broker.protocol: sasl.jaas.config has neither useKeyTab=true nor",
        ),
        (
            {MECHANISM: "PLAIN"},
            "this node has no credentials for PLAIN (sasl.mechanism.inter.broker.protocol): set "
            "listener.name.x.plain.sasl.jaas.config=",
        ),
        ({MECHANISM: "PLAIN", "sasl.jaas.config": USERS}, "this node has no credentials for PLAIN"),
    ],
)
def test_a_node_without_a_login_of_its_own_is_rejected(static: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(expected)):
        read_peers(BrokerLayers(static=static), "X", SecurityProtocol.SASL_PLAINTEXT, MECHANISM)
