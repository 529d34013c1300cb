"""Roles on subjects: the table of endpoints, what is denied, and what is left out."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rookery.registry.rest.access import ACCESS, Target
from rookery.registry.rest.app import ENDPOINTS
from rookery.registry.roles import Role
from tests.registry.rest.memory import Rest
from tests.registry.rest.samples import EMAIL_NEEDED, NAME, record

RULES = (
    "User:reader=read:orders-*;User:writer=write:orders-*;User:owner=admin:orders-*;"
    "User:tester=admin::.test:*;User:root=admin:*"
)
ORDERS, SECRETS = record("Order", NAME), record("Secret", EMAIL_NEEDED)
USERS = ("reader", "writer", "owner", "tester", "root", "stranger")


def auth(user: str) -> dict[str, Any]:
    return {"auth": (user, "secret")}


def make(tmp_path: Path, **changes: str) -> Rest:
    credentials = tmp_path / "credentials"
    credentials.write_text("".join(f"{user}: secret\n" for user in (*USERS, "boss")))
    return Rest(
        **{
            "authentication_method": "BASIC",
            "authentication_credentials_file": str(credentials),
            "authorization_rules": RULES,
            "super_users": "User:boss",
            **changes,
        }
    )


def register(rest: Rest, subject: str, schema: str, user: str = "root", **fields: Any) -> int:
    registered: dict[str, int] = rest.post(f"/subjects/{subject}/versions", {"schema": schema, **fields}, **auth(user))
    return registered["id"]


@pytest.fixture
def rest(tmp_path: Path) -> Rest:
    made = make(tmp_path)
    assert register(made, "orders-value", ORDERS) == 1
    assert register(made, "secrets-value", SECRETS) == 2
    return made


def test_every_endpoint_has_a_row_and_every_row_an_endpoint() -> None:
    names = [endpoint.name for endpoint in ENDPOINTS]
    assert sorted(names) == sorted(ACCESS)
    assert len(set(names)) == len(names)


def test_rows_fit_their_endpoints() -> None:
    for endpoint in ENDPOINTS:
        role, target = ACCESS[endpoint.name]
        if endpoint.write is not None:
            assert role >= Role.WRITE, endpoint.name
            assert target in (Target.SUBJECT, Target.SETTING), endpoint.name
        if "{subject}" in endpoint.path:
            assert target in (Target.SUBJECT, Target.SETTING), endpoint.name
        if "{id}" in endpoint.path:
            assert target is Target.SCHEMA_ID, endpoint.name


ORDER = "/subjects/orders-value"
BODY = {"schema": ORDERS}
# What the request is, and which of reader, writer and owner may; the others of USERS but root may not.
REQUESTS = [
    ("GET", f"{ORDER}/versions", None, "rwo"),
    ("GET", f"{ORDER}/versions/1", None, "rwo"),
    ("GET", f"{ORDER}/versions/1/schema", None, "rwo"),
    ("GET", f"{ORDER}/versions/1/referencedby", None, "rwo"),
    ("POST", ORDER, BODY, "rwo"),
    ("GET", "/config/orders-value?defaultToGlobal=true", None, "rwo"),
    ("GET", "/mode/orders-value?defaultToGlobal=true", None, "rwo"),
    ("GET", "/schemas/ids/1", None, "rwo"),
    ("GET", "/schemas/ids/1/schema", None, "rwo"),
    ("GET", "/schemas/ids/1/subjects", None, "rwo"),
    ("GET", "/schemas/ids/1/versions", None, "rwo"),
    ("GET", "/schemas/ids/1?subject=orders-value", None, "rwo"),
    ("POST", f"{ORDER}/versions", BODY, "wo"),
    ("POST", f"/compatibility{ORDER}/versions", BODY, "wo"),
    ("POST", f"/compatibility{ORDER}/versions/latest", BODY, "wo"),
    ("PUT", "/config/orders-value", {"compatibility": "FULL"}, "o"),
    ("DELETE", "/config/orders-value", None, "o"),
    ("PUT", "/mode/orders-value", {"mode": "READWRITE"}, "o"),
    ("DELETE", "/mode/orders-value", None, "o"),
    ("DELETE", f"{ORDER}/versions/1", None, "o"),
    ("DELETE", ORDER, None, "o"),
    ("PUT", "/config", {"compatibility": "FULL"}, ""),
    ("PUT", "/config/:.:", {"compatibility": "FULL"}, ""),
    ("PUT", "/config/:.__GLOBAL:", {"compatibility": "FULL"}, ""),
    ("DELETE", "/config", None, ""),
    ("PUT", "/mode", {"mode": "READWRITE"}, ""),
    ("DELETE", "/mode", None, ""),
]


@pytest.mark.parametrize(("method", "path", "body", "allowed"), REQUESTS)
def test_roles_of_requests(tmp_path: Path, method: str, path: str, body: Any, allowed: str) -> None:
    for user in USERS:
        rest = make(tmp_path)
        register(rest, "orders-value", ORDERS)
        rest.put("/config/orders-value", {"compatibility": "BACKWARD"}, **auth("root"))
        rest.put("/mode/orders-value", {"mode": "READWRITE"}, **auth("root"))
        response = rest.call(method, path, body, **auth(user))
        if user == "root" or user[0] in allowed:
            assert response.status_code == 200, (user, response.text)
        else:
            assert (response.status_code, response.json()["error_code"]) == (403, 40301), (user, response.text)


@pytest.mark.parametrize("path", ["/", "/schemas/types", "/config", "/mode", "/v1/metadata/id", "/openapi.json"])
def test_what_every_user_may_read(rest: Rest, path: str) -> None:
    rest.get(path, **auth("stranger"))


def test_the_error_says_which_role_is_missing(rest: Rest) -> None:
    _, _, message = rest.fail("POST", "/subjects/orders-value/versions", BODY, **auth("reader"))
    assert message == (
        "User is denied operation Write on Subject: orders-value. User:reader needs the role write there, as by "
        "authorization.rules: User:reader=write:orders-value"
    )
    _, _, message = rest.fail("DELETE", "/config", **auth("owner"))
    assert "on the whole registry. User:owner needs the role admin there" in message
    assert message.endswith("User:owner=admin:*")


def test_a_super_user_may_do_everything(rest: Rest) -> None:
    rest.put("/config", {"compatibility": "FULL"}, **auth("boss"))
    rest.delete("/subjects/secrets-value", **auth("boss"))


def test_lists_leave_out_what_is_not_readable(rest: Rest) -> None:
    register(rest, ":.test:things", ORDERS)
    assert rest.get("/subjects", **auth("reader")) == ["orders-value"]
    assert rest.get("/subjects?offset=0&limit=1", **auth("tester")) == [":.test:things"]
    assert rest.get("/subjects", **auth("stranger")) == []
    assert rest.get("/subjects", **auth("root")) == [":.test:things", "orders-value", "secrets-value"]
    assert [each["subject"] for each in rest.get("/schemas", **auth("reader"))] == ["orders-value"]
    assert rest.get("/contexts", **auth("reader")) == ["."]
    assert rest.get("/contexts", **auth("tester")) == [".", ".test"]


def test_ids_are_readable_through_any_subject(rest: Rest) -> None:
    assert register(rest, "secrets-copy", ORDERS) == 1
    assert rest.get("/schemas/ids/1/subjects", **auth("root")) == ["orders-value", "secrets-copy"]
    assert rest.get("/schemas/ids/1/subjects", **auth("reader")) == ["orders-value"]
    assert json.loads(rest.get("/schemas/ids/1", **auth("reader"))["schema"])["name"] == "Order"
    status, code, message = rest.fail("GET", "/schemas/ids/2", **auth("reader"))
    assert (status, code) == (403, 40301)
    assert "secrets" not in message
    assert rest.fail("GET", "/schemas/ids/2?subject=secrets-value", **auth("reader"))[0] == 403
    assert rest.fail("GET", "/schemas/ids/9", **auth("reader"))[:2] == (404, 40403)


def test_responses_in_the_cache_belong_to_a_user(rest: Rest) -> None:
    for _ in range(2):
        assert rest.get("/subjects", **auth("root")) == ["orders-value", "secrets-value"]
        assert rest.get("/subjects", **auth("reader")) == ["orders-value"]


def test_a_subject_of_another_context_is_not_found_by_its_bare_name(rest: Rest) -> None:
    """A name of the default context is also looked up in the others."""
    register(rest, ":.test:orders-hidden", SECRETS)
    assert rest.get("/subjects/orders-hidden/versions/1", **auth("root"))["subject"] == ":.test:orders-hidden"
    assert rest.fail("GET", "/subjects/orders-hidden/versions/1", **auth("reader"))[:2] == (404, 40401)
    assert rest.fail("POST", "/subjects/orders-hidden", {"schema": SECRETS}, **auth("reader"))[:2] == (404, 40401)
    assert rest.fail("GET", "/schemas/ids/1?subject=orders-hidden", **auth("stranger"))[0] == 403


def test_an_alias_needs_the_role_on_its_target(rest: Rest) -> None:
    rest.put("/config/orders-alias", {"alias": "secrets-value"}, **auth("owner"))
    assert rest.get("/subjects/orders-alias/versions/1", **auth("root"))["subject"] == "secrets-value"
    assert rest.fail("GET", "/subjects/orders-alias/versions/1", **auth("owner"))[0] == 403
    assert rest.fail("POST", "/subjects/orders-alias/versions", BODY, **auth("owner"))[0] == 403
    listed = rest.get("/schemas?subjectPrefix=orders&aliases=true", **auth("owner"))
    assert [each["subject"] for each in listed] == ["orders-value"]


def test_references_must_be_readable(rest: Rest) -> None:
    """A schema can be returned with all that it refers to."""
    fields = [{"name": "secret", "type": "Secret"}]
    using = {
        "schema": json.dumps({"type": "record", "name": "Using", "fields": fields}),
        "references": [{"name": "Secret", "subject": "secrets-value", "version": 1}],
    }
    _, code, message = rest.fail("POST", "/subjects/orders-using/versions", using, **auth("writer"))
    assert code == 40301
    assert "operation Read on Subject: secrets-value" in message
    assert rest.fail("POST", "/compatibility/subjects/orders-using/versions", using, **auth("writer"))[1] == 40301
    assert rest.post("/subjects/orders-using/versions", using, **auth("root"))["id"] == 3
    assert rest.get("/subjects/secrets-value/versions/1/referencedby", **auth("root")) == [3]
    rest.put("/config/secrets-value", {"compatibility": "FULL"}, **auth("root"))
    assert json.loads(rest.get("/schemas/ids/3?format=resolved", **auth("reader"))["schema"])["name"] == "Using"


def test_referrers_that_are_not_readable_are_left_out(rest: Rest) -> None:
    fields = [{"name": "order", "type": "Order"}]
    using = {
        "schema": json.dumps({"type": "record", "name": "Using", "fields": fields}),
        "references": [{"name": "Order", "subject": "orders-value", "version": 1}],
    }
    rest.post("/subjects/secrets-using/versions", using, **auth("root"))
    path = "/subjects/orders-value/versions/1/referencedby"
    assert rest.get(path, **auth("root")) == [3]
    assert rest.get(path, **auth("reader")) == []
    # It cannot be deleted all the same.
    assert rest.fail("DELETE", "/subjects/orders-value", **auth("owner"))[:2] == (422, 42206)


def test_an_import_needs_the_role_admin(rest: Rest) -> None:
    rest.put("/mode/orders-new", {"mode": "IMPORT"}, **auth("owner"))
    body = {"schema": SECRETS, "id": 77, "version": 1}
    _, _, message = rest.fail("POST", "/subjects/orders-new/versions", body, **auth("writer"))
    assert "needs the role admin" in message
    assert rest.post("/subjects/orders-new/versions", body, **auth("owner"))["id"] == 77


def test_a_context_in_the_path_is_part_of_the_subject(rest: Rest) -> None:
    rest.post("/contexts/.test/subjects/things/versions", BODY, **auth("tester"))
    assert rest.fail("POST", "/contexts/.other/subjects/things/versions", BODY, **auth("tester"))[0] == 403
    rest.put("/contexts/.test/config", {"compatibility": "FULL"}, **auth("tester"))
    assert rest.fail("PUT", "/contexts/.other/config", {"compatibility": "FULL"}, **auth("tester"))[0] == 403


def test_changed_rules_apply_to_cached_responses(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("User:stranger=read:*\n")
    rest = make(tmp_path, authorization_rules_file=str(rules))
    register(rest, "orders-value", ORDERS)
    assert rest.get("/subjects", **auth("stranger")) == ["orders-value"]
    rules.write_text("# none\n")
    os.utime(rules, ns=(1, 1))
    assert rest.get("/subjects", **auth("stranger")) == []


def test_a_follower_does_not_reveal_what_is_registered(rest: Rest) -> None:
    """Before it forwards a registration, a node checks in its own state whether there is anything to write."""
    rest.registry.is_leader = False
    status, code, _ = rest.fail("POST", "/subjects/secrets-value/versions", {"schema": SECRETS}, **auth("reader"))
    assert (status, code) == (500, 50004)
