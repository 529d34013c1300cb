"""The authorizer: its rules one by one, and its index, caches and explanations against a naive model."""

from collections.abc import Iterable, Mapping
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.codes import AclOperation, AclPermission, AclResourceType, PatternType
from rookery.base.errors import ApiError, ErrorCode
from rookery.protocol.principal import ANONYMOUS, Principal
from rookery.security import authorizer as authorizer_module
from rookery.security.acls import AclBinding, ResourcePattern
from rookery.security.authorizer import Authorizer, Rule
from rookery.security.explanations import ChangeKind, explain

ALICE = Principal("User", "alice")
BOB = Principal("User", "bob")
HOST = "10.0.0.1"
TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY


def entry(
    name: str,
    operation: AclOperation = READ,
    permission: AclPermission = ALLOW,
    *,
    principal: str = "User:alice",
    host: str = "*",
    pattern: PatternType = LITERAL,
    resource_type: AclResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(ResourcePattern(resource_type, name, pattern), principal, host, operation, permission)


def with_entries(*entries: AclBinding, super_users: Iterable[str] = (), allow_if_no_acl: bool = False) -> Authorizer:
    made = Authorizer(super_users=tuple(super_users), allow_if_no_acl=allow_if_no_acl)
    made.load({UUID(int=number): each for number, each in enumerate(entries)})
    return made


def test_without_entries_everything_is_denied() -> None:
    assert not with_entries().authorize(ALICE, HOST, READ, TOPIC, "a")


def test_without_entries_the_setting_may_allow_everything() -> None:
    assert with_entries(allow_if_no_acl=True).authorize(ALICE, HOST, READ, TOPIC, "a")


@pytest.mark.parametrize(
    "other",
    [
        entry("ab", principal="User:bob"),
        entry("a", principal="User:bob", pattern=PREFIXED),
        entry("*", principal="User:bob"),
        entry("ab", WRITE, DENY, principal="User:bob", host="1.2.3.4"),
    ],
)
def test_any_entry_about_the_resource_ends_the_default(other: AclBinding) -> None:
    authorizer = with_entries(other, allow_if_no_acl=True)
    assert not authorizer.authorize(ALICE, HOST, READ, TOPIC, "ab")
    assert authorizer.authorize(ALICE, HOST, READ, GROUP, "ab")


def test_a_literal_entry_is_about_its_name_only() -> None:
    authorizer = with_entries(entry("orders"))
    assert authorizer.authorize(ALICE, HOST, READ, TOPIC, "orders")
    assert not authorizer.authorize(ALICE, HOST, READ, TOPIC, "orders2")
    assert not authorizer.authorize(ALICE, HOST, READ, TOPIC, "order")
    assert not authorizer.authorize(BOB, HOST, READ, TOPIC, "orders")
    assert not authorizer.authorize(ALICE, HOST, READ, GROUP, "orders")


def test_a_prefix_is_about_all_names_that_begin_with_it() -> None:
    authorizer = with_entries(entry("ord", pattern=PREFIXED))
    assert authorizer.authorize(ALICE, HOST, READ, TOPIC, "orders")
    assert authorizer.authorize(ALICE, HOST, READ, TOPIC, "ord")
    assert not authorizer.authorize(ALICE, HOST, READ, TOPIC, "or")


def test_a_star_is_a_wildcard_in_literal_patterns_only() -> None:
    assert with_entries(entry("*")).authorize(ALICE, HOST, READ, TOPIC, "orders")
    assert not with_entries(entry("*", pattern=PREFIXED)).authorize(ALICE, HOST, READ, TOPIC, "orders")


def test_entries_for_all_principals_are_about_every_type_of_principal() -> None:
    authorizer = with_entries(entry("a", principal="User:*"))
    assert authorizer.authorize(ANONYMOUS, HOST, READ, TOPIC, "a")
    assert authorizer.authorize(Principal("Service", "x"), HOST, READ, TOPIC, "a")


def test_hosts_are_compared_as_text() -> None:
    authorizer = with_entries(entry("a", host=HOST))
    assert authorizer.authorize(ALICE, HOST, READ, TOPIC, "a")
    assert not authorizer.authorize(ALICE, "10.0.0.2", READ, TOPIC, "a")


def test_a_denial_wins_over_every_allowance() -> None:
    authorizer = with_entries(entry("orders"), entry("*", AclOperation.ALL), entry("o", READ, DENY, pattern=PREFIXED))
    assert not authorizer.authorize(ALICE, HOST, READ, TOPIC, "orders")
    assert authorizer.authorize(ALICE, HOST, WRITE, TOPIC, "orders")


@pytest.mark.parametrize("operation", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER])
def test_describe_is_implied_by_allowances_only(operation: AclOperation) -> None:
    assert with_entries(entry("a", operation)).authorize(ALICE, HOST, DESCRIBE, TOPIC, "a")
    authorizer = with_entries(entry("a", operation, DENY), entry("a", DESCRIBE))
    assert authorizer.authorize(ALICE, HOST, DESCRIBE, TOPIC, "a")


