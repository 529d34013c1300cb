"""ACLs, SCRAM users and client quotas against a running broker; delegation tokens against a scripted one."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.client.admin import (
    DEFAULT,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    Admin,
    DelegationToken,
    IssuedToken,
    Principal,
    QuotaEntity,
    ResourcePattern,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
    ScramUser,
)
from rookery.client.sync import Admin as SyncAdmin
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.security.scram_credentials import salted_password
from rookery.testing import EmbeddedBroker
from tests.client.admin.scripted import in_turn, run_with

Result = TypeVar("Result")
ORDERS = ResourcePattern(AclResourceType.TOPIC, "orders")
READ = AclBinding(ORDERS, "User:alice", "*", AclOperation.READ, AclPermission.ALLOW)
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def run_admin(broker: EmbeddedBroker, work: Callable[[Admin], Awaitable[Result]]) -> Result:
    async def run() -> Result:
        async with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
            return await work(admin)

    return asyncio.run(run())


def test_acls_without_an_authorizer(broker: EmbeddedBroker) -> None:
    async def work(admin: Admin) -> None:
        with pytest.raises(ApiError) as caught:
            await admin.describe_acls()
        assert caught.value.code is ErrorCode.SECURITY_DISABLED
        (created,) = await admin.create_acls([READ])
        assert created.error is ErrorCode.SECURITY_DISABLED
        (deleted,) = await admin.delete_acls([AclFilter()])
        assert deleted.error is ErrorCode.SECURITY_DISABLED

    run_admin(broker, work)


def test_scram_users(broker: EmbeddedBroker) -> None:
    async def work(admin: Admin) -> None:
        outcomes = await admin.alter_scram_users(
            upsertions=[
                ScramUpsertion(user="alice", password="secret"),
                ScramUpsertion(user="bob", password="secret", mechanism=SHA_256, iterations=4096),
                ScramUpsertion(user="carol", password="secret", iterations=20_000),
            ],
            deletions=[ScramDeletion("dave", SHA_256)],
        )
        assert {each.name: each.error for each in outcomes} == {
            "alice": ErrorCode.NONE,
            "bob": ErrorCode.NONE,
            "carol": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "dave": ErrorCode.RESOURCE_NOT_FOUND,
        }
        alice, bob = await admin.describe_scram_users()
        assert (alice.check().iterations, bob.check().iterations) == ({SHA_512: 8192}, {SHA_256: 4096})
        (missing,) = await admin.describe_scram_users(["erin"])
        assert missing.error is ErrorCode.RESOURCE_NOT_FOUND
        assert await admin.describe_scram_users([]) == []
        deleted = await admin.alter_scram_users(
            deletions=[ScramDeletion("alice", SHA_512), ScramDeletion("bob", SHA_256)]
        )
        assert [each.error for each in deleted] == [ErrorCode.NONE] * 2
        assert await admin.describe_scram_users() == []

    run_admin(broker, work)


def test_a_password_is_not_sent_and_not_shown() -> None:
    upsertion = ScramUpsertion(user="alice", password="secret", salt=b"salt")
    assert "secret" not in repr(upsertion)
    _, fake = run_with(
        {
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda version, request: Message(
                throttle_time_ms=0, results=[Message(user="alice", error_code=0, error_message=None)]
            )
        },
        lambda admin: admin.alter_scram_users(upsertions=[upsertion]),
    )
    (request,) = fake.requests_of(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
    (sent,) = request.upsertions
    assert (sent.salt, sent.iterations) == (b"salt", 8192)
    assert sent.salted_password == salted_password(SHA_512, "secret", b"salt", 8192)


def test_client_quotas(broker: EmbeddedBroker) -> None:
    alice, default, both = (
        QuotaEntity(user="alice"),
        QuotaEntity(user=DEFAULT),
        QuotaEntity(user="alice", client_id="app"),
    )

    async def work(admin: Admin) -> None:
        outcomes = await admin.alter_client_quotas(
            {
                alice: {"producer_byte_rate": 1000, "request_percentage": 0.5},
                default: {"consumer_byte_rate": 5},
                both: {"producer_byte_rate": 10},
                QuotaEntity(ip="10.0.0.1"): {"producer_byte_rate": 10},
            }
        )
        assert [each.error for each in outcomes] == [ErrorCode.NONE] * 3 + [ErrorCode.INVALID_REQUEST]
        assert outcomes[2].name == "user alice, client-id app"
        expected = {"producer_byte_rate": 1000.0, "request_percentage": 0.5}
        assert await admin.describe_client_quotas({"user": "alice"}, strict=True) == {alice: expected}
        assert set(await admin.describe_client_quotas({"user": "alice"})) == {alice, both}
        assert set(await admin.describe_client_quotas({"user": None})) == {alice, default, both}
        assert await admin.describe_client_quotas({"user": DEFAULT}) == {default: {"consumer_byte_rate": 5.0}}
        checked = await admin.alter_client_quotas({default: {"consumer_byte_rate": None}}, validate_only=True)
        assert [each.error for each in checked] == [ErrorCode.NONE]
        for each in await admin.alter_client_quotas(
            {
                alice: {"producer_byte_rate": None, "request_percentage": None},
                default: {"consumer_byte_rate": None},
                both: {"producer_byte_rate": None},
            }
        ):
            each.check()
        assert await admin.describe_client_quotas() == {}
        with pytest.raises(ApiError, match="Unsupported entity type group"):
            await admin.describe_client_quotas({"group": "g"})

    run_admin(broker, work)


def test_the_synchronous_admin_has_them_too(broker: EmbeddedBroker) -> None:
    with SyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        assert [each.error for each in admin.create_acls([READ])] == [ErrorCode.SECURITY_DISABLED]
        assert admin.describe_scram_users() == []
        assert admin.describe_client_quotas() == {}
        with pytest.raises(ApiError) as caught:
            admin.create_delegation_token()
        assert caught.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "the client has not logged in"


ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")


@pytest.mark.parametrize("version", range(1, 4))
def test_tokens_in_every_version(version: int) -> None:
    row = {"principal_type": "User", "principal_name": "alice", "token_id": "id", "hmac": b"hmac"}
    requester = {"token_requester_principal_type": "User", "token_requester_principal_name": "bob"}
    times = {"issue_timestamp": 1, "expiry_timestamp": 2, "max_timestamp": 3}
    renewers = [Message(principal_type="User", principal_name="bob")]

    def created(version: int, request: Message) -> Message:
        in_ms = {f"{name}_ms": value for name, value in times.items()}
        return Message(throttle_time_ms=0, error_code=0, **row, **requester, **in_ms)

    def described(version: int, request: Message) -> Message:
        tokens = [Message(**row, **requester, **times, renewers=renewers)]
        return Message(throttle_time_ms=0, error_code=0, tokens=tokens)

    def ended(version: int, request: Message) -> Message:
        return Message(throttle_time_ms=0, error_code=0, expiry_timestamp_ms=9)

    def rejected(version: int, request: Message) -> Message:
        return Message(throttle_time_ms=0, error_code=ErrorCode.NOT_CONTROLLER, expiry_timestamp_ms=-1)

    async def work(admin: Admin) -> tuple[IssuedToken, int, int, list[IssuedToken]]:
        owner = ALICE if version >= 3 else None
        return (
            await admin.create_delegation_token(owner=owner, renewers=[BOB], max_lifetime_ms=7),
            await admin.renew_delegation_token(b"hmac", period_ms=5),
            await admin.expire_delegation_token(b"hmac"),
            await admin.describe_delegation_tokens([ALICE]),
        )

    (issued, renewed_ms, expired_ms, (same,)), fake = run_with(
        {
            ApiKey.CREATE_DELEGATION_TOKEN: created,
            ApiKey.RENEW_DELEGATION_TOKEN: in_turn(rejected, ended),
            ApiKey.EXPIRE_DELEGATION_TOKEN: ended,
            ApiKey.DESCRIBE_DELEGATION_TOKEN: described,
        },
        work,
        CREATE_DELEGATION_TOKEN=version,
        RENEW_DELEGATION_TOKEN=min(version, 2),
        EXPIRE_DELEGATION_TOKEN=min(version, 2),
        DESCRIBE_DELEGATION_TOKEN=version,
    )
    expected = DelegationToken(
        token_id="id",
        owner=ALICE,
        requester=BOB if version >= 3 else ALICE,
        renewers=(BOB,),
        issue_ms=1,
        max_ms=3,
        expiry_ms=2,
    )
    assert (issued.token, issued.hmac) == (expected, b"hmac")
    assert same == issued
    assert "hmac" not in repr(issued)
    assert (renewed_ms, expired_ms) == (9, 9)
    (request,) = fake.requests_of(ApiKey.CREATE_DELEGATION_TOKEN)
    assert (request.max_lifetime_ms, request.get("owner_principal_name", "alice")) == (7, "alice")
    _, renewal = fake.requests_of(ApiKey.RENEW_DELEGATION_TOKEN)
    assert (renewal.hmac, renewal.renew_period_ms) == (b"hmac", 5)


def test_old_brokers_create_no_tokens_for_others() -> None:
    with pytest.raises(ApiError, match="creates no tokens for other owners"):
        run_with(
            {ApiKey.CREATE_DELEGATION_TOKEN: lambda version, request: Message()},
            lambda admin: admin.create_delegation_token(owner=ALICE),
            CREATE_DELEGATION_TOKEN=2,
        )


def test_users_of_unknown_mechanisms() -> None:
    def answer(version: int, request: Message) -> Message:
        infos = [Message(mechanism=mechanism, iterations=4096) for mechanism in (1, 9)]
        user = Message(user="alice", error_code=0, error_message=None, credential_infos=infos)
        return Message(throttle_time_ms=0, error_code=0, error_message=None, results=[user])

    found, _ = run_with(
        {ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: answer}, lambda admin: admin.describe_scram_users(["alice", "alice"])
    )
    assert found == [ScramUser(name="alice", iterations={SHA_256: 4096})]
