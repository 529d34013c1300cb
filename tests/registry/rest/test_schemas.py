import pytest

from tests.registry.rest.memory import V1_JSON, Rest
from tests.registry.rest.samples import CUSTOMER, CUSTOMER_WITH_EMAIL


@pytest.fixture
def rest() -> Rest:
    rest = Rest()
    rest.register("customers", CUSTOMER)
    rest.register("customers", CUSTOMER_WITH_EMAIL)
    rest.register("clients", CUSTOMER)
    rest.register(":.sales:clients", CUSTOMER_WITH_EMAIL)
    return rest


def test_list(rest: Rest) -> None:
    def named(query: str) -> list[tuple[str, int]]:
        return [(each["subject"], each["version"]) for each in rest.get(f"/schemas{query}")]

    assert named("") == [("clients", 1), ("customers", 1), ("customers", 2)]
    assert named("?subjectPrefix=:*:") == [(":.sales:clients", 1), *named("")]
    assert named("?subjectPrefix=cu") == [("customers", 1), ("customers", 2)]
    assert named("?latestOnly=true") == [("clients", 1), ("customers", 2)]
    assert named("?offset=1&limit=1") == [("customers", 1)]
    rest.delete("/subjects/clients")
    assert named("") == [("customers", 1), ("customers", 2)]
    assert named("?deleted=true&subjectPrefix=cl") == [("clients", 1)]
    assert rest.get("/contexts/.sales/schemas") == [
        {"subject": ":.sales:clients", "version": 1, "id": 1, "schema": CUSTOMER_WITH_EMAIL}
    ]


def test_by_id(rest: Rest) -> None:
    assert rest.get("/schemas/ids/1") == {"schema": CUSTOMER}
    assert rest.get("/schemas/ids/1?fetchMaxId=true") == {"schema": CUSTOMER, "maxId": 2}
    assert rest.get("/schemas/ids/1?subject=:.sales:") == {"schema": CUSTOMER_WITH_EMAIL}
    assert rest.get("/contexts/.sales/schemas/ids/1") == {"schema": CUSTOMER_WITH_EMAIL}
    assert rest.fail("GET", "/schemas/ids/3") == (404, 40403, "Schema 3 not found")
    assert rest.fail("GET", "/schemas/ids/-1") == (404, 40403, "Schema -1 not found")


def test_the_type_is_returned_unless_it_is_avro(rest: Rest) -> None:
    number = rest.register("numbers", '{"type":"number"}', schemaType="JSON")
    assert rest.get(f"/schemas/ids/{number}") == {"schemaType": "JSON", "schema": '{"type":"number"}'}


def test_the_text_alone(rest: Rest) -> None:
    answer = rest.call("GET", "/schemas/ids/1/schema")
    assert (answer.text, answer.headers["content-type"]) == (CUSTOMER, V1_JSON)
    assert rest.fail("GET", "/schemas/ids/3/schema")[:2] == (404, 40403)


def test_subjects_and_versions_of_an_id(rest: Rest) -> None:
    assert rest.get("/schemas/ids/1/subjects") == ["clients", "customers"]
    versions = [{"subject": "clients", "version": 1}, {"subject": "customers", "version": 1}]
    assert rest.get("/schemas/ids/1/versions") == versions
    assert rest.get("/schemas/ids/1/versions?limit=1&offset=1") == versions[1:]
    # The subject only selects the context.
    assert rest.get("/schemas/ids/1/versions?subject=customers") == versions
    assert rest.get("/schemas/ids/1/subjects?subject=:.sales:clients") == [":.sales:clients"]
    rest.delete("/subjects/clients")
    assert rest.get("/schemas/ids/1/subjects") == ["customers"]
    assert rest.get("/schemas/ids/1/subjects?deleted=true") == ["clients", "customers"]
    assert rest.fail("GET", "/schemas/ids/3/subjects") == (404, 40403, "Schema not found")
    assert rest.fail("GET", "/schemas/ids/3/versions") == (404, 40403, "Schema not found")


def test_types(rest: Rest) -> None:
    assert rest.get("/schemas/types") == ["JSON", "PROTOBUF", "AVRO"]