def test_altering_configs_implies_describing_them() -> None:
    authorizer = with_entries(entry("a", AclOperation.ALTER_CONFIGS))
    assert authorizer.authorize(ALICE, HOST, AclOperation.DESCRIBE_CONFIGS, TOPIC, "a")
    assert not authorizer.authorize(ALICE, HOST, DESCRIBE, TOPIC, "a")


def test_super_users_are_not_subject_to_entries() -> None:
    authorizer = with_entries(entry("*", AclOperation.ALL, DENY), super_users=["User:alice"])
    assert authorizer.authorize(ALICE, HOST, WRITE, TOPIC, "a")


def test_before_the_entries_are_loaded_only_super_users_are_answered() -> None:
    authorizer = Authorizer(super_users=["User:alice"], allow_if_no_acl=True)
    assert authorizer.authorize(ALICE, HOST, WRITE, TOPIC, "a")
    with pytest.raises(ApiError) as raised:
        authorizer.authorize(BOB, HOST, WRITE, TOPIC, "a")
    assert raised.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    authorizer.load({})
    assert authorizer.authorize(BOB, HOST, WRITE, TOPIC, "a")


def test_reserved_topics_are_open_to_super_users_only() -> None:
    authorizer = Authorizer(super_users=["User:root"], allow_if_no_acl=True, reserved_topics=["log"])
    authorizer.load({UUID(int=1): entry("*", AclOperation.ALL), UUID(int=2): entry("log", AclOperation.ALL)})
    assert not authorizer.authorize(ALICE, HOST, READ, TOPIC, "log")
    assert not authorizer.authorize(ALICE, HOST, DESCRIBE, TOPIC, "log")
    assert authorizer.authorize(ALICE, HOST, READ, TOPIC, "logs")
    assert authorizer.authorize(Principal("User", "root"), HOST, READ, TOPIC, "log")
    explained = explain(authorizer, "User:alice", HOST, READ, TOPIC, "log")
    assert (explained.setting, explained.changes) == ("rookery.audit.topic", ())


def test_changed_entries_change_cached_decisions() -> None:
    authorizer = with_entries()
    assert not authorizer.authorize(ALICE, HOST, READ, TOPIC, "a")
    authorizer.change({UUID(int=9): entry("a")})
    assert authorizer.authorize(ALICE, HOST, READ, TOPIC, "a")
    authorizer.change({UUID(int=9): None, UUID(int=10): None})
    assert not authorizer.authorize(ALICE, HOST, READ, TOPIC, "a")


def test_caches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "CLIENTS_MAX", 3)
    monkeypatch.setattr(authorizer_module, "DECISIONS_MAX", 5)
    authorizer = with_entries()
    for number in range(20):
        client = authorizer.client(ALICE, str(number))
        assert len(authorizer._clients) <= 3
        for name in range(20):
            assert not client.decisions(READ, TOPIC)[str(name)].allowed
        assert len(client.decisions(READ, TOPIC)) <= 5


# On any resource of a type: the cases of Kafka's tests of authorizeByResourceType.


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], False),
        ([entry("a", WRITE)], True),
        ([entry("a", AclOperation.ALL)], True),
        ([entry("a", READ)], False),
        ([entry("a", WRITE, host="1.2.3.4")], False),
        ([entry("a", WRITE, principal="User:*")], True),
        ([entry("a", WRITE), entry("a", WRITE, DENY)], False),
        ([entry("a", WRITE), entry("a", WRITE, DENY, principal="User:*", host=HOST)], False),
        ([entry("a", WRITE), entry("a", WRITE, DENY, principal="User:bob")], True),
        ([entry("ab", WRITE), entry("a", WRITE, DENY, pattern=PREFIXED)], False),
        ([entry("ab", WRITE, pattern=PREFIXED), entry("a", WRITE, DENY, pattern=PREFIXED)], False),
        ([entry("a", WRITE, pattern=PREFIXED), entry("ab", WRITE, DENY, pattern=PREFIXED)], True),
        ([entry("a", WRITE, pattern=PREFIXED), entry("a", WRITE, DENY)], True),
        ([entry("*", WRITE), entry("a", WRITE, DENY)], True),
        ([entry("*", WRITE), entry("*", WRITE, DENY)], False),
        ([entry("a", WRITE), entry("*", AclOperation.ALL, DENY)], False),
        ([entry("a", WRITE, resource_type=GROUP)], False),
    ],
)
def test_on_any_resource_of_a_type(entries: list[AclBinding], expected: bool) -> None:
    client = with_entries(*entries).client(ALICE, HOST)
    assert client.on_any(WRITE, TOPIC).allowed is expected
    assert client.on_any(WRITE, TOPIC).allowed is expected


def test_on_any_resource_the_default_and_super_users_count() -> None:
    assert with_entries(allow_if_no_acl=True).client(ALICE, HOST).on_any(WRITE, TOPIC).allowed
    denied = entry("*", WRITE, DENY)
    assert with_entries(denied, super_users=["User:alice"]).client(ALICE, HOST).on_any(WRITE, TOPIC).allowed


