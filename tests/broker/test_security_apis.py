"""ACLs, client quotas, SCRAM users and delegation tokens: each API in every version, and its errors."""

from pathlib import Path
from typing import Any

import pytest

from rookery.base.clock import ManualClock
from rookery.base.errors import ErrorCode
from rookery.protocol.api import ApiKey
from rookery.protocol.codec import decode_response, encode_response
from rookery.protocol.error_responses import error_response
from rookery.protocol.message import Message
from rookery.protocol.principal import Principal
from rookery.security.delegation_tokens import token_hmac
from rookery.security.scram_credentials import ScramMechanism, derive_credential, salted_password
from tests.broker.harness import Broker, play, versions

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CONFIG = {
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:ANONYMOUS;User:alice;User:carol",
    "delegation.token.secret.key": "secret",
}
ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
ANY_ACL: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def creation(**changes: Any) -> Message:
    fields = {
        "resource_type": 2,
        "resource_name": "orders",
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return Message(**{**fields, **changes})


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_ACLS))
def test_acls(tmp_path: Path, version: int) -> None:
    async def scene(broker: Broker) -> None:
        created = await broker.call(
            ApiKey.CREATE_ACLS,
            version,
            creations=[
                creation(),
                creation(operation=4),
                creation(),
                creation(resource_name="o", resource_pattern_type=4),
            ],
        )
        assert [result.error_code for result in created.results] == [0, 0, 0, 0]
        assert len(broker.services.image.acls) == 3, "one of them is in the request twice"
        described = await broker.call(
            ApiKey.DESCRIBE_ACLS,
            version,
            **{**ANY_ACL, "resource_type_filter": 2, "resource_name_filter": "orders", "pattern_type_filter": 2},
        )
        assert (described.error_code, described.error_message) == (0, None)
        assert [(each.resource_name, each.pattern_type, len(each.acls)) for each in described.resources] == [
            ("orders", 3, 2),
            ("o", 4, 1),
        ]
        deleted = await broker.call(
            ApiKey.DELETE_ACLS,
            version,
            filters=[Message(**{**ANY_ACL, "operation": 4}), Message(**{**ANY_ACL, "principal_filter": "User:bob"})],
        )
        first, second = deleted.filter_results
        (acl,) = first.matching_acls
        assert (acl.error_code, acl.principal, acl.operation, acl.permission_type) == (0, "User:alice", 4, 3)
        assert (second.error_code, second.matching_acls) == (0, [])
        assert len(broker.services.image.acls) == 2

    play(tmp_path, scene, CONFIG)


