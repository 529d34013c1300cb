from rookery.base.distribution import version
from tests.registry.rest.memory import Rest


def test_the_root(rest: Rest) -> None:
    assert rest.get("/") == {}


def test_the_cluster(rest: Rest) -> None:
    clusters = {"kafka-cluster": "a-cluster", "schema-registry-cluster": "schema-registry"}
    assert rest.get("/v1/metadata/id") == {"scope": {"path": [], "clusters": clusters}}


def test_the_version(rest: Rest) -> None:
    assert rest.get("/v1/metadata/deployment") == {"attributes": []}
    assert rest.get("/v1/metadata/version") == {"version": version(), "commitId": ""}
