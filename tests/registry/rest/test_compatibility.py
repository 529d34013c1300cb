from typing import Any

import msgspec

from tests.registry.rest.memory import Rest
from tests.registry.rest.samples import CUSTOMER, CUSTOMER_INCOMPATIBLE, CUSTOMER_WITH_EMAIL

PATH = "/compatibility/subjects/customers/versions"


def test_against_a_version(rest: Rest) -> None:
    rest.register("customers", CUSTOMER)
    assert rest.post(f"{PATH}/1", {"schema": CUSTOMER_WITH_EMAIL}) == {"is_compatible": True}
    assert rest.post(f"{PATH}/latest", {"schema": CUSTOMER_INCOMPATIBLE}) == {"is_compatible": False}
    assert rest.post(f"{PATH}/latest?verbose=true", {"schema": CUSTOMER}) == {"is_compatible": True, "messages": []}
    verbose = rest.post(f"{PATH}/latest?verbose=true", {"schema": CUSTOMER_INCOMPATIBLE})
    assert verbose["is_compatible"] is False
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in verbose["messages"][0]
    assert len(rest.registry.records) == 1


def test_against_all_of_them(rest: Rest) -> None:
    assert rest.post(PATH, {"schema": CUSTOMER}) == {"is_compatible": True}
    rest.register("customers", CUSTOMER)
    assert rest.post(PATH, {"schema": CUSTOMER_INCOMPATIBLE}) == {"is_compatible": False}


def test_an_invalid_schema(rest: Rest) -> None:
    rest.register("customers", CUSTOMER)
    body = {"schema": CUSTOMER}
    assert rest.fail("POST", f"{PATH}/2", body) == (404, 40402, "Version 2 not found.")
    assert rest.fail("POST", f"{PATH}/x", body)[:2] == (422, 42202)
    assert rest.fail("POST", f"{PATH}/1", {"schema": "{"})[:2] == (422, 42201)
    verbose = rest.post(f"{PATH}/1?verbose=true", {"schema": "{"})
    assert verbose["is_compatible"] is False
    assert len(verbose["messages"]) == 1


def _json(*names: str) -> dict[str, str]:
    tree = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    return {"schema": msgspec.json.encode(tree).decode(), "schemaType": "JSON"}


def test_a_policy_decides_what_is_compatible(rest: Rest) -> None:
    """The policy of the registry, of a context and of the subject, for registration as for the check."""

    def is_compatible(subject: str, body: dict[str, str]) -> Any:
        path = f"/compatibility/subjects/{subject}/versions"
        answers = [rest.post(path, body), rest.post(f"{path}/latest", body)]
        assert answers[0] == answers[1]
        return answers[0]["is_compatible"]

    for subject in ("s", "strict", ":.c:s"):
        rest.register(subject, **_json("a"))
        assert not is_compatible(subject, _json("a", "b"))
        assert rest.fail("POST", f"/subjects/{subject}/versions", _json("a", "b"))[:2] == (409, 409)
    rest.put("/config", {"compatibilityPolicy": "LENIENT"})
    rest.put("/config/strict", {"compatibilityPolicy": "STRICT"})
    assert [is_compatible(subject, _json("a", "b")) for subject in ("s", "strict", ":.c:s")] == [True, False, False]
    rest.put("/config/:.c:", {"compatibilityPolicy": "LENIENT"})
    assert is_compatible(":.c:s", _json("a", "b"))
    assert rest.register("s", **_json("a", "b")) == rest.register(":.c:s", **_json("a", "b")) == 2
    rest.put("/config", {"compatibility": "FULL"})
    assert rest.register("s", **_json("b")) == 3
    rest.put("/config", {"compatibilityPolicy": None})
    assert not is_compatible("s", _json("b", "c"))


def test_a_policy_does_not_affect_avro_and_protobuf(rest: Rest) -> None:
    rest.put("/config", {"compatibilityPolicy": "LENIENT"})
    rest.register("customers", CUSTOMER)
    assert rest.post(PATH, {"schema": CUSTOMER_INCOMPATIBLE}) == {"is_compatible": False}
    proto = 'syntax = "proto3"; message M { %s a = 1; }'
    rest.register("proto", proto % "string", schemaType="PROTOBUF")
    changed = {"schema": proto % "int32", "schemaType": "PROTOBUF"}
    assert rest.post("/compatibility/subjects/proto/versions", changed) == {"is_compatible": False}