def test_acls_need_an_authorizer(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        created = await broker.call(ApiKey.CREATE_ACLS, 3, creations=[creation(), creation(operation=4)])
        assert [result.error_code for result in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
        assert created.results[0].error_message == "No Authorizer is configured."
        described = await broker.call(ApiKey.DESCRIBE_ACLS, 3, **ANY_ACL)
        assert described.error_code == ErrorCode.SECURITY_DISABLED
        deleted = await broker.call(ApiKey.DELETE_ACLS, 3, filters=[Message(**ANY_ACL)])
        assert [result.error_code for result in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]
        assert not broker.services.image.acls

    play(tmp_path, scene, {})


def test_unknown_codes_of_acls(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        created = await broker.call(
            ApiKey.CREATE_ACLS, 3, creations=[creation(operation=99), creation(resource_type=0)]
        )
        assert [result.error_code for result in created.results] == [ErrorCode.INVALID_REQUEST] * 2
        described = await broker.call(ApiKey.DESCRIBE_ACLS, 3, **{**ANY_ACL, "operation": 99})
        assert described.error_code == ErrorCode.INVALID_REQUEST
        deleted = await broker.call(ApiKey.DELETE_ACLS, 3, filters=[Message(**{**ANY_ACL, "permission_type": 99})])
        assert [result.error_code for result in deleted.filter_results] == [ErrorCode.INVALID_REQUEST]

    play(tmp_path, scene, CONFIG)


def part(kind: str, name: str | None) -> Message:
    return Message(entity_type=kind, entity_name=name)


def component(kind: str, match_type: int, match: str | None = None) -> Message:
    return Message(entity_type=kind, match_type=match_type, match=match)


def set_quota(key: str, value: float) -> Message:
    return Message(key=key, value=value, remove=False)


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_CLIENT_QUOTAS))
def test_client_quotas(tmp_path: Path, version: int) -> None:
    alice, alice_default, everyone = (
        [part("user", "alice")],
        [part("user", "alice"), part("client-id", None)],
        [part("user", None)],
    )

    async def alter(broker: Broker, *entries: Message, validate_only: bool = False) -> list[int]:
        response = await broker.call(
            ApiKey.ALTER_CLIENT_QUOTAS, version, entries=list(entries), validate_only=validate_only
        )
        assert [len(entry.entity) for entry in response.entries] == [len(entry.entity) for entry in entries]
        return [entry.error_code for entry in response.entries]

    async def describe(broker: Broker, *components: Message, strict: bool = False) -> list[dict[str, float]]:
        response = await broker.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, components=list(components), strict=strict)
        assert response.error_code == ErrorCode.NONE, response.error_message
        return [{value.key: value.value for value in entry.values} for entry in response.entries]

    async def scene(broker: Broker) -> None:
        first = Message(entity=alice, ops=[set_quota("producer_byte_rate", 1000.0)])
        assert await alter(broker, first, validate_only=True) == [0]
        assert not broker.services.image.client_quotas
        second = Message(entity=alice_default, ops=[set_quota("request_percentage", 12.5)])
        third = Message(entity=everyone, ops=[set_quota("consumer_byte_rate", 5.0)])
        bad = Message(entity=[part("ip", "10.0.0.1")], ops=[set_quota("producer_byte_rate", 1.0)])
        assert await alter(broker, first, second, third, bad) == [0, 0, 0, ErrorCode.INVALID_REQUEST]
        assert len(await describe(broker)) == 3
        assert await describe(broker, component("user", 0, "alice"), strict=True) == [{"producer_byte_rate": 1000.0}]
        assert len(await describe(broker, component("user", 0, "alice"))) == 2
        assert await describe(broker, component("user", 1)) == [{"consumer_byte_rate": 5.0}]
        assert await describe(broker, component("client-id", 1)) == [{"request_percentage": 12.5}]
        assert len(await describe(broker, component("user", 2))) == 3
        assert await describe(broker, component("ip", 2)) == []
        removal = Message(entity=alice, ops=[Message(key="producer_byte_rate", value=0.0, remove=True)])
        assert await alter(broker, removal) == [0]
        assert len(await describe(broker)) == 2

    play(tmp_path, scene, CONFIG)


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([component("", 2)], ErrorCode.INVALID_REQUEST),
        ([component("user", 2), component("user", 1)], ErrorCode.INVALID_REQUEST),
        ([component("group", 2)], ErrorCode.UNSUPPORTED_VERSION),
        ([component("user", 0)], ErrorCode.INVALID_REQUEST),
        ([component("user", 1, "alice")], ErrorCode.INVALID_REQUEST),
        ([component("user", 2, "alice")], ErrorCode.INVALID_REQUEST),
        ([component("user", 3)], ErrorCode.INVALID_REQUEST),
        ([component("user", 2), component("ip", 2)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_of_quotas_that_contradict_themselves(
    tmp_path: Path, components: list[Message], code: ErrorCode
) -> None:
    async def scene(broker: Broker) -> None:
        response = await broker.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=components, strict=False)
        assert (response.error_code, response.entries) == (code, None)
        assert response.error_message

    play(tmp_path, scene, CONFIG)


def upsertion(name: str, mechanism: int, iterations: int = 4096) -> Message:
    salted = salted_password(ScramMechanism(mechanism), "password", b"salt", iterations)
    return Message(name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted)


def test_scram_users(tmp_path: Path) -> None:
    async def alter(broker: Broker, deletions: list[Message], upsertions: list[Message]) -> dict[str, int]:
        response = await broker.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=deletions, upsertions=upsertions)
        return {result.user: result.error_code for result in response.results}

    async def describe(broker: Broker, *users: str) -> dict[str, tuple[int, list[tuple[int, int]]]]:
        response = await broker.call(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=[Message(name=user) for user in users] or None
        )
        assert response.error_code == ErrorCode.NONE
        return {
            each.user: (each.error_code, [(info.mechanism, info.iterations) for info in each.credential_infos])
            for each in response.results
        }

    async def scene(broker: Broker) -> None:
        assert await alter(broker, [], [upsertion("alice", 1), upsertion("bob", 2, 8192)]) == {"alice": 0, "bob": 0}
        assert await alter(broker, [], [upsertion("alice", 2)]) == {"alice": 0}
        mechanism = ScramMechanism.SCRAM_SHA_256
        stored = broker.services.image.scram["alice", mechanism]
        assert stored == derive_credential(mechanism, "password", b"salt", 4096)
        assert await describe(broker) == {"alice": (0, [(1, 4096), (2, 4096)]), "bob": (0, [(2, 8192)])}
        assert await describe(broker, "carol", "bob", "bob", "alice") == {
            "carol": (ErrorCode.RESOURCE_NOT_FOUND, []),
            "bob": (ErrorCode.DUPLICATE_RESOURCE, []),
            "alice": (0, [(1, 4096), (2, 4096)]),
        }
        deletions = [Message(name="alice", mechanism=1), Message(name="carol", mechanism=1)]
        assert await alter(broker, deletions, []) == {"alice": 0, "carol": ErrorCode.RESOURCE_NOT_FOUND}
        assert (await describe(broker, "alice"))["alice"] == (0, [(2, 4096)])

    play(tmp_path, scene, {})


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_DELEGATION_TOKEN))
def test_delegation_tokens(tmp_path: Path, version: int) -> None:
    shorter = min(version, 2)

    async def scene(broker: Broker) -> None:
        clock = broker.services.clock
        assert isinstance(clock, ManualClock)
        now_ms = clock.now_ms()
        broker.connection.principal = ALICE
        owner = {"owner_principal_type": "User", "owner_principal_name": "bob"} if version >= 3 else {}
        created = await broker.call(
            ApiKey.CREATE_DELEGATION_TOKEN,
            version,
            renewers=[Message(principal_type="User", principal_name="carol")],
            max_lifetime_ms=-1,
            **owner,
        )
        name = "bob" if version >= 3 else "alice"
        assert (created.error_code, created.principal_type, created.principal_name) == (0, "User", name)
        assert created.get("token_requester_principal_name", "alice") == "alice"
        assert (created.issue_timestamp_ms, created.expiry_timestamp_ms - now_ms) == (now_ms, 86_400_000)
        assert created.max_timestamp_ms - now_ms == 604_800_000
        assert created.hmac == token_hmac("secret", created.token_id)
        broker.connection.principal = CAROL
        renewed = await broker.call(
            ApiKey.RENEW_DELEGATION_TOKEN, shorter, hmac=created.hmac, renew_period_ms=3_600_000
        )
        assert (renewed.error_code, renewed.expiry_timestamp_ms - now_ms) == (0, 3_600_000)
        described = await broker.call(ApiKey.DESCRIBE_DELEGATION_TOKEN, version, owners=None)
        (token,) = described.tokens
        assert (token.token_id, token.hmac, token.principal_name) == (created.token_id, created.hmac, name)
        assert [each.principal_name for each in token.renewers] == ["carol"]
        assert token.expiry_timestamp == renewed.expiry_timestamp_ms
        for owners, count in ((["carol"], 1), ([name], 1), (["dave"], 0), ([], 0)):
            wanted = [Message(principal_type="User", principal_name=each) for each in owners]
            described = await broker.call(ApiKey.DESCRIBE_DELEGATION_TOKEN, version, owners=wanted)
            assert (described.error_code, len(described.tokens)) == (0, count)
        expired = await broker.call(
            ApiKey.EXPIRE_DELEGATION_TOKEN, shorter, hmac=created.hmac, expiry_time_period_ms=-1
        )
        assert (expired.error_code, expired.expiry_timestamp_ms) == (0, now_ms)
        assert not broker.services.image.tokens

    play(tmp_path, scene, CONFIG)


