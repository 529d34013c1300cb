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


def test_what_cannot_be_compared(rest: Rest) -> None:
    rest.register("customers", CUSTOMER)
    body = {"schema": CUSTOMER}
    assert rest.fail("POST", f"{PATH}/2", body) == (404, 40402, "Version 2 not found.")
    assert rest.fail("POST", f"{PATH}/x", body)[:2] == (422, 42202)
    assert rest.fail("POST", f"{PATH}/1", {"schema": "{"})[:2] == (422, 42201)
    verbose = rest.post(f"{PATH}/1?verbose=true", {"schema": "{"})
    assert verbose["is_compatible"] is False
    assert len(verbose["messages"]) == 1
