"""The authorizer of a node: built from its settings, and kept equal to the ACLs of the cluster's image."""

from typing import NamedTuple

from rookery.base.config import BrokerLayers
from rookery.base.config_access import ALLOW_IF_NO_ACL, AUDIT_SINK, AUDIT_TOPIC, AUTHORIZER, SUPER_USERS, principals_of
from rookery.broker.permissions import Access, DecisionLog
from rookery.metadata.image import ClusterImage, Delta
from rookery.metadata.publisher import ImageListener, MetadataPublisher
from rookery.node.audit import AuditLog
from rookery.security.authorizer import Authorizer


class NodeAccess(NamedTuple):
    """What a node asks for permission, and what it tells about it."""

    access: Access | None
    audit: AuditLog


def build_access(layers: BrokerLayers, log: DecisionLog | None = None) -> Access | None:
    """Return the authorizer that the settings ask for; None if there is none, and everything is allowed.

    `log` learns of its decisions.
    """
    if not layers.text(AUTHORIZER):
        return None
    return Access(
        Authorizer(
            super_users=tuple(principals_of(layers.text(SUPER_USERS) or "")),
            allow_if_no_acl=layers.boolean(ALLOW_IF_NO_ACL),
            reserved_topics=(layers.text(AUDIT_TOPIC) or "",) if layers.text(AUDIT_SINK) == "topic" else (),
        ),
        log,
    )


def start_access(metadata: MetadataPublisher, layers: BrokerLayers, log: DecisionLog | None = None) -> Access | None:
    """Build the authorizer that the settings ask for, and let it follow the ACLs.

    It must be the first of the listeners: a request that sees a new image is decided by the ACLs of that image.
    """
    access = build_access(layers, log)
    if access is not None:
        metadata.add(follow_acls(access))
    return access


def follow_acls(access: Access) -> ImageListener:
    """Return the listener that gives every change of the ACLs to the authorizer.

    The first image is the one that was loaded at the start: before it, only super users are allowed.
    """
    authorizer = access.authorizer

    def apply(image: ClusterImage, delta: Delta) -> None:
        if not authorizer.is_loaded:
            authorizer.load(image.acls)
        elif delta.acls:
            authorizer.change({acl_id: image.acls.get(acl_id) for acl_id in delta.acls})

    return ImageListener("authorizer", apply)
