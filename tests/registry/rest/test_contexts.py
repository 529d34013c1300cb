from tests.registry.rest.memory import Rest
from tests.registry.rest.samples import CUSTOMER


def test_list(rest: Rest) -> None:
    rest.register(":.sales:orders", CUSTOMER)
    rest.register(":.test:orders", CUSTOMER)
    assert rest.get("/contexts") == [".", ".sales", ".test"]
    assert rest.get("/contexts?contextPrefix=.s") == [".sales"]
    assert rest.get("/contexts?offset=1&limit=1") == [".sales"]


def test_all_paths_exist_below_a_context(rest: Rest) -> None:
    path = "/contexts/.sales/subjects/orders"
    assert rest.post(f"{path}/versions", {"schema": CUSTOMER}) == {"id": 1}
    assert rest.get(f"{path}/versions/1")["subject"] == ":.sales:orders"
    assert rest.post(path, {"schema": CUSTOMER})["id"] == 1
    assert rest.get("/contexts/.sales/schemas/ids/1/versions") == [{"subject": ":.sales:orders", "version": 1}]
    assert rest.delete(path) == [1]


def test_an_invalid_name(rest: Rest) -> None:
    message = "Context name 'a:b' cannot contain a colon"
    assert rest.fail("GET", "/contexts/a:b/subjects") == (400, 400, message)
