"""The authorizer of a node: built from its settings, and kept equal to the ACLs of the cluster's image."""

from rookery.base.config import BrokerLayers
from rookery.base.config_access import ALLOW_IF_NO_ACL, AUTHORIZER, SUPER_USERS, principals_of
from rookery.broker.permissions import Access
from rookery.metadata.image import ClusterImage, Delta
from rookery.metadata.publisher import ImageListener, MetadataPublisher
from rookery.security.authorizer import Authorizer


def build_access(layers: BrokerLayers) -> Access | None:
    """Return the authorizer that the settings ask for; None if there is none, and everything is allowed."""
    if not layers.text(AUTHORIZER):
        return None
    return Access(
        Authorizer(
            super_users=tuple(principals_of(layers.text(SUPER_USERS) or "")),
            allow_if_no_acl=layers.boolean(ALLOW_IF_NO_ACL),
        )
    )


def start_access(metadata: MetadataPublisher, layers: BrokerLayers) -> Access | None:
    """Build the authorizer that the settings ask for, and let it follow the ACLs.

    It must be the first of the listeners: a request that sees a new image is decided by the ACLs of that image.
    """
    access = build_access(layers)
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