# The naive model: all entries are compared with every question.

NAMES = st.sampled_from(["a", "ab", "abc", "b", "*", "ba"])
ENTRIES = st.builds(
    AclBinding,
    st.builds(ResourcePattern, st.sampled_from([TOPIC, GROUP]), NAMES, st.sampled_from([LITERAL, PREFIXED])),
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from(["*", HOST, "10.0.0.2"]),
    st.sampled_from([AclOperation.ALL, READ, WRITE, DESCRIBE, AclOperation.ALTER_CONFIGS, AclOperation.DELETE]),
    st.sampled_from([ALLOW, ALLOW, DENY]),
)
IMPLIED: Mapping[AclOperation, tuple[AclOperation, ...]] = {
    DESCRIBE: (READ, WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}


def naive(
    entries: Iterable[AclBinding], *, allow_if_no_acl: bool, principal: str, operation: AclOperation, name: str
) -> bool:
    touching = [
        each
        for each in entries
        if each.pattern.type == TOPIC
        and (
            (each.pattern.pattern_type == PREFIXED and name.startswith(each.pattern.name))
            or (each.pattern.pattern_type == LITERAL and each.pattern.name in (name, "*"))
        )
    ]
    own = [each for each in touching if each.principal in (principal, "User:*") and each.host in (HOST, "*")]
    exact = (operation, AclOperation.ALL)
    if any(each.permission == DENY and each.operation in exact for each in own):
        return False
    if any(each.permission == ALLOW and each.operation in (*exact, *IMPLIED.get(operation, ())) for each in own):
        return True
    return allow_if_no_acl and not touching


@given(
    entries=st.lists(ENTRIES, max_size=8),
    removed=st.sets(st.integers(0, 7)),
    allow_if_no_acl=st.booleans(),
    operation=st.sampled_from([READ, WRITE, DESCRIBE, AclOperation.DESCRIBE_CONFIGS]),
    name=NAMES,
)
def test_decisions_equal_those_of_a_naive_model(
    entries: list[AclBinding], removed: set[int], allow_if_no_acl: bool, operation: AclOperation, name: str
) -> None:
    authorizer = with_entries(*entries, allow_if_no_acl=allow_if_no_acl)
    authorizer.authorize(ALICE, HOST, operation, TOPIC, name)
    authorizer.change({UUID(int=number): None for number in removed})
    left = [each for number, each in enumerate(entries) if number not in removed]
    expected = naive(left, allow_if_no_acl=allow_if_no_acl, principal="User:alice", operation=operation, name=name)
    assert authorizer.authorize(ALICE, HOST, operation, TOPIC, name) is expected
    again = Authorizer(allow_if_no_acl=allow_if_no_acl)
    again.load({UUID(int=number): each for number, each in enumerate(entries)})
    again.load({UUID(int=number): each for number, each in enumerate(entries) if number not in removed})
    assert again.authorize(ALICE, HOST, operation, TOPIC, name) is expected


@given(entries=st.lists(ENTRIES, max_size=8), operation=st.sampled_from([READ, WRITE, DESCRIBE]), name=NAMES)
def test_the_explained_changes_turn_the_decision(entries: list[AclBinding], operation: AclOperation, name: str) -> None:
    authorizer = with_entries(*entries)
    explained = explain(authorizer, "User:alice", HOST, operation, TOPIC, name)
    changed = list(entries)
    for change in explained.changes:
        if change.kind is ChangeKind.ADD:
            changed.append(change.entry)
        else:
            changed = [each for each in changed if each != change.entry]
    after = with_entries(*changed).authorize(ALICE, HOST, operation, TOPIC, name)
    assert after is not explained.decision.allowed


def test_an_explanation_names_the_entry_that_decides_and_those_that_nearly_do() -> None:
    denying, allowing = entry("o", READ, DENY, pattern=PREFIXED), entry("orders")
    elsewhere = entry("orders", host="10.0.0.9")
    authorizer = with_entries(denying, allowing, elsewhere, entry("orders", principal="User:bob"))
    explained = explain(authorizer, "User:alice", HOST, READ, TOPIC, "orders")
    assert explained.decision.rule is Rule.ENTRY
    assert explained.decision.entry == denying
    assert explained.setting is None
    assert len(explained.touching) == 4
    assert explained.nearly == (elsewhere,)
    assert [(each.kind, each.entry) for each in explained.changes] == [(ChangeKind.REMOVE, denying)]


def test_an_explanation_names_the_setting_that_decides() -> None:
    authorizer = with_entries(entry("b"), super_users=["User:root"])
    assert explain(authorizer, "User:root", HOST, READ, TOPIC, "a").setting == "super.users"
    assert explain(authorizer, "User:root", HOST, READ, TOPIC, "a").changes == ()
    assert explain(authorizer, "User:bob", HOST, READ, TOPIC, "a").setting == "allow.everyone.if.no.acl.found"
    assert explain(authorizer, "User:bob", HOST, READ, TOPIC, "b").setting is None
