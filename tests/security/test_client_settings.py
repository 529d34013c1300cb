"""The settings that log a client in, in each dialect."""

from hypothesis import given
from hypothesis import strategies as st

from rookery.security.client_settings import ClientLogin, java_settings, librdkafka_settings, scram_jaas
from rookery.security.jaas import parse_jaas
from rookery.security.scram_credentials import ScramMechanism


def login(**changes: str) -> ClientLogin:
    return ClientLogin(
        bootstrap_servers="kafka1:9092",
        user="alice",
        password="secret",
        mechanism=ScramMechanism.SCRAM_SHA_256,
        protocol="SASL_SSL",
        **changes,
    )


def test_the_file_of_certificates() -> None:
    java = java_settings(login(trusted_file="ca.crt"))
    assert java["ssl.truststore.location"] == "ca.crt"
    assert java["ssl.truststore.type"] == "PEM"
    assert java["sasl.mechanism"] == "SCRAM-SHA-256"
    assert parse_jaas(java["sasl.jaas.config"]).options == {"username": "alice", "password": "secret"}
    rdkafka = librdkafka_settings(login(trusted_file="ca.crt"))
    assert rdkafka == {
        "bootstrap.servers": "kafka1:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": "secret",
        "ssl.ca.location": "ca.crt",
    }


def test_certificates_as_text_and_of_the_system() -> None:
    assert java_settings(login(trusted="PEM"))["ssl.truststore.certificates"] == "PEM"
    assert librdkafka_settings(login(trusted="PEM"))["ssl.ca.pem"] == "PEM"
    assert not [key for key in java_settings(login()) | librdkafka_settings(login()) if key.startswith("ssl.")]
    assert "secret" not in repr(login())


@given(st.text(), st.text())
def test_any_user_and_password_can_be_written(user: str, password: str) -> None:
    assert parse_jaas(scram_jaas(user, password)).options == {"username": user, "password": password}
