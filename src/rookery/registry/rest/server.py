"""The root, which says that the registry is alive, and /v1/metadata, which says what it is."""

from typing import Final

from msgspec import Struct

from rookery.base.distribution import version
from rookery.registry.rest.endpoints import Call, Endpoint
from rookery.registry.state import State


class ClusterScope(Struct, frozen=True, kw_only=True):
    path: tuple[str, ...] = ()
    clusters: dict[str, str]


class ClusterId(Struct, frozen=True, kw_only=True):
    scope: ClusterScope


class ServerVersion(Struct, frozen=True, kw_only=True, rename="camel"):
    version: str
    commit_id: str


class Deployment(Struct, frozen=True, kw_only=True):
    """Attributes of Confluent's own clouds: there are none."""

    attributes: tuple[str, ...] = ()


def _root(_: State, __: Call) -> dict[str, str]:
    return {}


def _cluster_id(_: State, call: Call) -> ClusterId:
    clusters = {"kafka-cluster": call.registry.kafka_cluster_id, "schema-registry-cluster": call.settings.group_id}
    return ClusterId(scope=ClusterScope(clusters=clusters))


def _version(_: State, __: Call) -> ServerVersion:
    return ServerVersion(version=version(), commit_id="")


def _deployment(_: State, __: Call) -> Deployment:
    return Deployment()


ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/",
        name="get",
        summary="An empty object, if the registry is alive",
        handler=_root,
        answer=dict[str, str],
    ),
    Endpoint(
        method="GET",
        path="/v1/metadata/id",
        name="getClusterId",
        summary="Which cluster this is",
        handler=_cluster_id,
        answer=ClusterId,
    ),
    Endpoint(
        method="GET",
        path="/v1/metadata/deployment",
        name="getSchemaRegistryDeployment",
        summary="How this registry is deployed",
        handler=_deployment,
        answer=Deployment,
    ),
    Endpoint(
        method="GET",
        path="/v1/metadata/version",
        name="getSchemaRegistryVersion",
        summary="Which software this is",
        handler=_version,
        answer=ServerVersion,
    ),
)
