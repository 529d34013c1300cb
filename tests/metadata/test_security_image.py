"""ACLs, SCRAM credentials, client quotas and delegation tokens of an image."""

from dataclasses import replace
from uuid import UUID

import pytest

from rookery.base.codes import AclOperation, AclPermission, AclResourceType, PatternType
from rookery.base.errors import CorruptionError
from rookery.base.quota_entities import DEFAULT, QuotaEntity
from rookery.metadata.image import EMPTY_IMAGE, Delta, difference
from rookery.metadata.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    MetadataRecord,
    QuotaEntityPart,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from rookery.protocol.principal import Principal
from rookery.security.acls import AclBinding, ResourcePattern
from rookery.security.delegation_tokens import DelegationToken
from rookery.security.scram_credentials import ScramCredential, ScramMechanism

ACL_ID = UUID(int=(1 << 64) + 2)
ALICE_AND_DEFAULT = (QuotaEntityPart("user", "alice"), QuotaEntityPart("client-id", None))

ACL = AccessControlEntryRecord(
    id=ACL_ID,
    resource_type=2,
    resource_name="orders",
    pattern_type=4,
    principal="User:alice",
    host="*",
    operation=3,
    permission_type=2,
)
SCRAM = UserScramCredentialRecord(
    name="alice", mechanism=1, salt=b"salt", stored_key=b"stored", server_key=b"server", iterations=4096
)
QUOTA = ClientQuotaRecord(entity=ALICE_AND_DEFAULT, key="producer_byte_rate", value=1024.5)
TOKEN = DelegationTokenRecord(
    owner="User:alice",
    requester="User:bob",
    renewers=("User:carol:c",),
    issue_timestamp=1000,
    max_timestamp=3000,
    expiration_timestamp=2000,
    token_id="token",
)
SECURITY: tuple[MetadataRecord, ...] = (ACL, SCRAM, QUOTA, TOKEN)


def parts_of(delta: Delta) -> tuple[frozenset[object], ...]:
    return delta.acls, delta.scram, delta.client_quotas, delta.tokens


def test_each_kind_is_in_the_image_and_in_the_delta() -> None:
    image, delta = EMPTY_IMAGE.apply(SECURITY)
    pattern = ResourcePattern(AclResourceType.TOPIC, "orders", PatternType.PREFIXED)
    assert image.acls == {ACL_ID: AclBinding(pattern, "User:alice", "*", AclOperation.READ, AclPermission.DENY)}
    key = ("alice", ScramMechanism.SCRAM_SHA_256)
    assert image.scram == {key: ScramCredential(b"salt", b"stored", b"server", 4096)}
    entity = QuotaEntity(user="alice", client_id=DEFAULT)
    assert image.client_quotas == {entity: {"producer_byte_rate": 1024.5}}
    assert image.tokens == {
        "token": DelegationToken(
            token_id="token",
            owner=Principal("User", "alice"),
            requester=Principal("User", "bob"),
            renewers=(Principal("User", "carol:c"),),
            issue_ms=1000,
            max_ms=3000,
            expiry_ms=2000,
        )
    }
    assert [*map(set, parts_of(delta))] == [{ACL_ID}, {key}, {entity}, {"token"}]
    assert not delta.is_empty
    assert difference(EMPTY_IMAGE, image) == delta


def test_each_kind_is_removed() -> None:
    full, _ = EMPTY_IMAGE.apply(SECURITY)
    empty, delta = full.apply(
        [
            RemoveAccessControlEntryRecord(ACL_ID),
            RemoveUserScramCredentialRecord("alice", 1),
            replace(QUOTA, value=0.0, remove=True),
            RemoveDelegationTokenRecord("token"),
        ]
    )
    assert empty == EMPTY_IMAGE
    assert delta == difference(full, EMPTY_IMAGE)
    assert all(parts_of(delta))


def test_a_second_record_replaces_the_first() -> None:
    image, _ = EMPTY_IMAGE.apply(SECURITY)
    image, delta = image.apply(
        [replace(SCRAM, iterations=8192), replace(QUOTA, key="request_percentage"), replace(TOKEN, max_timestamp=4000)]
    )
    assert image.scram["alice", ScramMechanism.SCRAM_SHA_256].iterations == 8192
    (quotas,) = image.client_quotas.values()
    assert quotas == {"producer_byte_rate": 1024.5, "request_percentage": 1024.5}
    assert image.tokens["token"].max_ms == 4000
    assert not delta.acls


def test_an_unchanged_part_is_shared_and_not_in_the_delta() -> None:
    before, _ = EMPTY_IMAGE.apply(SECURITY)
    after, delta = before.apply([TopicRecord("orders", ACL_ID)])
    assert after.acls is before.acls
    assert after.scram is before.scram
    assert after.client_quotas is before.client_quotas
    assert after.tokens is before.tokens
    assert not any(parts_of(delta))
    _, delta = before.apply([SCRAM, QUOTA])
    assert delta.is_empty, "the same values again are no change"


@pytest.mark.parametrize(
    "record",
    [
        RemoveAccessControlEntryRecord(UUID(int=9)),
        RemoveUserScramCredentialRecord("alice", 2),
        RemoveDelegationTokenRecord("other"),
        replace(ACL, operation=99),
        replace(ACL, resource_type=99),
        replace(SCRAM, mechanism=3),
        replace(QUOTA, entity=(QuotaEntityPart("group", "g"),)),
        replace(TOKEN, owner="alice"),
    ],
)
def test_records_that_no_controller_writes_are_corruption(record: MetadataRecord) -> None:
    image, _ = EMPTY_IMAGE.apply(SECURITY)
    with pytest.raises(CorruptionError, match="the metadata log"):
        image.apply([record])


def test_an_entry_can_be_removed_and_set_in_one_call() -> None:
    image, delta = EMPTY_IMAGE.apply([ACL, RemoveAccessControlEntryRecord(ACL_ID)])
    assert not image.acls
    assert not delta.acls
    with pytest.raises(CorruptionError):
        EMPTY_IMAGE.apply([ACL, RemoveAccessControlEntryRecord(ACL_ID), RemoveAccessControlEntryRecord(ACL_ID)])


def test_secrets_are_not_shown() -> None:
    image, _ = EMPTY_IMAGE.apply(SECURITY)
    assert "stored" not in repr(image)
    assert "stored" not in repr(SCRAM)
