"""From Kafka's keys of security to settings: what each protocol needs, and what is refused with which words."""

from collections.abc import Mapping
from typing import Any

import pytest

from rookery.base.errors import ConfigError
from rookery.client.settings import AdminSettings, ConsumerSettings, ProducerSettings
from rookery.security.settings import PLAINTEXT, SecuritySettings

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
def test_the_protocol_says_what_is_used(client: Any, protocol: str, has_tls: bool, has_sasl: bool) -> None:
    found = client.parse({**BOOTSTRAP, **PLAIN, "security.protocol": protocol}).common.security
    assert (found.tls is not None, found.sasl is not None) == (has_tls, has_sasl)


def test_keys_of_what_is_not_used_do_not_matter() -> None:
    assert (
        read({"sasl.mechanism": "GSSAPI", "ssl.truststore.location": "/nowhere", "ssl.keystore.type": "?"}) == PLAINTEXT
    )


def test_a_login() -> None:
    found = read(PLAIN).sasl
    assert found is not None
    assert found.mechanism == "PLAIN"
    assert found.login.options == {"username": "alice", "password": "hush"}
    assert found.tokens is None


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


def test_names_are_checked_unless_somebody_says_otherwise() -> None:
    found = read({"security.protocol": "SSL"}).tls
    assert found is not None
    assert found.verify_host_name


def test_tokens_of_the_login_module_and_of_keys_of_their_own() -> None:
    """Kafka 4.1 has keys for what stood in the module's options before."""
    before = read(TOKENS).sasl
    newer = {"client.credentials.client.id": "new", "client.credentials.client.secret": "newer", "scope": "newest"}
    after = read({**TOKENS, **{f"sasl.oauthbearer.{name}": value for name, value in newer.items()}}).sasl
    assert before is not None
    assert before.tokens is not None
    assert after is not None
    assert after.tokens is not None
    assert (before.tokens.client_id, before.tokens.client_secret, before.tokens.scope) == ("old", "older", "oldest")
    assert (after.tokens.client_id, after.tokens.client_secret, after.tokens.scope) == ("new", "newer", "newest")


def test_javas_class_for_tokens_is_accepted_since_that_is_what_happens() -> None:
    known = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
    assert read({**TOKENS, "sasl.login.callback.handler.class": known}) == read(TOKENS)
    assert "leave it out, or choose" in problem({**TOKENS, "sasl.login.callback.handler.class": "com.example.Mine"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"security.protocol": "TLS"}, "security.protocol: must be one of: plaintext, ssl"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism must be one of: PLAIN, SCRAM-SHA-256"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "AWS_MSK_IAM is missing here"),
        ({"sasl.jaas.config": None}, "sasl.jaas.config is required: org.apache.kafka.common.security.plain.Plain"),
        ({"sasl.jaas.config": "a.b.Module required"}, "sasl.jaas.config"),
        ({"sasl.jaas.config": "a.b.Module required username=x;"}, "sasl.jaas.config has no password"),
        ({"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": "M required;"}, "no username and no password"),
        (
            {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": f"{JAAS[:-1]} tokenauth=true;"},
            "tokenauth is missing here",
        ),
        ({"sasl.kerberos.service.name": "kafka"}, "Kerberos is missing here"),
        ({"security.providers": "com.example.Mine"}, "security.providers"),
        ({"security.protocol": "SSL", "ssl.truststore.type": "BKS"}, "ssl.truststore.type must be one of: JKS"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldaps"}, "must be https, or empty"),
        ({"security.protocol": "SSL", "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "OpenSSL chooses them"),
    ],
)
def test_what_is_wrong_is_named(change: Mapping[str, object], words: str) -> None:
    assert words in problem({**PLAIN, **change})


def test_all_mistakes_are_told_at_once_and_no_password() -> None:
    text = problem({**PLAIN, "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAINER", "ssl.keystore.type": "BKS"})
    assert [line.split()[0] for line in text.splitlines()] == ["ssl.keystore.type", "sasl.mechanism"]
    assert "hush" not in text


def test_settings_do_not_show_secrets() -> None:
    secrets = {"ssl.truststore.password": "hush", "ssl.keystore.password": "hush", "ssl.key.password": "hush"}
    found = read({**PLAIN, **secrets, "security.protocol": "SASL_SSL"})
    assert "hush" not in repr(found)
    assert "older" not in repr(read(TOKENS))
