"""Security keys to settings: what each protocol requires, and the errors of invalid keys."""

from collections.abc import Mapping
from typing import Any

import pytest

from rookery.base.errors import ConfigError
from rookery.client.settings import AdminSettings, ConsumerSettings, ProducerSettings
from rookery.security.settings import PLAINTEXT, KerberosLogin, SecuritySettings

KERBEROS = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "GSSAPI",
    "sasl.kerberos.service.name": "kafka",
}
BOOTSTRAP = {"bootstrap.servers": "localhost:9092"}
JAAS = 'a.b.PlainLoginModule required username="alice" password="hush";'
PLAIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS}
TOKENS = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": 'a.b.OAuthBearerLoginModule required clientId="old" clientSecret="older" scope="oldest";',
    "sasl.oauthbearer.token.endpoint.url": "https://login/token",
}


def read(config: Mapping[str, object]) -> SecuritySettings:
    return AdminSettings.parse({**BOOTSTRAP, **config}).common.security


def problem(config: Mapping[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        read(config)
    return str(caught.value)


@pytest.mark.parametrize("client", [AdminSettings, ConsumerSettings, ProducerSettings])
@pytest.mark.parametrize(
    ("protocol", "has_tls", "has_sasl"),
    [
        ("plaintext", False, False),
        ("PLAINTEXT", False, False),
        ("SSL", True, False),
        ("Sasl_Plaintext", False, True),
        ("SASL_SSL", True, True),
    ],
)
def test_the_protocol_determines_what_is_used(client: Any, protocol: str, has_tls: bool, has_sasl: bool) -> None:
    found = client.parse({**BOOTSTRAP, **PLAIN, "security.protocol": protocol}).common.security
    assert (found.tls is not None, found.sasl is not None) == (has_tls, has_sasl)


def test_keys_of_unused_features_are_ignored() -> None:
    assert (
        read({"sasl.mechanism": "GSSAPI", "ssl.truststore.location": "/nowhere", "ssl.keystore.type": "?"}) == PLAINTEXT
    )


def test_a_login() -> None:
    found = read(PLAIN).sasl
    assert found is not None
    assert found.mechanism == "PLAIN"
    assert found.login.options == {"username": "alice", "password": "hush"}
    assert found.tokens is None


@pytest.mark.parametrize(
    ("jaas", "expected"),
    [
        (None, KerberosLogin(service_name="kafka", principal=None, keytab=None, ticket_cache=None)),
        (
            'useTicketCache=true ticketCache="/t"',
            KerberosLogin(service_name="kafka", principal=None, keytab=None, ticket_cache="/t"),
        ),
        (
            'useKeyTab=true keyTab="/k" principal="alice@R" useTicketCache=true ticketCache="/t" serviceName="kafka"',
            KerberosLogin(service_name="kafka", principal="alice@R", keytab="/k", ticket_cache=None),
        ),
    ],
)
def test_kerberos(jaas: str | None, expected: KerberosLogin) -> None:
    config = {**KERBEROS} if jaas is None else {**KERBEROS, "sasl.jaas.config": f"a.Krb5LoginModule required {jaas};"}
    found = read(config).sasl
    assert found is not None
    assert found.kerberos == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sasl.kerberos.service.name": None}, "sasl.kerberos.service.name is required with GSSAPI"),
        ({"sasl.jaas.config": "a required x=y;"}, "neither useKeyTab=true nor useTicketCache=true"),
        ({"sasl.jaas.config": 'a required useKeyTab=true keyTab="/k";'}, "useKeyTab=true, but no principal"),
        ({"sasl.jaas.config": "a required useKeyTab=true;"}, "useKeyTab=true, but no keyTab and no principal"),
        (
            {"sasl.jaas.config": 'a required useTicketCache=true serviceName="other";'},
            "sasl.kerberos.service.name is kafka, but serviceName in sasl.jaas.config is other",
        ),
    ],
)
def test_mistakes_with_kerberos(changes: Mapping[str, object], expected: str) -> None:
    assert expected in problem({**KERBEROS, **changes})


