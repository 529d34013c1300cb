from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rookery.base.errors import ConfigError
from rookery.serdes import Compatibility, Config, Reference, RegisteredSchema, RegistryClient, Schema, SubjectVersion
from rookery.serdes.errors import InvalidSchemaError
from tests.serdes.fake_registry import FakeRegistry, Response

SCHEMA = Schema('"string"')
BODY = {"schema": '"string"'}
REGISTERED = {"subject": "s", "version": 2, "id": 7, "schema": '"string"', "guid": "unknown to us"}
Call = Callable[[RegistryClient], Any]


@pytest.mark.parametrize(
    ("call", "request_line", "body", "response", "result"),
    [
        (lambda c: c.register("s", SCHEMA), "POST /subjects/s/versions", BODY, {"id": 7}, 7),
        (
            lambda c: c.register("s", SCHEMA, normalize=True),
            "POST /subjects/s/versions?normalize=true",
            BODY,
            {"id": 7, "version": 1},
            7,
        ),
        (lambda c: c.look_up("s", SCHEMA), "POST /subjects/s", BODY, REGISTERED, RegisteredSchema("s", 2, 7, SCHEMA)),
        (
            lambda c: c.look_up("s", SCHEMA, normalize=True, deleted=True),
            "POST /subjects/s?normalize=true&deleted=true",
            BODY,
            REGISTERED,
            RegisteredSchema("s", 2, 7, SCHEMA),
        ),
        (lambda c: c.get_by_id(7), "GET /schemas/ids/7", None, BODY, SCHEMA),
        (
            lambda c: c.get_version("s"),
            "GET /subjects/s/versions/latest",
            None,
            REGISTERED,
            RegisteredSchema("s", 2, 7, SCHEMA),
        ),
        (
            lambda c: c.get_version("s", 2, deleted=True),
            "GET /subjects/s/versions/2?deleted=true",
            None,
            REGISTERED,
            RegisteredSchema("s", 2, 7, SCHEMA),
        ),
        (lambda c: c.list_subjects(), "GET /subjects", None, ["s"], ["s"]),
        (
            lambda c: c.list_subjects(prefix="s", deleted=True),
            "GET /subjects?subjectPrefix=s&deleted=true",
            None,
            [],
            [],
        ),
        (lambda c: c.list_versions("s", deleted=True), "GET /subjects/s/versions?deleted=true", None, [1, 2], [1, 2]),
        (
            lambda c: c.list_schemas(prefix="s", latest_only=True),
            "GET /schemas?subjectPrefix=s&latestOnly=true",
            None,
            [REGISTERED],
            [RegisteredSchema("s", 2, 7, SCHEMA)],
        ),
        (lambda c: c.subjects_of(7), "GET /schemas/ids/7/subjects", None, ["s"], ["s"]),
        (
            lambda c: c.versions_of(7),
            "GET /schemas/ids/7/versions",
            None,
            [{"subject": "s", "version": 2}],
            [SubjectVersion("s", 2)],
        ),
        (lambda c: c.referenced_by("s", 2), "GET /subjects/s/versions/2/referencedby", None, [8], [8]),
        (lambda c: c.list_types(), "GET /schemas/types", None, ["JSON", "AVRO"], ["JSON", "AVRO"]),
        (lambda c: c.list_contexts(), "GET /contexts", None, ["."], ["."]),
        (
            lambda c: c.test_compatibility("s", SCHEMA),
            "POST /compatibility/subjects/s/versions?verbose=true",
            BODY,
            {"is_compatible": False, "messages": ["TYPE_MISMATCH"]},
            Compatibility(False, ("TYPE_MISMATCH",)),
        ),
        (
            lambda c: c.test_compatibility("s", SCHEMA, version="latest", normalize=True),
            "POST /compatibility/subjects/s/versions/latest?normalize=true&verbose=true",
            BODY,
            {"is_compatible": True},
            Compatibility(True),
        ),
        (lambda c: c.delete_subject("s"), "DELETE /subjects/s", None, [1, 2], [1, 2]),
        (lambda c: c.delete_subject("s", permanent=True), "DELETE /subjects/s?permanent=true", None, [1], [1]),
        (lambda c: c.delete_version("s", 2), "DELETE /subjects/s/versions/2", None, 2, 2),
        (
            lambda c: c.delete_version("s", "latest", permanent=True),
            "DELETE /subjects/s/versions/latest?permanent=true",
            None,
            2,
            2,
        ),
        (lambda c: c.get_config(), "GET /config", None, {"compatibilityLevel": "FULL"}, Config("FULL")),
        (
            lambda c: c.get_config("s", default_to_global=True),
            "GET /config/s?defaultToGlobal=true",
            None,
            {"compatibilityLevel": "NONE", "normalize": True},
            Config("NONE", True),
        ),
        (
            lambda c: c.put_config("FULL", subject="s"),
            "PUT /config/s",
            {"compatibility": "FULL"},
            {"compatibility": "FULL"},
            Config("FULL"),
        ),
        (
            lambda c: c.put_config(normalize=False),
            "PUT /config",
            {"normalize": False},
            {"normalize": False},
            Config(None, False),
        ),
        (lambda c: c.delete_config("s"), "DELETE /config/s", None, {"compatibilityLevel": "FULL"}, Config("FULL")),
        (lambda c: c.get_mode(), "GET /mode", None, {"mode": "READWRITE"}, "READWRITE"),
        (
            lambda c: c.put_mode("IMPORT", subject="s", force=True),
            "PUT /mode/s?force=true",
            {"mode": "IMPORT"},
            {"mode": "IMPORT"},
            "IMPORT",
        ),
        (lambda c: c.delete_mode("s"), "DELETE /mode/s", None, {"mode": "IMPORT"}, "IMPORT"),
    ],
)
def test_every_method_is_one_request(
    server: FakeRegistry, registry: RegistryClient, call: Call, request_line: str, body: Any, response: Any, result: Any
) -> None:
    server.planned.append(Response(200, response))
    assert call(registry) == result
    (request,) = server.requests
    query = "&".join(f"{name}={value}" for name, value in request.query.items())
    assert f"{request.method} {request.path}" + (f"?{query}" if query else "") == request_line
    assert request.body == body


