"""The root, for checks whether the registry is alive, and /v1/metadata, which describes the registry."""

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
    """Attributes of Confluent's cloud; always empty."""

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
        summary="An empty object; shows that the registry is alive",
        handler=_root,
        response=dict[str, str],
    ),
    Endpoint(
        method="GET",
        path="/v1/metadata/id",
        name="getClusterId",
        summary="The ids of the Kafka cluster and of the registry's group",
        handler=_cluster_id,
        response=ClusterId,
    ),
    Endpoint(
        method="GET",
        path="/v1/metadata/deployment",
        name="getSchemaRegistryDeployment",
        summary="The attributes of the deployment",
        handler=_deployment,
        response=Deployment,
    ),
    Endpoint(
        method="GET",
        path="/v1/metadata/version",
        name="getSchemaRegistryVersion",
        summary="The version of the software",
        handler=_version,
        response=ServerVersion,
    ),
)
