"""Brokers with TLS, logins and ACLs: their settings, the same for both systems, and those of the clients.

The certificates are made once for all systems, with keys on the curve P-256. Both systems use the protocols and ciphers
that they prefer by default. The plaintext listener stays, for the benchmark's own requests; with an authorizer its
principal is a super user.
"""

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from bench.model import Broker, Deployment
from bench.scram import MECHANISM
from rookery.base.types import TimestampMs
from rookery.security.authority import Subject, issue, make_authority

SSL, SASL_SSL, SASL_PLAINTEXT = "SSL", "SASL_SSL", "SASL_PLAINTEXT"
USER, PASSWORD = "bench", "bench-secret"
# The names of the topics that rows create begin with it.
TOPIC_PREFIX = "bench-"
ACLS = 1000
_DAYS = 30
_ITERATIONS = 4096
_TIMEOUT_S = 60.0
_POLL_S = 0.05
_AUTHORITY, _BROKER = "authority.pem", "broker.pem"
_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def _settings(has_authorizer: bool, directory: Path) -> Mapping[str, str]:
    """Return the settings of a broker, whose certificates are in `directory`."""
    if not (directory / _BROKER).exists():
        _make_certificates(directory)
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / _BROKER),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / _AUTHORITY),
        "sasl.enabled.mechanisms": MECHANISM,
    }
    for listener in (SASL_SSL, SASL_PLAINTEXT):
        settings[f"listener.name.{listener}.{MECHANISM}.sasl.jaas.config".lower()] = _JAAS
    if has_authorizer:
        settings |= {"authorizer.class.name": _AUTHORIZER, "super.users": "User:ANONYMOUS"}
    return settings


def _make_certificates(directory: Path) -> None:
    now_ms = TimestampMs(int(time.time() * 1000))
    authority = make_authority("bench", now_ms=now_ms, days=_DAYS)
    subject = Subject(name="broker", alternative_names=("localhost", "127.0.0.1"))
    broker = issue(authority, subject, now_ms=now_ms, days=_DAYS)
    (directory / _AUTHORITY).write_text(authority.certificate)
    (directory / _BROKER).write_text(broker.key + broker.certificate)


def client_settings(protocol: str, directory: Path) -> dict[str, str]:
    """Return librdkafka's settings for a listener."""
    settings = {"security.protocol": protocol}
    if protocol in (SSL, SASL_SSL):
        settings["ssl.ca.location"] = str(authority_path(directory))
    if protocol != SSL:
        settings |= {"sasl.mechanism": MECHANISM, "sasl.username": USER, "sasl.password": PASSWORD}
    return settings


def authority_path(directory: Path) -> Path:
    """Return the file of the certificate that clients trust, of a deployment whose files are in `directory`."""
    return directory / _AUTHORITY


def _admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})


def _add_user(broker: Broker) -> None:
    credential = UserScramCredentialUpsertion(
        USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS), PASSWORD.encode()
    )
    # Kept until it has the response: without a reference, the client ends.
    admin = _admin(broker)
    for done in admin.alter_user_scram_credentials([credential]).values():
        done.result()


def _add_user_and_acls(broker: Broker) -> None:
    _add_user(broker)
    admin = _admin(broker)
    for created in admin.create_acls(_acls(), request_timeout=_TIMEOUT_S).values():
        created.result()
    # Brokers may learn of them a moment later.
    deadline_s = time.monotonic() + _TIMEOUT_S
    # None matches everything; the type says otherwise.
    anything: Any = None
    everything = AclBindingFilter(
        ResourceType.ANY, anything, ResourcePatternType.ANY, anything, anything, AclOperation.ANY, AclPermissionType.ANY
    )
    while len(admin.describe_acls(everything, request_timeout=_TIMEOUT_S).result()) < ACLS:
        if time.monotonic() > deadline_s:
            raise RuntimeError("the ACLs do not appear")
        time.sleep(_POLL_S)


def _acls() -> list[AclBinding]:
    """Return the ACLs: reading and writing for our user, and as much for many others, by names and by prefixes."""
    allowed = [(f"User:{USER}", TOPIC_PREFIX, ResourcePatternType.PREFIXED)]
    for number in range(ACLS // 2 - 1):
        pattern = ResourcePatternType.PREFIXED if number % 2 else ResourcePatternType.LITERAL
        # Every fifth has a name that begins as that of our topics.
        name = f"{'' if number % 5 else TOPIC_PREFIX}team-{number}"
        allowed.append((f"User:team-{number}", name, pattern))
    return [
        AclBinding(ResourceType.TOPIC, name, pattern, principal, "*", operation, AclPermissionType.ALLOW)
        for principal, name, pattern in allowed
        for operation in (AclOperation.READ, AclOperation.WRITE)
    ]


_PROTOCOLS = (SSL, SASL_SSL, SASL_PLAINTEXT)
SECURED = Deployment(name="secured", protocols=_PROTOCOLS, settings=partial(_settings, False), prepare=_add_user)
AUTHORIZED = Deployment(
    name="authorized", protocols=_PROTOCOLS, settings=partial(_settings, True), prepare=_add_user_and_acls
)