@pytest.mark.parametrize("principal", [None, Principal("User", "alice", token_authenticated=True)])
def test_tokens_need_a_login_of_ones_own(tmp_path: Path, principal: Principal | None) -> None:
    async def scene(broker: Broker) -> None:
        if principal is not None:
            broker.connection.principal = principal
        await expect_token_error(broker, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)

    play(tmp_path, scene, CONFIG)


def test_tokens_need_a_secret_key(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        broker.connection.principal = ALICE
        await expect_token_error(broker, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)

    play(tmp_path, scene, {})


async def expect_token_error(broker: Broker, code: ErrorCode) -> None:
    created = await broker.call(ApiKey.CREATE_DELEGATION_TOKEN, 2, renewers=[], max_lifetime_ms=-1)
    assert (created.error_code, created.token_id, created.hmac, created.max_timestamp_ms) == (code, "", b"", -1)
    renewed = await broker.call(ApiKey.RENEW_DELEGATION_TOKEN, 2, hmac=b"x", renew_period_ms=-1)
    assert (renewed.error_code, renewed.expiry_timestamp_ms) == (code, -1)
    expired = await broker.call(ApiKey.EXPIRE_DELEGATION_TOKEN, 2, hmac=b"x", expiry_time_period_ms=-1)
    assert (expired.error_code, expired.expiry_timestamp_ms) == (code, -1)
    described = await broker.call(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, owners=None)
    assert (described.error_code, described.tokens) == (code, [])


@pytest.mark.parametrize(
    ("api_key", "version", "request_fields", "results"),
    [
        (ApiKey.CREATE_ACLS, 3, {"creations": [creation(), creation()]}, "results"),
        (ApiKey.DELETE_ACLS, 3, {"filters": [Message(**ANY_ACL), Message(**ANY_ACL)]}, "filter_results"),
        (
            ApiKey.ALTER_CLIENT_QUOTAS,
            1,
            {
                "entries": [Message(entity=[part("user", name)], ops=[]) for name in ("alice", None)],
                "validate_only": False,
            },
            "entries",
        ),
        (
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            0,
            {"deletions": [Message(name="alice", mechanism=1)], "upsertions": [upsertion("bob", 1)]},
            "results",
        ),
    ],
)
def test_errors_of_whole_requests_are_those_of_each_item(
    api_key: ApiKey, version: int, request_fields: dict[str, Any], results: str
) -> None:
    response = error_response(api_key, version, Message(**request_fields), ErrorCode.NOT_CONTROLLER, "moved")
    assert response is not None
    decoded = decode_response(api_key, version, bytes(encode_response(api_key, version, response)), 0)
    items = decoded.get(results)
    assert [(item.error_code, item.error_message) for item in items] == [(ErrorCode.NOT_CONTROLLER, "moved")] * 2
    if api_key is ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
        assert [item.user for item in items] == ["alice", "bob"]
    if api_key is ApiKey.ALTER_CLIENT_QUOTAS:
        assert [item.entity[0].entity_name for item in items] == ["alice", None]
