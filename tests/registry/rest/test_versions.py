import pytest

from tests.registry.rest.memory import V1_JSON, Rest
from tests.registry.rest.samples import (
    CUSTOMER,
    CUSTOMER_INCOMPATIBLE,
    CUSTOMER_SPACED,
    CUSTOMER_WITH_EMAIL,
    NAME,
    record,
)

INVALID_VERSION = (
    "The specified version '{}' is not a valid version id. "
    'Allowed values are between [1, 2^31-1] and the string "latest"'
)


def test_register(rest: Rest) -> None:
    assert rest.post("/subjects/customers/versions", {"schema": CUSTOMER}) == {"id": 1}
    assert rest.register("customers", CUSTOMER_SPACED) == 1
    assert rest.register("customers", CUSTOMER_WITH_EMAIL, schemaType="AVRO") == 2
    assert rest.register("others", CUSTOMER) == 1
    assert rest.get("/subjects/customers/versions") == [1, 2]


def test_register_an_incompatible_schema(rest: Rest) -> None:
    rest.register("customers", CUSTOMER)
    status, code, message = rest.fail("POST", "/subjects/customers/versions", {"schema": CUSTOMER_INCOMPATIBLE})
    assert (status, code) == (409, 409)
    assert 'incompatible with an earlier schema for subject "customers", details: ' in message
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in message


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"schema": ""},
        {"schema": "{"},
        {"schema": '"unknown"'},
        {"schema": "[" * 10_000},
        {"schema": '{"type": "array", "items":' * 2_000},
        {"schema": CUSTOMER, "schemaType": "XML"},
        {"schema": '{"type": 1}', "schemaType": "JSON"},
        {"schema": "message {", "schemaType": "PROTOBUF"},
        {"schema": CUSTOMER, "references": [{"name": "A", "subject": "nothing", "version": 1}]},
        {"schema": CUSTOMER, "references": [{"name": "A"}]},
    ],
)
def test_register_an_invalid_schema(rest: Rest, body: dict[str, object]) -> None:
    assert rest.fail("POST", "/subjects/customers/versions", body)[:2] == (422, 42201)


def test_register_under_an_invalid_name(rest: Rest) -> None:
    body = {"schema": CUSTOMER}
    too_long = "a" * 10_000
    expected = (422, 42208, f"The specified subject '{too_long}' is not a valid.")
    assert rest.fail("POST", f"/subjects/{too_long}/versions", body) == expected
    assert rest.fail("POST", "/subjects/__GLOBAL/versions", body)[:2] == (422, 42208)
    assert rest.fail("POST", "/subjects/a%07/versions", body)[:2] == (422, 42208)


def test_get(rest: Rest) -> None:
    rest.register("customers", CUSTOMER)
    rest.register("customers", CUSTOMER_WITH_EMAIL)
    first = {"subject": "customers", "version": 1, "id": 1, "schema": CUSTOMER}
    assert rest.get("/subjects/customers/versions/1") == first
    assert rest.get("/subjects/customers/versions/latest")["version"] == 2
    assert rest.get("/subjects/customers/versions/-1")["version"] == 2
    assert rest.fail("GET", "/subjects/customers/versions/3") == (404, 40402, "Version 3 not found.")
    assert rest.fail("GET", "/subjects/others/versions/1") == (404, 40401, "Subject 'others' not found.")
    assert rest.fail("GET", "/subjects/customers/versions/first") == (422, 42202, INVALID_VERSION.format("first"))
    assert rest.fail("GET", "/subjects/customers/versions/0") == (422, 42202, INVALID_VERSION.format("0"))


def test_the_text_alone(rest: Rest) -> None:
    rest.register("customers", CUSTOMER)
    rest.register("greetings", 'syntax = "proto3";\n\nmessage A {}\n', schemaType="PROTOBUF")
    answer = rest.call("GET", "/subjects/customers/versions/1/schema")
    assert (answer.text, answer.headers["content-type"]) == (CUSTOMER, V1_JSON)
    assert rest.call("GET", "/subjects/greetings/versions/latest/schema").text.startswith('syntax = "proto3";')
    assert rest.fail("GET", "/subjects/customers/versions/2/schema")[:2] == (404, 40402)


def test_delete(rest: Rest) -> None:
    rest.register("customers", CUSTOMER)
    rest.register("customers", CUSTOMER_WITH_EMAIL)
    path = "/subjects/customers/versions"
    assert rest.fail("DELETE", f"{path}/1?permanent=true")[:2] == (404, 40407)
    assert rest.delete(f"{path}/1") == 1
    assert rest.fail("DELETE", f"{path}/1")[:2] == (404, 40406)
    assert rest.get(path) == [2]
    assert rest.get(f"{path}?deleted=true") == [1, 2]
    assert rest.get(f"{path}?deletedOnly=true") == [1]
    assert sorted(rest.get(f"{path}?deletedAsNegative=true")) == [-1, 2]
    assert rest.fail("GET", f"{path}/1")[:2] == (404, 40402)
    assert rest.get(f"{path}/1?deleted=true")["id"] == 1
    assert rest.delete(f"{path}/1?permanent=true") == 1
    assert rest.get(f"{path}?deleted=true") == [2]
    assert rest.delete(f"{path}/latest") == 2
    assert rest.fail("GET", path)[:2] == (404, 40401)
    assert rest.fail("DELETE", f"{path}/x")[:2] == (422, 42202)


def test_references(rest: Rest) -> None:
    rest.register("customers", CUSTOMER)
    order = record("Order", NAME, {"name": "customer", "type": "Customer"})
    references = [{"name": "Customer", "subject": "customers", "version": 1}]
    assert rest.register("orders", order, references=references) == 2
    assert rest.get("/subjects/customers/versions/1/referencedby") == [2]
    assert rest.get("/subjects/customers/versions/1/referencedby?offset=1") == []
    assert rest.get("/subjects/orders/versions/1")["references"] == references
    message = "One or more references exist to the schema {magic=1,keytype=SCHEMA,subject=customers,version=1}."
    assert rest.fail("DELETE", "/subjects/customers/versions/1") == (422, 42206, message)
    assert rest.fail("GET", "/subjects/customers/versions/2/referencedby")[:2] == (404, 40402)
    resolved = rest.get("/subjects/orders/versions/1?format=resolved")["schema"]
    assert "faxNumber" in resolved


def test_a_deleted_schema_keeps_its_references(rest: Rest) -> None:
    rest.register("customers", CUSTOMER)
    reference = {"name": "Customer", "subject": "customers", "version": 1}
    order = record("Order", {"name": "by", "type": "Customer"})
    rest.register("orders", order, references=[reference])
    rest.delete("/subjects/orders")
    rest.delete("/subjects/customers")
    message = "One or more references exist to the schema {magic=1,keytype=SCHEMA,subject=customers,version=1}."
    for path in ("/subjects/customers", "/subjects/customers/versions/1"):
        assert rest.fail("DELETE", f"{path}?permanent=true") == (422, 42206, message)
    rest.delete("/subjects/orders?permanent=true")
    assert rest.delete("/subjects/customers?permanent=true") == [1]
