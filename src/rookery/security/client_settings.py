"""The settings of clients that log in with SCRAM, in the dialects of Java, librdkafka and Rookery. Pure."""

from dataclasses import field
from typing import Final

from rookery.base.values import value_class
from rookery.security.jaas import jaas_text
from rookery.security.scram_credentials import ScramMechanism

SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


@value_class(kw_only=True)
class ClientLogin:
    """How a client reaches a cluster and logs in.

    `protocol` is SASL_SSL or SASL_PLAINTEXT. The trusted certificates are in the PEM file `trusted_file`, or are the
    PEM text `trusted`; without both, the client trusts those of its system.
    """

    bootstrap_servers: str
    user: str
    password: str = field(repr=False)
    mechanism: ScramMechanism
    protocol: str
    trusted_file: str | None = None
    trusted: str | None = None


def java_settings(login: ClientLogin) -> dict[str, str]:
    """Return the settings of Java's clients and tools. Rookery's clients have the same."""
    trust: dict[str, str] = {}
    if login.trusted_file is not None:
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": login.trusted_file}
    elif login.trusted is not None:
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": login.trusted}
    return {
        "bootstrap.servers": login.bootstrap_servers,
        "security.protocol": login.protocol,
        "sasl.mechanism": login.mechanism.mechanism_name,
        "sasl.jaas.config": scram_jaas(login.user, login.password),
        **trust,
    }


def librdkafka_settings(login: ClientLogin) -> dict[str, str]:
    """Return the settings of librdkafka, which confluent-kafka and kcat use."""
    trust: dict[str, str] = {}
    if login.trusted_file is not None:
        trust = {"ssl.ca.location": login.trusted_file}
    elif login.trusted is not None:
        trust = {"ssl.ca.pem": login.trusted}
    return {
        "bootstrap.servers": login.bootstrap_servers,
        "security.protocol": login.protocol,
        "sasl.mechanism": login.mechanism.mechanism_name,
        "sasl.username": login.user,
        "sasl.password": login.password,
        **trust,
    }


def scram_jaas(user: str, password: str) -> str:
    """Return the `sasl.jaas.config` of a SCRAM user."""
    return jaas_text(SCRAM_MODULE, {"username": user, "password": password})
