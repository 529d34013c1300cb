"""The settings that secure the nodes of a cluster, as `rookery secure init` writes them. Pure.

Clients and brokers log in with SCRAM-SHA-512 over TLS. The listener for controllers takes only the certificates of the
cluster's nodes: the users of SCRAM are in the metadata log, which the controllers must be able to read first. The
settings are valid for Apache Kafka, too.
"""

import base64
from collections.abc import Collection
from typing import Final

from rookery.base.types import NodeId
from rookery.security.client_settings import scram_jaas
from rookery.security.scram_credentials import ScramMechanism

CLIENT_LISTENER: Final = "SASL_SSL"
MECHANISM: Final = ScramMechanism.SCRAM_SHA_512
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
# The users of a new cluster: the first administrator, and the login of brokers at other brokers.
ADMIN: Final = "admin"
BROKER: Final = "broker"


def node_name(node_id: NodeId) -> str:
    """Return the common name in a node's certificate, which is also its user at the listener for controllers."""
    return f"node-{node_id}"


def super_users(node_ids: Collection[NodeId]) -> str:
    """Return `super.users`: the administrator, the brokers, and the nodes by their certificates."""
    return ";".join(f"User:{name}" for name in (ADMIN, BROKER, *map(node_name, node_ids)))


def security_settings(
    *,
    node_ids: Collection[NodeId],
    controller_listener: str,
    key_file: str,
    trusted_file: str,
    broker_password: str,
) -> dict[str, str]:
    """Return the settings of a node for encryption, logins and authorization. The files are PEM."""
    mechanism = MECHANISM.mechanism_name
    of_clients = f"listener.name.{CLIENT_LISTENER.lower()}.{mechanism.lower()}"
    of_controllers = f"listener.name.{controller_listener.lower()}"
    return {
        "listener.security.protocol.map": f"{CLIENT_LISTENER}:SASL_SSL,{controller_listener}:SSL",
        "inter.broker.listener.name": CLIENT_LISTENER,
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        f"{of_clients}.sasl.jaas.config": scram_jaas(BROKER, broker_password),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": key_file,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": trusted_file,
        f"{of_controllers}.ssl.client.auth": "required",
        f"{of_controllers}.ssl.principal.mapping.rules": "RULE:^CN=(node-[0-9]+)$/$1/,DEFAULT",
        "authorizer.class.name": AUTHORIZER,
        "super.users": super_users(node_ids),
    }


def credential_argument(user: str, salted: bytes, salt: bytes, iterations: int) -> str:
    """Return a credential as `format --add-scram` of Rookery and Apache Kafka takes it, without the password."""
    texts = (base64.b64encode(each).decode() for each in (salt, salted))
    salt_text, salted_text = texts
    return (
        f'{MECHANISM.mechanism_name}=[name="{user}",iterations={iterations},salt="{salt_text}",'
        f'saltedpassword="{salted_text}"]'
    )
