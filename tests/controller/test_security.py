"""Decisions about ACLs, SCRAM users, client quotas and delegation tokens: records, results, every error code."""

from dataclasses import replace
from typing import Any

import pytest

from rookery.base.codes import AclOperation, AclPermission, AclResourceType, PatternType
from rookery.base.errors import ErrorCode
from rookery.base.quota_entities import DEFAULT, QuotaEntity
from rookery.controller.acls import steps_to_create_acls, steps_to_delete_acls
from rookery.controller.decision import RECORDS_PER_REQUEST_MAX, run_steps
from rookery.controller.quotas import steps_to_alter_client_quotas
from rookery.controller.scram import steps_to_alter_scram
from rookery.controller.tokens import (
    EXPIRED_PER_PASS,
    TokenRules,
    decide_create_token,
    steps_to_expire_token,
    steps_to_remove_expired_tokens,
    steps_to_renew_token,
)
from rookery.metadata.image import EMPTY_IMAGE, ClusterImage
from rookery.metadata.records import DelegationTokenRecord, RemoveDelegationTokenRecord
from rookery.metadata.security_requests import NewToken, QuotaAlteration, QuotaChange, ScramDeletion, ScramUpsertion
from rookery.protocol.principal import Principal
from rookery.security.acl_filters import AclFilter
from rookery.security.acls import AclBinding, ResourcePattern
from rookery.security.delegation_tokens import token_hmac
from tests.controller.cluster import carry_out, context

ORDERS = ResourcePattern(AclResourceType.TOPIC, "orders")
READ = AclBinding(ORDERS, "User:alice", "*", AclOperation.READ, AclPermission.ALLOW)
WRITE = replace(READ, operation=AclOperation.WRITE)


def created_acls(image: ClusterImage, *acls: AclBinding) -> ClusterImage:
    return carry_out(image, run_steps(steps_to_create_acls(image, acls, context())))


def test_an_acl_is_created_once() -> None:
    image = created_acls(EMPTY_IMAGE, READ, WRITE, READ)
    assert list(image.acls.values()) == [READ, WRITE]
    again = run_steps(steps_to_create_acls(image, [READ, WRITE], context()))
    assert (again.records, [each.code for each in again.results]) == ((), [ErrorCode.NONE] * 2)


