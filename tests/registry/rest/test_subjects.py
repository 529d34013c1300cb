from tests.registry.rest.memory import Rest
from tests.registry.rest.samples import CUSTOMER, CUSTOMER_INCOMPATIBLE, CUSTOMER_SPACED


def test_list(rest: Rest) -> None:
    for subject in ("b", "a", "ab", ":.sales:a"):
        rest.register(subject, CUSTOMER)
    rest.delete("/subjects/ab")
    assert rest.get("/subjects") == [":.sales:a", "a", "b"]
    assert rest.get("/subjects?deleted=true") == [":.sales:a", "a", "ab", "b"]
    assert rest.get("/subjects?deletedOnly=true") == ["ab"]
    assert rest.get("/subjects?deleted=true&deletedOnly=true") == ["ab"]
    assert rest.get("/subjects?subjectPrefix=a&deleted=true") == ["a", "ab"]
    assert rest.get("/subjects?subjectPrefix=:.sales:") == [":.sales:a"]
    assert rest.get("/subjects?offset=1&limit=1") == ["a"]
    assert rest.get("/subjects?offset=-1&limit=0") == [":.sales:a", "a", "b"]
    assert rest.get("/contexts/.sales/subjects") == [":.sales:a"]


def test_the_settings_limit_lists() -> None:
    rest = Rest(subject_search_default_limit="2", subject_search_max_limit="3")
    for subject in "abcd":
        rest.register(subject, CUSTOMER)
    assert rest.get("/subjects") == ["a", "b"]
    assert rest.get("/subjects?limit=3") == ["a", "b", "c"]
    assert rest.get("/subjects?limit=4") == ["a", "b"]


def test_look_up(rest: Rest) -> None:
    rest.register("customers", CUSTOMER)
    found = {"subject": "customers", "version": 1, "id": 1, "schema": CUSTOMER}
    assert rest.post("/subjects/customers", {"schema": CUSTOMER_SPACED}) == found
    assert rest.post("/subjects/customers?normalize=true", {"schema": CUSTOMER}) == found
    assert rest.fail("POST", "/subjects/customers", {"schema": CUSTOMER_INCOMPATIBLE}) == (
        404,
        40403,
        "Schema not found",
    )
    assert rest.fail("POST", "/subjects/others", {"schema": CUSTOMER}) == (404, 40401, "Subject 'others' not found.")
    assert rest.fail("POST", "/subjects/customers", {"schema": "{"})[:2] == (422, 42201)
    rest.delete("/subjects/customers")
    assert rest.fail("POST", "/subjects/customers", {"schema": CUSTOMER})[:2] == (404, 40401)
    assert rest.post("/subjects/customers?deleted=true", {"schema": CUSTOMER})["version"] == 1


def test_delete(rest: Rest) -> None:
    rest.put("/config", {"compatibility": "NONE"})
    rest.register("customers", CUSTOMER)
    rest.register("customers", CUSTOMER_INCOMPATIBLE)
    not_deleted = "Subject 'customers' was not deleted first before being permanently deleted"
    assert rest.fail("DELETE", "/subjects/customers?permanent=true") == (404, 40405, not_deleted)
    assert rest.delete("/subjects/customers") == [1, 2]
    deleted = "Subject 'customers' was soft deleted.Set permanent=true to delete permanently"
    assert rest.fail("DELETE", "/subjects/customers") == (404, 40404, deleted)
    assert rest.delete("/subjects/customers?permanent=true") == [1, 2]
    assert rest.fail("DELETE", "/subjects/customers") == (404, 40401, "Subject 'customers' not found.")


def test_latest_with_metadata(rest: Rest) -> None:
    rest.put("/config", {"compatibility": "NONE"})
    rest.register("customers", CUSTOMER, metadata={"properties": {"team": "crows", "harness": "test"}})
    rest.register("customers", CUSTOMER_INCOMPATIBLE, metadata={"properties": {"team": "crows"}})
    path = "/subjects/customers/metadata?key=team&value=crows"
    assert rest.get(path)["version"] == 2
    assert rest.get(f"{path}&key=harness&value=test")["version"] == 1
    assert rest.fail("GET", "/subjects/customers/metadata?key=team&value=rooks") == (404, 40403, "Schema not found")
    assert rest.fail("GET", "/subjects/others/metadata")[:2] == (404, 40401)


def test_names_with_special_characters(rest: Rest) -> None:
    names = ["a/b", "a b", "a+b", "ä%2F", "?x=1#y", "a:b", "日本"]
    for name in names:
        answer = rest.client.post(f"/subjects/{_quoted(name)}/versions", json={"schema": CUSTOMER})
        assert answer.json() == {"id": 1}
        assert rest.get(f"/subjects/{_quoted(name)}/versions/1")["subject"] == name
    assert rest.get("/subjects") == sorted(names)


def _quoted(name: str) -> str:
    return "".join(f"%{byte:02X}" for byte in name.encode())
