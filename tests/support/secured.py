"""Settings of secured listeners, and of clients for them, in the words of each client library."""

from collections.abc import Mapping
from typing import Any

from tests.support.certificates import PASSWORD, Certificates

PLAIN, SCRAM_256, SCRAM_512 = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"
USER, SECRET = "alice", 'a "quoted\\ word"; and=more'
_SECURITY = "org.apache.kafka.common.security"
_MODULES = {
    PLAIN: f"{_SECURITY}.plain.PlainLoginModule",
    SCRAM_256: f"{_SECURITY}.scram.ScramLoginModule",
    SCRAM_512: f"{_SECURITY}.scram.ScramLoginModule",
}


def jaas(mechanism: str, **options: str) -> str:
    """Return the text of `sasl.jaas.config`."""

    def quoted(value: str) -> str:
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    return f"{_MODULES[mechanism]} required {' '.join(f'{name}={quoted(value)}' for name, value in options.items())};"


def tls_settings(certificates: Certificates) -> dict[str, str]:
    """Return the keys of a broker's certificates: it trusts clients of the same authority."""
    return {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(certificates.broker_keystore),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
    }


def plain_settings(listener: str, users: Mapping[str, str], **own: str) -> dict[str, str]:
    """Return the keys of a listener with PLAIN; `own` are the options of the node's own login."""
    options = {**own, **{f"user_{name}": password for name, password in users.items()}}
    return {
        "sasl.enabled.mechanisms": PLAIN,
        f"listener.name.{listener.lower()}.plain.sasl.jaas.config": jaas(PLAIN, **options),
    }


def client_settings(
    protocol: str, certificates: Certificates, mechanism: str = PLAIN, user: str = USER, password: str = SECRET
) -> dict[str, str]:
    """Return the settings of our client, which are those of Java's."""
    settings = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(certificates.authority)}
    if protocol.startswith("SASL"):
        login = jaas(mechanism, username=user, password=password)
        settings |= {"sasl.mechanism": mechanism, "sasl.jaas.config": login}
    return settings


def confluent_settings(
    protocol: str, certificates: Certificates, mechanism: str = PLAIN, user: str = USER, password: str = SECRET
) -> dict[str, Any]:
    settings: dict[str, Any] = {"security.protocol": protocol, "log_level": 0}
    if protocol.endswith("SSL"):
        settings["ssl.ca.location"] = str(certificates.authority)
    if protocol.startswith("SASL"):
        settings |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    return settings


def python_settings(
    protocol: str, certificates: Certificates, mechanism: str = PLAIN, user: str = USER, password: str = SECRET
) -> dict[str, Any]:
    """Return the keyword arguments of kafka-python; aiokafka has the same, but takes a context for TLS."""
    settings: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        settings["ssl_cafile"] = str(certificates.authority)
    if protocol.startswith("SASL"):
        settings |= {"sasl_mechanism": mechanism, "sasl_plain_username": user, "sasl_plain_password": password}
    return settings
