"""Forwarding from a node that does not lead to the leader."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.registry.rest.http_server import serve
from tests.registry.rest.memory import V1_JSON, Rest
from tests.support.certificates import PASSWORD, make_certificates

SCHEMA = '"string"'


@pytest.fixture
def leader() -> Rest:
    return Rest()


@pytest.fixture
def follower(leader: Rest) -> Iterator[Rest]:
    rest = Rest()
    rest.registry.is_leader = False
    with serve(leader.app) as rest.registry.leader_url, rest.client:
        yield rest


def test_the_leader_writes(leader: Rest, follower: Rest) -> None:
    assert follower.register("a/b".replace("/", "%2F"), SCHEMA) == 1
    assert follower.put("/config/orders", {"compatibility": "FULL"}) == {"compatibility": "FULL"}
    assert follower.put("/mode/orders?force=true", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    assert follower.delete("/mode/orders") == {"mode": "IMPORT"}
    assert follower.delete("/config/orders") == {"compatibilityLevel": "FULL"}
    assert leader.get("/subjects") == ["a/b"]
    assert follower.delete("/subjects/a%2Fb") == [1]
    assert follower.delete("/subjects/a%2Fb/versions/1?permanent=true") == 1
    assert leader.get("/subjects?deleted=true") == []
    assert follower.registry.records == []


def test_a_node_has_read_what_it_forwarded(leader: Rest, follower: Rest) -> None:
    follower.register("orders", SCHEMA)
    assert follower.registry.catch_up_count == 1
    follower.fail("DELETE", "/subjects/nothing")
    assert follower.registry.catch_up_count == 1


def test_a_context_in_the_path_is_forwarded(leader: Rest, follower: Rest) -> None:
    assert follower.post("/contexts/.sales/subjects/orders/versions", {"schema": SCHEMA}) == {"id": 1}
    assert leader.get("/subjects") == [":.sales:orders"]


def test_errors_of_the_leader_are_returned(leader: Rest, follower: Rest) -> None:
    leader.registry.state.default_level = "FULL"
    assert follower.register("orders", SCHEMA) == 1
    status, code, message = follower.fail("POST", "/subjects/orders/versions", {"schema": '"int"'})
    assert (status, code) == (409, 409)
    assert message.startswith("Schema being registered is incompatible with an earlier schema")
    refused = follower.call("DELETE", "/subjects/nothing")
    assert refused.headers["content-type"] == V1_JSON
    assert refused.json() == {"error_code": 40401, "message": "Subject 'nothing' not found."}


def test_a_registered_schema_needs_no_forwarding(leader: Rest, follower: Rest) -> None:
    follower.registry.is_leader = True
    follower.register("orders", SCHEMA)
    follower.registry.is_leader = False
    assert follower.register("orders", SCHEMA) == 1
    assert leader.registry.records == []


def test_reads_are_not_forwarded(leader: Rest, follower: Rest) -> None:
    leader.register("orders", SCHEMA)
    assert follower.get("/subjects") == []


def test_bad_requests_are_not_forwarded(follower: Rest) -> None:
    follower.registry.leader_url = None
    assert follower.fail("PUT", "/config", content="{")[:2] == (400, 400)
    assert follower.fail("PUT", "/config", headers={"Accept": "text/html"})[:2] == (406, 406)


def test_there_is_no_leader(follower: Rest) -> None:
    follower.registry.leader_url = None
    body = {"schema": SCHEMA}
    assert follower.fail("POST", "/subjects/a/versions", body) == (500, 50004, "Leader not known.")
    assert follower.fail("PUT", "/config", {}) == (500, 50004, "Failed to update compatibility level")
    assert follower.fail("DELETE", "/mode/a") == (500, 50004, "Failed to delete mode")


def test_a_forwarded_request_is_not_forwarded_again(follower: Rest) -> None:
    answer = follower.fail("POST", "/subjects/a/versions", {"schema": SCHEMA}, headers={"X-Forward": "true"})
    assert answer == (500, 50004, "Leader not known.")


def test_the_leader_is_unreachable(follower: Rest) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    follower.registry.leader_url = f"http://127.0.0.1:{port}"
    assert follower.fail("POST", "/subjects/a/versions", {"schema": SCHEMA}) == (
        500,
        50003,
        "Error while forwarding register schema request to the leader",
    )


def _echo() -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        path = scope["raw_path"].decode()
        seen = {"headers": dict(request.headers), "path": path, "body": (await request.body()).decode()}
        answer: Response = JSONResponse(seen, 418, {"X-Other": "1"})
        await answer(scope, receive, send)

    return app


def test_the_forwarded_request() -> None:
    rest = Rest(inter_instance_headers_whitelist="X-Team")
    rest.registry.is_leader = False
    sent = {
        "Content-Type": V1_JSON,
        "Accept": "application/json",
        "Authorization": "Basic eDp5",
        "X-Request-ID": "7",
        "X-Team": "crows",
        "X-Secret": "no",
        "Cookie": "no",
    }
    with serve(_echo()) as url, rest.client:
        rest.registry.leader_url = url
        answer = rest.client.put("/mode/a%2Fb?force=true", content=b'{"mode": "IMPORT"}', headers=sent)
    seen = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (418, "application/json")
    assert "x-other" not in answer.headers
    assert seen["path"] == "/mode/a%2Fb"
    assert seen["body"] == '{"mode": "IMPORT"}'
    assert seen["headers"]["x-forward"] == "true"
    for name in ("Content-Type", "Accept", "Authorization", "X-Request-ID", "X-Team"):
        assert seen["headers"][name.lower()] == sent[name]
    assert not {"x-secret", "cookie"} & set(seen["headers"])


def test_credentials_are_forwarded(tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.write_text("alice: secret\n")
    options = {"authentication_method": "BASIC", "authentication_credentials_file": str(credentials)}
    leader, follower = Rest(**options), Rest(**options)
    follower.registry.is_leader = False
    with serve(leader.app) as follower.registry.leader_url, follower.client:
        assert follower.put("/config", {"compatibility": "NONE"}, auth=("alice", "secret")) == {"compatibility": "NONE"}


def test_a_leader_with_tls_receives_a_certificate(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates.authority))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(certificates.broker)
    leader = Rest()
    follower = Rest(
        ssl_keystore_location=str(certificates.locked_broker),
        ssl_key_password=PASSWORD,
        ssl_truststore_location=str(certificates.authority),
    )
    stranger = Rest(ssl_truststore_location=str(certificates.authority))
    with serve(leader.app, context) as url:
        for rest in (follower, stranger):
            rest.registry.is_leader = False
            rest.registry.leader_url = url
        with follower.client:
            assert follower.register("orders", SCHEMA) == 1
        with stranger.client:
            assert stranger.fail("POST", "/subjects/orders/versions", {"schema": SCHEMA})[:2] == (500, 50003)
