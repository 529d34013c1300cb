from pathlib import Path

import pytest

from rookery.base.errors import ConfigError
from rookery.registry.rest.auth import Credentials, read_credentials
from tests.registry.rest.memory import Rest

FILE = """
# comment
! comment
alice: secret,admin,developer
bob:  pass:word
"""


@pytest.fixture
def credentials_file(tmp_path: Path) -> Path:
    path = tmp_path / "credentials"
    path.write_text(FILE)
    return path


def _rest(credentials_file: Path, roles: str) -> Rest:
    return Rest(
        authentication_method="BASIC",
        authentication_realm="Nest",
        authentication_roles=roles,
        authentication_credentials_file=str(credentials_file),
    )


def test_read_credentials(credentials_file: Path) -> None:
    assert read_credentials(credentials_file) == {
        "alice": Credentials("secret", frozenset({"admin", "developer"})),
        "bob": Credentials("pass:word"),
    }


@pytest.mark.parametrize("line", ["alice", "alice:", ": secret", "alice: MD5:5ebe2294ecd0e0f08eab7690d2a6ee69"])
def test_an_invalid_line_raises(tmp_path: Path, line: str) -> None:
    path = tmp_path / "credentials"
    path.write_text(f"bob: b\n{line}\n")
    with pytest.raises(ConfigError, match="line 2"):
        read_credentials(path)


def test_users_with_a_valid_password_are_accepted(credentials_file: Path) -> None:
    rest = _rest(credentials_file, "*")
    assert rest.get("/schemas/types", auth=("alice", "secret")) == ["JSON", "PROTOBUF", "AVRO"]
    assert rest.get("/schemas/types", auth=("bob", "pass:word")) == ["JSON", "PROTOBUF", "AVRO"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Basic"},
        {"Authorization": "Basic !"},
        {"Authorization": "Basic /w=="},
        {"Authorization": "Bearer YWxpY2U6c2VjcmV0"},
        {"Authorization": "Basic YWxpY2U6d3Jvbmc="},
        {"Authorization": "Basic Og=="},
    ],
)
def test_others_are_challenged(credentials_file: Path, headers: dict[str, str]) -> None:
    rest = _rest(credentials_file, "*")
    rest.get("/schemas/types", auth=("alice", "secret"))
    answer = rest.call("GET", "/schemas/types", headers=headers)
    assert answer.status_code == 401
    assert answer.json() == {"error_code": 401, "message": "Unauthorized"}
    assert answer.headers["www-authenticate"] == 'Basic realm="Nest"'


def test_a_role_may_be_required(credentials_file: Path) -> None:
    rest = _rest(credentials_file, "admin,operator")
    assert rest.get("/", auth=("alice", "secret")) == {}
    assert rest.fail("GET", "/", auth=("bob", "pass:word")) == (403, 403, "Forbidden")


def test_the_openapi_document_has_the_security_scheme(credentials_file: Path) -> None:
    document = _rest(credentials_file, "*").get("/openapi.json", auth=("alice", "secret"))
    assert document["security"] == [{"basic": []}]
    assert "401" in document["paths"]["/subjects"]["get"]["responses"]
