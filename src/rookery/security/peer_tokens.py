"""Where a node gets the bearer tokens for its logins at other nodes, from the keys of their listener. Pure.

The keys and the options of the login module are those of Kafka's clients: an endpoint, which may be a file, or the
claims of a token without a signature.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from rookery.base.config_key import ConfigValue
from rookery.base.errors import ConfigError
from rookery.security.sasl import OAUTHBEARER
from rookery.security.settings import TlsSettings, TokenSettings

ENDPOINT_KEY: Final = "sasl.oauthbearer.token.endpoint.url"
SUBJECT_OPTION: Final = "unsecuredLoginStringClaim_sub"
_SSL: Final = "ssl."
_KNOWN_SSL: Final = frozenset(
    f"ssl.{name}"
    for name in (
        "truststore.type",
        "truststore.location",
        "truststore.password",
        "truststore.certificates",
        "keystore.type",
        "keystore.location",
        "keystore.password",
        "keystore.key",
        "keystore.certificate.chain",
        "key.password",
    )
)


class ListenerKeys(Protocol):
    def value(self, key: str, mechanism: str) -> ConfigValue:
        """Return the value of a key for a mechanism of the listener."""
        ...


def read_peer_tokens(keys: ListenerKeys, options: Mapping[str, str]) -> TokenSettings | None:
    """Return the source of tokens; None if the options have the claims of an unsigned token. Raises ConfigError."""
    url = _text(keys, ENDPOINT_KEY)
    if url is None:
        return None
    return TokenSettings(
        endpoint_url=url,
        client_id=_text(keys, "sasl.oauthbearer.client.credentials.client.id") or options.get("clientId"),
        client_secret=_text(keys, "sasl.oauthbearer.client.credentials.client.secret") or options.get("clientSecret"),
        scope=_text(keys, "sasl.oauthbearer.scope") or options.get("scope"),
        url_encode_header=False,
        connect_timeout_ms=_optional_integer(keys, "sasl.login.connect.timeout.ms"),
        read_timeout_ms=_optional_integer(keys, "sasl.login.read.timeout.ms"),
        refresh_window_factor=_number(keys, "sasl.login.refresh.window.factor"),
        refresh_buffer_s=int(_number(keys, "sasl.login.refresh.buffer.seconds")),
        retry_backoff_ms=int(_number(keys, "sasl.login.retry.backoff.ms")),
        retry_backoff_max_ms=int(_number(keys, "sasl.login.retry.backoff.max.ms")),
        tls=endpoint_tls(options) if url.startswith("https:") else None,
    )


def endpoint_tls(options: Mapping[str, str]) -> TlsSettings:
    """Return the trust in the identity provider: as in Kafka, options of the login module."""
    if unknown := [name for name in options if name.startswith(_SSL) and name not in _KNOWN_SSL]:
        raise ConfigError(f"sasl.jaas.config: the option {unknown[0]} is not supported")
    return TlsSettings(
        enabled_protocols=("TLSv1.2", "TLSv1.3"),
        verify_host_name=True,
        truststore_type=options.get("ssl.truststore.type", "JKS").upper(),
        truststore_location=options.get("ssl.truststore.location"),
        truststore_password=options.get("ssl.truststore.password"),
        truststore_certificates=options.get("ssl.truststore.certificates"),
        keystore_type=options.get("ssl.keystore.type", "JKS").upper(),
        keystore_location=options.get("ssl.keystore.location"),
        keystore_password=options.get("ssl.keystore.password"),
        keystore_key=options.get("ssl.keystore.key"),
        keystore_certificate_chain=options.get("ssl.keystore.certificate.chain"),
        key_password=options.get("ssl.key.password"),
    )


def _text(keys: ListenerKeys, key: str) -> str | None:
    value = keys.value(key, OAUTHBEARER)
    assert value is None or isinstance(value, str), key
    return value or None


def _optional_integer(keys: ListenerKeys, key: str) -> int | None:
    value = keys.value(key, OAUTHBEARER)
    assert value is None or isinstance(value, int), key
    return value


def _number(keys: ListenerKeys, key: str) -> float:
    value = keys.value(key, OAUTHBEARER)
    assert isinstance(value, (int, float)), key
    return value
