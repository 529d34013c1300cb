from tests.registry.rest.memory import Rest
from tests.registry.rest.samples import CUSTOMER

INVALID = (
    "Invalid compatibility level. Valid values are none, backward, forward, full, "
    "backward_transitive, forward_transitive, and full_transitive"
)


def test_the_whole_registry(rest: Rest) -> None:
    assert rest.get("/config") == {"compatibilityLevel": "BACKWARD"}
    assert rest.put("/config", {"compatibility": "FULL"}) == {"compatibility": "FULL"}
    assert rest.get("/config") == {"compatibilityLevel": "FULL"}
    assert rest.delete("/config") == {"compatibilityLevel": "FULL"}
    assert rest.get("/config?defaultToGlobal=true") == {"compatibilityLevel": "BACKWARD"}
    assert rest.fail("PUT", "/config", {"compatibility": "MOSTLY"}) == (422, 42203, INVALID)


def test_a_subject(rest: Rest) -> None:
    message = "Subject 'orders' does not have subject-level compatibility configured"
    assert rest.fail("GET", "/config/orders") == (404, 40408, message)
    assert rest.get("/config/orders?defaultToGlobal=true") == {"compatibilityLevel": "BACKWARD"}
    assert rest.put("/config/orders", {"compatibility": "none"}) == {"compatibility": "NONE"}
    assert rest.get("/config/orders") == {"compatibilityLevel": "NONE"}
    assert rest.fail("PUT", "/config/orders", {"compatibility": ""}) == (422, 42203, INVALID)
    assert rest.delete("/config/orders") == {"compatibilityLevel": "NONE"}
    assert rest.fail("DELETE", "/config/orders") == (404, 40401, "Subject 'orders' not found.")
    assert rest.fail("PUT", "/config/a%07", {"compatibility": "NONE"})[:2] == (422, 42208)


def test_a_policy(rest: Rest) -> None:
    assert rest.put("/config", {"compatibilityPolicy": "lenient"}) == {"compatibilityPolicy": "LENIENT"}
    assert rest.get("/config") == {"compatibilityLevel": "BACKWARD", "compatibilityPolicy": "LENIENT"}
    assert rest.get("/config/orders?defaultToGlobal=true")["compatibilityPolicy"] == "LENIENT"
    message = "Invalid compatibility policy 'LOGICAL'. Valid values are strict and lenient"
    assert rest.fail("PUT", "/config/orders", {"compatibilityPolicy": "LOGICAL"}) == (422, 42203, message)
    assert rest.put("/config", {"compatibilityPolicy": None}) == {}
    assert rest.get("/config") == {"compatibilityLevel": "BACKWARD"}


def test_a_context(rest: Rest) -> None:
    rest.put("/contexts/.sales/config", {"compatibility": "NONE"})
    assert rest.get("/config/:.sales:") == {"compatibilityLevel": "NONE"}
    assert rest.get("/contexts/.sales/config/orders?defaultToGlobal=true") == {"compatibilityLevel": "NONE"}


def test_other_settings(rest: Rest) -> None:
    asked: dict[str, object] = {
        "normalize": True,
        "compatibilityGroup": "major",
        "defaultMetadata": {"properties": {"team": "crows"}},
    }
    assert rest.put("/config/orders", asked) == asked
    assert rest.get("/config/orders") == {**asked, "compatibilityLevel": "BACKWARD"}
    changed = {name: asked[name] for name in ("normalize", "defaultMetadata")}
    assert rest.put("/config/orders", {"compatibilityGroup": None}) == changed


def test_an_alias(rest: Rest) -> None:
    rest.register("orders", CUSTOMER)
    rest.put("/config/bestellungen", {"alias": "orders"})
    assert rest.get("/subjects/bestellungen/versions/1")["subject"] == "orders"
