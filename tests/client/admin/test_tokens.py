"""Delegation tokens of users that have logged in, and logins with them, against a running broker."""

import base64

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.client.admin import NewTopic, Principal
from rookery.client.errors import AuthenticationError
from rookery.client.sync import Admin
from rookery.testing import EmbeddedBroker
from tests.support.secured import PLAIN, SCRAM_256, SCRAM_512, jaas, plain_settings

LISTENER = "SASL_PLAINTEXT"
USERS = {"alice": "secret-a", "bob": "secret-b", "carol": "secret-c"}


def login(user: str) -> dict[str, str]:
    text = jaas(PLAIN, username=user, password=USERS[user])
    return {"security.protocol": LISTENER, "sasl.mechanism": PLAIN, "sasl.jaas.config": text}


def test_a_token_from_its_creation_to_its_end() -> None:
    settings = {**plain_settings(LISTENER, USERS), "delegation.token.secret.key": "a secret of the cluster"}
    with EmbeddedBroker(settings=settings, security_protocol=LISTENER, client_settings=login("alice")) as broker:

        def connected(user: str) -> Admin:
            return Admin({"bootstrap.servers": broker.bootstrap_servers, **login(user)})

        with connected("alice") as alice, connected("bob") as bob, connected("carol") as carol:
            issued = alice.create_delegation_token(renewers=[Principal("User", "carol")], max_lifetime_ms=3_600_000)
            assert (issued.token.owner, issued.token.requester) == (Principal("User", "alice"),) * 2
            assert issued.token.max_ms - issued.token.issue_ms == 3_600_000
            assert alice.describe_delegation_tokens() == [issued]
            assert alice.describe_delegation_tokens([Principal("User", "bob")]) == []
            renewed_ms = carol.renew_delegation_token(issued.hmac, period_ms=60_000)
            assert renewed_ms < issued.token.expiry_ms
            (described,) = carol.describe_delegation_tokens()
            assert described.token.expiry_ms == renewed_ms
            for call in (bob.renew_delegation_token, bob.expire_delegation_token):
                with pytest.raises(ApiError) as caught:
                    call(issued.hmac)
                assert caught.value.code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
            alice.expire_delegation_token(issued.hmac)
            assert alice.describe_delegation_tokens() == []
            with pytest.raises(ApiError) as caught:
                alice.expire_delegation_token(issued.hmac)
            assert caught.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


@pytest.mark.parametrize("mechanism", [SCRAM_256, SCRAM_512])
def test_a_login_with_a_token(mechanism: str) -> None:
    settings = {
        **plain_settings(LISTENER, USERS),
        "sasl.enabled.mechanisms": f"{PLAIN},{mechanism}",
        "delegation.token.secret.key": "a secret of the cluster",
    }
    with EmbeddedBroker(settings=settings, security_protocol=LISTENER, client_settings=login("alice")) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        with Admin({**servers, **login("alice")}) as alice:
            issued = alice.create_delegation_token()
            hmac = base64.b64encode(issued.hmac).decode()

            def by_token(password: str = hmac) -> Admin:
                text = jaas(mechanism, username=issued.token.token_id, password=password, tokenauth="true")
                return Admin({**servers, **login("alice"), "sasl.mechanism": mechanism, "sasl.jaas.config": text})

            with by_token() as job:
                job.create_topics([NewTopic("made-by-a-job")])
                assert [each.name for each in alice.list_topics()] == ["made-by-a-job"]
                # A token makes no further tokens.
                with pytest.raises(ApiError) as caught:
                    job.create_delegation_token()
                assert caught.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            with pytest.raises(AuthenticationError), by_token("wrong"):
                pass
            alice.expire_delegation_token(issued.hmac)
            with pytest.raises(AuthenticationError), by_token():
                pass
