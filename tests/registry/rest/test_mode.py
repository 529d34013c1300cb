from tests.registry.rest.memory import Rest
from tests.registry.rest.samples import CUSTOMER

INVALID = (422, 42204, "Invalid mode. Valid values are READWRITE, READONLY, and IMPORT.")


def test_the_whole_registry(rest: Rest) -> None:
    assert rest.get("/mode") == {"mode": "READWRITE"}
    assert rest.put("/mode", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert rest.fail("POST", "/subjects/orders/versions", {"schema": CUSTOMER})[:2] == (422, 42205)
    assert rest.delete("/mode") == {"mode": "READONLY"}
    assert rest.get("/mode") == {"mode": "READWRITE"}
    assert rest.fail("PUT", "/mode", {"mode": "WRITEONLY"}) == INVALID


def test_a_subject(rest: Rest) -> None:
    message = "Subject 'orders' does not have subject-level mode configured"
    assert rest.fail("GET", "/mode/orders") == (404, 40409, message)
    assert rest.get("/mode/orders?defaultToGlobal=true") == {"mode": "READWRITE"}
    assert rest.put("/mode/orders", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert rest.get("/mode/orders") == {"mode": "READONLY"}
    assert rest.delete("/mode/orders") == {"mode": "READONLY"}
    assert rest.fail("DELETE", "/mode/orders") == (404, 40401, "Subject 'orders' not found.")
    assert rest.fail("PUT", "/mode/a%07", {"mode": "READONLY"})[:2] == (422, 42208)


def test_importing(rest: Rest) -> None:
    rest.register("orders", CUSTOMER)
    assert rest.fail("PUT", "/mode/orders", {"mode": "IMPORT"})[:2] == (422, 42205)
    assert rest.put("/mode/orders?force=true", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    rest.put("/mode/imported", {"mode": "IMPORT"})
    assert rest.register("imported", CUSTOMER, id=77, version=5) == 77
    assert rest.get("/subjects/imported/versions") == [5]
