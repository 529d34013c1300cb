"""The settings of a new key, for each kind of client, derived from those of the command itself."""

from pathlib import Path
from typing import Final

from rookery.base.errors import ConfigError
from rookery.base.properties import properties_text
from rookery.cli.command_config import settings_for
from rookery.security.client_settings import ClientLogin, java_settings, librdkafka_settings
from rookery.security.keystores import PEM, pem_text, read_trusted
from rookery.security.scram_credentials import ScramMechanism

FORMATS: Final = ("java", "librdkafka", "rookery")
_TLS: Final = ("SSL", "SASL_SSL")
_SASL: Final = ("SASL_SSL", "SASL_PLAINTEXT")
_KEYS: Final = (
    "security.protocol",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
)


def key_login(user: str, password: str, mechanism: ScramMechanism, bootstrap_servers: str) -> ClientLogin:
    """Return how the new user logs in: as the command does, with the same trusted certificates."""
    own = settings_for(_KEYS)
    protocol = own.get("security.protocol", "PLAINTEXT").upper()
    trusted_file = trusted = None
    if protocol in _TLS:
        trusted_file, trusted = _trust(own)
    return ClientLogin(
        bootstrap_servers=bootstrap_servers,
        user=user,
        password=password,
        mechanism=mechanism,
        protocol="SASL_SSL" if protocol in _TLS else "SASL_PLAINTEXT",
        trusted_file=trusted_file,
        trusted=trusted,
    )


def connects_without_login() -> bool:
    """Return whether the command itself uses a listener without SASL, where the new user could not log in."""
    return settings_for(_KEYS).get("security.protocol", "PLAINTEXT").upper() not in _SASL


def settings_of(login: ClientLogin) -> dict[str, dict[str, str]]:
    """Return the settings by format. Rookery's clients have those of Java."""
    java = java_settings(login)
    return {"java": java, "librdkafka": librdkafka_settings(login), "rookery": java}


def settings_text(kind: str, settings: dict[str, str]) -> str:
    """Return settings as a file, or for Rookery as a dict in Python."""
    if kind == "java":
        return properties_text(settings)
    if kind == "librdkafka":
        return "".join(f"{key}={_one_line(key, value)}\n" for key, value in settings.items())
    return "config = {\n" + "".join(f"    {key!r}: {value!r},\n" for key, value in settings.items()) + "}\n"


def _one_line(key: str, value: str) -> str:
    if "\n" in value:
        raise ConfigError(f"{key} has several lines, which a file for librdkafka cannot have: use --json")
    return value


def _trust(own: dict[str, str]) -> tuple[str | None, str | None]:
    """Return the trusted certificates as a PEM file, or as PEM text."""
    if "ssl.truststore.certificates" in own:
        return None, own["ssl.truststore.certificates"]
    location = own.get("ssl.truststore.location")
    if location is None:
        return None, None
    kind = own.get("ssl.truststore.type", "JKS")
    if kind.upper() == PEM:
        return str(Path(location).absolute()), None
    # librdkafka reads neither JKS nor a PKCS12 file of Java.
    return None, pem_text(read_trusted(Path(location).read_bytes(), kind, own.get("ssl.truststore.password")))