def test_tls() -> None:
    found = read(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "pem",
            "ssl.truststore.location": "ca.pem",
            "ssl.keystore.location": "me.p12",
            "ssl.keystore.password": "hush",
            "ssl.endpoint.identification.algorithm": "",
            "ssl.enabled.protocols": ["TLSv1.3"],
        }
    ).tls
    assert found is not None
    assert (found.truststore_type, found.truststore_location) == ("PEM", "ca.pem")
    assert (found.keystore_type, found.keystore_location, found.keystore_password) == ("JKS", "me.p12", "hush")
    assert (found.verify_host_name, found.enabled_protocols) == (False, ("TLSv1.3",))


def test_host_names_are_verified_by_default() -> None:
    found = read({"security.protocol": "SSL"}).tls
    assert found is not None
    assert found.verify_host_name


def test_credentials_in_the_login_module_and_in_keys() -> None:
    """Kafka 4.1 has keys for the earlier options of the login module."""
    before = read(TOKENS).sasl
    newer = {"client.credentials.client.id": "new", "client.credentials.client.secret": "newer", "scope": "newest"}
    after = read({**TOKENS, **{f"sasl.oauthbearer.{name}": value for name, value in newer.items()}}).sasl
    assert before is not None
    assert before.tokens is not None
    assert after is not None
    assert after.tokens is not None
    assert (before.tokens.client_id, before.tokens.client_secret, before.tokens.scope) == ("old", "older", "oldest")
    assert (after.tokens.client_id, after.tokens.client_secret, after.tokens.scope) == ("new", "newer", "newest")


def test_javas_default_token_class_is_accepted() -> None:
    known = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
    assert read({**TOKENS, "sasl.login.callback.handler.class": known}) == read(TOKENS)
    assert "omit it, or set" in problem({**TOKENS, "sasl.login.callback.handler.class": "com.example.Mine"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"security.protocol": "TLS"}, "security.protocol: must be one of: plaintext, ssl"),
        ({"sasl.mechanism": "NTLM"}, "sasl.mechanism must be one of: PLAIN, SCRAM-SHA-256"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "AWS_MSK_IAM is not supported"),
        ({"sasl.jaas.config": None}, "sasl.jaas.config is required: org.apache.kafka.common.security.plain.Plain"),
        ({"sasl.jaas.config": "a.b.Module required"}, "sasl.jaas.config"),
        ({"sasl.jaas.config": "a.b.Module required username=x;"}, "sasl.jaas.config has no password"),
        ({"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": "M required;"}, "no username and no password"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{JAAS[:-1]} tokenauth=true;"},
            "tokenauth needs SCRAM: set sasl.mechanism to SCRAM-SHA-256",
        ),
        ({"security.providers": "com.example.Mine"}, "security.providers"),
        ({"security.protocol": "SSL", "ssl.truststore.type": "BKS"}, "ssl.truststore.type must be one of: JKS"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldaps"}, "must be https, or empty"),
        ({"security.protocol": "SSL", "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "OpenSSL chooses them"),
    ],
)
def test_errors_name_the_mistake(change: Mapping[str, object], words: str) -> None:
    assert words in problem({**PLAIN, **change})


def test_one_error_lists_all_mistakes_and_no_password() -> None:
    text = problem({**PLAIN, "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAINER", "ssl.keystore.type": "BKS"})
    assert [line.split()[0] for line in text.splitlines()] == ["ssl.keystore.type", "sasl.mechanism"]
    assert "hush" not in text


def test_settings_do_not_show_secrets() -> None:
    secrets = {"ssl.truststore.password": "hush", "ssl.keystore.password": "hush", "ssl.key.password": "hush"}
    found = read({**PLAIN, **secrets, "security.protocol": "SASL_SSL"})
    assert "hush" not in repr(found)
    assert "older" not in repr(read(TOKENS))