@pytest.mark.parametrize("subject", ["a/b", "käse", "50%", ":.context:orders-value", "a b?c=d#e", "../x"])
def test_subjects_may_contain_anything(server: FakeRegistry, registry: RegistryClient, subject: str) -> None:
    assert registry.register(subject, SCHEMA) == 1
    assert registry.get_version(subject).subject == subject


def test_references_and_types_survive_a_round_trip(registry: RegistryClient) -> None:
    schema = Schema("{}", "JSON", (Reference("a.json", "a", 3),))
    schema_id = registry.register("s", schema)
    assert registry.get_by_id(schema_id) == schema


def test_an_id_is_fetched_once(server: FakeRegistry, registry: RegistryClient) -> None:
    registry.register("s", SCHEMA)
    server.requests.clear()
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(registry.get_by_id, [1] * 40)) == {SCHEMA}
    assert len(server.requests) == 1


def test_references_are_resolved_with_dependencies_first(server: FakeRegistry, registry: RegistryClient) -> None:
    registry.register("city", Schema("city"))
    registry.register("street", Schema("street", references=(Reference("City", "city", 1),)))
    registry.register("post", Schema("post", references=(Reference("City", "city", 1),)))
    server.requests.clear()
    top = Schema("top", references=(Reference("Street", "street", 1), Reference("Post", "post", 1)))
    assert list(registry.resolve(top).items()) == [("City", "city"), ("Street", "street"), ("Post", "post")]
    assert len(server.requests) == 3


def test_cyclic_references_end(registry: RegistryClient) -> None:
    registry.register("a", Schema("a", references=(Reference("B", "b", 1),)))
    registry.register("b", Schema("b", references=(Reference("A", "a", 1),)))
    assert registry.resolve(registry.get_version("a").schema) == {"A": "a", "B": "b"}


def test_endless_references_are_rejected(server: FakeRegistry, registry: RegistryClient) -> None:
    def refer_to(number: int) -> dict[str, Any]:
        return {"name": f"name{number}", "subject": "s", "version": number}

    server.planned += [
        Response(200, {"subject": "s", "version": number, "id": number, "schema": "", "references": [refer_to(number)]})
        for number in range(1, 200)
    ]
    with pytest.raises(InvalidSchemaError, match="nested too deeply"):
        registry.resolve(Schema("top", references=(Reference("name0", "s", 0),)))


@pytest.mark.parametrize("extra", [{"schemaType": None, "references": None}, {"schemaType": "AVRO", "references": []}])
def test_absent_fields_may_be_null(server: FakeRegistry, registry: RegistryClient, extra: dict[str, Any]) -> None:
    server.planned += [
        Response(200, BODY | extra),
        Response(200, REGISTERED | extra | {"metadata": None}),
        Response(200, {"is_compatible": True, "messages": None}),
    ]
    assert registry.get_by_id(7) == SCHEMA
    assert registry.get_version("s").schema == SCHEMA
    assert registry.test_compatibility("s", SCHEMA).messages == ()


def test_the_mapping_of_other_clients(server: FakeRegistry) -> None:
    with RegistryClient({"url": server.url, "basic.auth.user.info": "me:secret"}) as client:
        client.register("s", SCHEMA)
    assert server.requests[0].user == "me:secret"
    with pytest.raises(ConfigError, match="url must be a text"):
        RegistryClient({"url": 5})
    with pytest.raises(ConfigError, match="give the url"):
        RegistryClient({"max.retries": 1})