@pytest.mark.parametrize(
    ("acl", "message"),
    [
        (replace(READ, pattern=ResourcePattern(AclResourceType.ANY, "orders")), "Invalid resourceType ANY"),
        (replace(READ, pattern=ResourcePattern(AclResourceType.UNKNOWN, "orders")), "Invalid resourceType UNKNOWN"),
        (replace(READ, pattern=ResourcePattern(AclResourceType.TOPIC, "")), "Invalid empty resource name"),
        (replace(READ, pattern=replace(ORDERS, pattern_type=PatternType.MATCH)), "Invalid patternType MATCH"),
        (
            replace(READ, pattern=ResourcePattern(AclResourceType.CLUSTER, "mine")),
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        (replace(READ, operation=AclOperation.ANY), "Invalid operation ANY"),
        (replace(READ, permission=AclPermission.ANY), "Invalid permissionType ANY"),
        (
            replace(READ, principal="alice"),
            "Could not parse principal from `alice` (no colon is present separating the principal type from the "
            "principal name)",
        ),
    ],
)
def test_invalid_acls(acl: AclBinding, message: str) -> None:
    decision = run_steps(steps_to_create_acls(EMPTY_IMAGE, [acl, READ], context()))
    assert list(decision.results) == [(ErrorCode.INVALID_REQUEST, message), (ErrorCode.NONE, None)]
    assert len(decision.records) == 1, "the valid one is created"


def test_deletion_of_acls() -> None:
    image = created_acls(EMPTY_IMAGE, READ, WRITE)
    filters = [AclFilter(operation=AclOperation.READ), AclFilter(), AclFilter(principal="User:bob")]
    decision = run_steps(steps_to_delete_acls(image, filters))
    assert [list(result.acls) for result in decision.results] == [[READ], [READ, WRITE], []]
    assert not carry_out(image, decision).acls, "an entry that two filters match is removed once"


@pytest.mark.parametrize(
    ("acl_filter", "message"),
    [
        (AclFilter(resource_type=AclResourceType.UNKNOWN), "Unknown patternFilter."),
        (AclFilter(pattern_type=PatternType.UNKNOWN), "Unknown patternFilter."),
        (AclFilter(operation=AclOperation.UNKNOWN), "Unknown entryFilter."),
        (AclFilter(permission=AclPermission.UNKNOWN), "Unknown entryFilter."),
    ],
)
def test_invalid_filters_of_acls(acl_filter: AclFilter, message: str) -> None:
    image = created_acls(EMPTY_IMAGE, READ)
    decision = run_steps(steps_to_delete_acls(image, [acl_filter]))
    assert decision.results[0].outcome == (ErrorCode.INVALID_REQUEST, message)
    assert not decision.records


def test_too_many_acls_change_nothing() -> None:
    acls = [replace(READ, principal=f"User:{number}") for number in range(RECORDS_PER_REQUEST_MAX + 1)]
    decision = run_steps(steps_to_create_acls(EMPTY_IMAGE, acls, context()))
    assert (decision.records, {each.code for each in decision.results}) == ((), {ErrorCode.POLICY_VIOLATION})
    image = created_acls(created_acls(EMPTY_IMAGE, *acls[:-1]), acls[-1])
    deletion = run_steps(steps_to_delete_acls(image, [AclFilter()]))
    assert (deletion.records, deletion.results[0].outcome.code) == ((), ErrorCode.INVALID_REQUEST)


def upsertion(user: str = "alice", mechanism: int = 1, iterations: int = 4096, salted: bytes = b"x") -> ScramUpsertion:
    return ScramUpsertion(user=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted)


def altered_users(image: ClusterImage, *changes: Any) -> tuple[ClusterImage, dict[str, ErrorCode]]:
    deletions = [change for change in changes if isinstance(change, ScramDeletion)]
    upsertions = [change for change in changes if isinstance(change, ScramUpsertion)]
    decision = run_steps(steps_to_alter_scram(image, deletions, upsertions))
    return carry_out(image, decision), {each.user: each.outcome.code for each in decision.results}


def test_scram_credentials_are_set_and_deleted() -> None:
    image, codes = altered_users(EMPTY_IMAGE, upsertion("alice"), upsertion("bob", 2, 16384))
    assert codes == {"alice": ErrorCode.NONE, "bob": ErrorCode.NONE}
    assert [(user, int(mechanism)) for user, mechanism in image.scram] == [("alice", 1), ("bob", 2)]
    assert len(image.scram["alice", 1].stored_key) == 32  # type: ignore[index]  # an IntEnum equals its number
    image, codes = altered_users(image, ScramDeletion("bob", 2), upsertion("alice", 1, 5000))
    assert set(codes.values()) == {ErrorCode.NONE}
    assert [credential.iterations for credential in image.scram.values()] == [5000]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salted=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramDeletion("", 1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramDeletion("alice", 9), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramDeletion("alice", 1), ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
def test_invalid_changes_of_scram_users(change: ScramDeletion | ScramUpsertion, code: ErrorCode) -> None:
    image, codes = altered_users(EMPTY_IMAGE, change, upsertion("bob"))
    assert codes == {change.user: code, "bob": ErrorCode.NONE}
    assert [user for user, _ in image.scram] == ["bob"]


@pytest.mark.parametrize(
    "changes",
    [
        [upsertion(), upsertion(mechanism=2)],
        [ScramDeletion("alice", 1), upsertion()],
        [ScramDeletion("alice", 1), ScramDeletion("alice", 1), upsertion()],
    ],
)
def test_a_user_that_is_altered_twice_does_not_change(changes: list[Any]) -> None:
    before, _ = altered_users(EMPTY_IMAGE, upsertion(iterations=9999))
    after, codes = altered_users(before, *changes)
    assert codes == {"alice": ErrorCode.DUPLICATE_RESOURCE}
    assert after == before


ALICE = (("user", "alice"),)


def altered_quotas(
    image: ClusterImage, *alterations: QuotaAlteration, validate_only: bool = False
) -> tuple[ClusterImage, list[tuple[ErrorCode, str | None]]]:
    decision = run_steps(steps_to_alter_client_quotas(image, alterations, validate_only=validate_only))
    return carry_out(image, decision), [(each.outcome.code, each.outcome.message) for each in decision.results]


def quota(key: str, value: float | None, entity: Any = ALICE) -> QuotaAlteration:
    return QuotaAlteration(entity, (QuotaChange(key, value),))


def test_quotas_are_set_and_removed() -> None:
    both = (("client-id", None), ("user", "alice"))
    image, outcomes = altered_quotas(
        EMPTY_IMAGE, quota("producer_byte_rate", 1000), quota("request_percentage", 0.5, both)
    )
    assert outcomes == [(ErrorCode.NONE, None)] * 2
    assert image.client_quotas == {
        QuotaEntity(user="alice"): {"producer_byte_rate": 1000},
        QuotaEntity(user="alice", client_id=DEFAULT): {"request_percentage": 0.5},
    }
    same = run_steps(steps_to_alter_client_quotas(image, [quota("producer_byte_rate", 1000)]))
    assert not same.records, "an unchanged value needs no record"
    image, outcomes = altered_quotas(image, quota("producer_byte_rate", None), quota("unknown", None, both))
    assert outcomes == [(ErrorCode.NONE, None)] * 2, "as in Kafka, removing what does not exist is success"
    assert list(image.client_quotas) == [QuotaEntity(user="alice", client_id=DEFAULT)]


def test_validation_of_quotas_changes_nothing() -> None:
    image, outcomes = altered_quotas(EMPTY_IMAGE, quota("producer_byte_rate", 1000), validate_only=True)
    assert outcomes == [(ErrorCode.NONE, None)]
    assert image == EMPTY_IMAGE


@pytest.mark.parametrize("address", ["10.0.0.1", "::1", None])
def test_addresses_have_a_quota_of_connections(address: str | None) -> None:
    image, outcomes = altered_quotas(EMPTY_IMAGE, quota("connection_creation_rate", 5, (("ip", address),)))
    assert outcomes == [(ErrorCode.NONE, None)]
    assert list(image.client_quotas.values()) == [{"connection_creation_rate": 5}]


@pytest.mark.parametrize(
    ("alteration", "message"),
    [
        (quota("producer_byte_rate", 1, ()), "Invalid empty client quota entity"),
        (quota("producer_byte_rate", 1, (("group", "g"),)), "Unhandled client quota entity type: group"),
        (quota("producer_byte_rate", 1, (("user", ""),)), "Empty user not supported"),
        (
            quota("producer_byte_rate", 1, (("user", "a"), ("user", "b"))),
            "Invalid client quota entity, duplicate entity entry user",
        ),
        (
            quota("connection_creation_rate", 1, (("user", "a"), ("ip", "10.0.0.1"))),
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId",
        ),
        (quota("connection_creation_rate", 1, (("ip", "host.example"),)), "host.example is not a valid IP address."),
        (quota("connection_creation_rate", 1), "Invalid configuration key connection_creation_rate"),
        (quota("producer_byte_rate", 1, (("ip", None),)), "Invalid configuration key producer_byte_rate"),
        (quota("producer_byte_rate", 0), "Quota producer_byte_rate must be greater than 0"),
        (quota("request_percentage", float("nan")), "Quota request_percentage must be greater than 0"),
        (quota("producer_byte_rate", 1.5), "producer_byte_rate cannot be a fractional value."),
        (quota("producer_byte_rate", 1e20), "Proposed value for producer_byte_rate is too large for a LONG."),
        (
            quota("connection_creation_rate", 2**31, (("ip", None),)),
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        (
            QuotaAlteration(ALICE, (QuotaChange("producer_byte_rate", 1), QuotaChange("producer_byte_rate", 2))),
            "Duplicate quota key producer_byte_rate not updating quota for this entity user=alice",
        ),
    ],
)
def test_invalid_quotas(alteration: QuotaAlteration, message: str) -> None:
    image, outcomes = altered_quotas(EMPTY_IMAGE, alteration)
    assert outcomes == [(ErrorCode.INVALID_REQUEST, message)]
    assert image == EMPTY_IMAGE


def test_an_entity_that_is_altered_twice_does_not_change() -> None:
    image, outcomes = altered_quotas(EMPTY_IMAGE, quota("producer_byte_rate", 1), quota("consumer_byte_rate", 1))
    assert outcomes == [(ErrorCode.INVALID_REQUEST, "Ignoring duplicate entity user=alice")] * 2
    assert image == EMPTY_IMAGE


USER, RENEWER, STRANGER = (Principal("User", name) for name in ("alice", "carol", "mallory"))
RULES = TokenRules(secret_key="secret", max_lifetime_ms=1000, expiry_time_ms=400)
REQUEST = NewToken(requester=Principal("User", "bob"), owner=USER, renewers=(RENEWER,))
NOW_MS = 5000


def token_image(request: NewToken = REQUEST) -> tuple[ClusterImage, bytes]:
    decision = decide_create_token(request, RULES, context(), NOW_MS)
    return carry_out(EMPTY_IMAGE, decision), decision.results.hmac


def test_a_token_is_created() -> None:
    decision = decide_create_token(REQUEST, RULES, context(), NOW_MS)
    token = decision.results.token
    assert token is not None
    assert (token.owner, token.requester, token.renewers) == (USER, REQUEST.requester, (RENEWER,))
    assert (token.issue_ms, token.expiry_ms, token.max_ms) == (5000, 5400, 6000)
    assert decision.results.hmac == token_hmac("secret", token.token_id)
    (record,) = decision.records
    assert isinstance(record, DelegationTokenRecord)
    assert (record.owner, record.requester, record.renewers) == ("User:alice", "User:bob", ("User:carol",))


@pytest.mark.parametrize(
    ("lifetime_ms", "expiry_ms", "max_ms"), [(300, 5300, 5300), (0, 5400, 6000), (9999, 5400, 6000)]
)
def test_the_life_of_a_token(lifetime_ms: int, expiry_ms: int, max_ms: int) -> None:
    token = decide_create_token(replace(REQUEST, max_lifetime_ms=lifetime_ms), RULES, context(), NOW_MS).results.token
    assert token is not None
    assert (token.expiry_ms, token.max_ms) == (expiry_ms, max_ms)


def test_tokens_of_eternity_do_not_overflow() -> None:
    rules = replace(RULES, max_lifetime_ms=2**63 - 1, expiry_time_ms=2**63 - 1)
    token = decide_create_token(REQUEST, rules, context(), NOW_MS).results.token
    assert token is not None
    assert (token.expiry_ms, token.max_ms) == (2**63 - 1, 2**63 - 1)


def test_renewers_are_users() -> None:
    request = replace(REQUEST, renewers=(Principal("Group", "g"),))
    decision = decide_create_token(request, RULES, context(), NOW_MS)
    assert (decision.records, decision.results.outcome.code) == ((), ErrorCode.INVALID_PRINCIPAL_TYPE)


@pytest.mark.parametrize("requester", [USER, RENEWER])
@pytest.mark.parametrize(("period_ms", "expiry_ms"), [(-1, 5500), (50, 5150), (9999, 5500)])
def test_a_token_is_renewed(requester: Principal, period_ms: int, expiry_ms: int) -> None:
    image, hmac = token_image()
    decision = run_steps(steps_to_renew_token(image, requester, hmac, period_ms, RULES, NOW_MS + 100))
    assert decision.results == (((ErrorCode.NONE, None)), expiry_ms)
    (token,) = carry_out(image, decision).tokens.values()
    assert (token.expiry_ms, token.max_ms) == (expiry_ms, 6000)


def test_a_token_is_not_renewed_beyond_its_longest_life() -> None:
    image, hmac = token_image()
    for now_ms in (5300, 5600, 5900):
        decision = run_steps(steps_to_renew_token(image, USER, hmac, -1, RULES, now_ms))
        image = carry_out(image, decision)
    assert decision.results.expiry_ms == 6000


def test_a_token_is_ended() -> None:
    image, hmac = token_image()
    later = run_steps(steps_to_expire_token(image, RENEWER, hmac, 50, RULES, NOW_MS))
    assert later.results == ((ErrorCode.NONE, None), 5050)
    now = run_steps(steps_to_expire_token(image, USER, hmac, -1, RULES, 9999))
    assert now.results == ((ErrorCode.NONE, None), 9999), "an expired token can be removed"
    assert not carry_out(image, now).tokens


@pytest.mark.parametrize("steps_to", [steps_to_renew_token, steps_to_expire_token])
def test_errors_of_tokens(steps_to: Any) -> None:
    image, hmac = token_image()

    def code_of(requester: Principal, hmac: bytes, rules: TokenRules = RULES, now_ms: int = NOW_MS) -> ErrorCode:
        decision = run_steps(steps_to(image, requester, hmac, 100, rules, now_ms))
        assert not decision.records
        assert decision.results.expiry_ms == -1
        code: ErrorCode = decision.results.outcome.code
        return code

    assert code_of(USER, b"other") is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert code_of(STRANGER, hmac) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert code_of(REQUEST.requester, hmac) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert code_of(USER, hmac, now_ms=5401) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert code_of(USER, hmac, replace(RULES, secret_key=None)) is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_expired_tokens_are_removed_in_passes() -> None:
    record = decide_create_token(REQUEST, RULES, context(), NOW_MS).records[0]
    assert isinstance(record, DelegationTokenRecord)
    image, _ = EMPTY_IMAGE.apply(replace(record, token_id=str(number)) for number in range(EXPIRED_PER_PASS + 2))
    image, _ = image.apply([replace(record, token_id="young", expiration_timestamp=5900)])
    assert run_steps(steps_to_remove_expired_tokens(image, 5400)).records == ()
    for count in (EXPIRED_PER_PASS, 2, 0):
        decision = run_steps(steps_to_remove_expired_tokens(image, 5401))
        assert (decision.results, len(decision.records)) == (count, count)
        assert all(isinstance(each, RemoveDelegationTokenRecord) for each in decision.records)
        image = carry_out(image, decision)
    assert list(image.tokens) == ["young"]


def test_rules_come_from_the_settings() -> None:
    rules = TokenRules.of({"delegation.token.secret.key": "k", "delegation.token.max.lifetime.ms": "7"})
    assert rules == TokenRules(secret_key="k", max_lifetime_ms=7, expiry_time_ms=86_400_000)
    assert "'k'" not in repr(rules)
    assert TokenRules.of({}).secret_key is None
