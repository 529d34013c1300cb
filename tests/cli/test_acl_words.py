"""The words of `rookery acls`: what users write, and what it means."""

import pytest

from rookery.base.codes import AclOperation, AclPermission, AclResourceType, PatternType
from rookery.base.errors import ConfigError
from rookery.cli.acl_words import (
    Resources,
    check_operations,
    entry_text,
    options_text,
    parse_operation,
    principal_of,
    word,
)
from rookery.security.acls import OPERATIONS, AclBinding, ResourcePattern

ORDERS = ResourcePattern(AclResourceType.TOPIC, "orders")


def entry(pattern: ResourcePattern = ORDERS, **changes: object) -> AclBinding:
    parts = {
        "principal": "User:alice",
        "host": "*",
        "operation": AclOperation.READ,
        "permission": AclPermission.ALLOW,
        **changes,
    }
    return AclBinding(pattern, **parts)  # type: ignore[arg-type]  # a test gives the right types


def test_principals() -> None:
    assert principal_of("alice") == principal_of("User:alice") == "User:alice"
    assert principal_of("CN=alice,O=Example") == "User:CN=alice,O=Example"
    assert principal_of("*") == "User:*"
    with pytest.raises(ConfigError, match="'user:alice' must be written User:alice"):
        principal_of("user:alice")
    with pytest.raises(ConfigError, match="'User:' is not a user"):
        principal_of("User:")


def test_every_operation_has_its_word() -> None:
    for operation in AclOperation:
        if operation > AclOperation.ANY:
            assert parse_operation(word(operation)) is parse_operation(operation.name) is operation


def test_a_mistyped_operation_is_named() -> None:
    with pytest.raises(ConfigError, match=r"'wirte' is not an operation: all, read, .*; did you mean write"):
        parse_operation("wirte")
    with pytest.raises(ConfigError, match="'any' is not an operation"):
        parse_operation("any")


def test_operations_fit_their_resources() -> None:
    check_operations([ORDERS], [AclOperation.READ, AclOperation.ALL])
    with pytest.raises(ConfigError, match=r"operation write has no meaning for a group: write one of all, read, "):
        check_operations([ResourcePattern(AclResourceType.GROUP, "g")], [AclOperation.WRITE])
    assert set(OPERATIONS) == {each for each in AclResourceType if each > AclResourceType.ANY}


def test_patterns() -> None:
    resources = Resources(topics=["a", "*"], groups=["g"], users=["bob"], cluster=True)
    assert resources.patterns() == [
        ResourcePattern(AclResourceType.TOPIC, "a"),
        ResourcePattern(AclResourceType.TOPIC, "*"),
        ResourcePattern(AclResourceType.GROUP, "g"),
        ResourcePattern(AclResourceType.USER, "User:bob"),
        ResourcePattern(AclResourceType.CLUSTER, "kafka-cluster"),
    ]
    (prefixed,) = Resources(topics=["or"], prefix=True).patterns()
    assert prefixed.pattern_type is PatternType.PREFIXED


@pytest.mark.parametrize(
    ("resources", "sentence"),
    [
        (Resources(topics=["*"], prefix=True), "covers only names that begin with a star"),
        (Resources(topics=["orders*"]), "topic 'orders.' is taken literally"),
        (Resources(groups=[""]), "--group: the name is empty"),
    ],
)
def test_patterns_that_mean_something_else_are_refused(resources: Resources, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        resources.patterns()


@pytest.mark.parametrize(
    ("rule", "sentence", "options"),
    [
        (entry(), "user alice may read topic orders", "--user alice --operation read --topic orders"),
        (
            entry(ResourcePattern(AclResourceType.TOPIC, "or", PatternType.PREFIXED), permission=AclPermission.DENY),
            "user alice must not read topics that begin with or",
            "--user alice --operation read --topic or --prefix --deny",
        ),
        (
            entry(ResourcePattern(AclResourceType.GROUP, "*"), principal="User:*", host="10.0.0.1"),
            "every user may read all groups from 10.0.0.1",
            "--user '*' --operation read --group '*' --host 10.0.0.1",
        ),
        (
            entry(ResourcePattern(AclResourceType.CLUSTER, "kafka-cluster"), operation=AclOperation.ALL),
            "user alice may do everything with the cluster",
            "--user alice --operation all --cluster",
        ),
        (
            entry(ResourcePattern(AclResourceType.USER, "User:bob"), operation=AclOperation.CREATE_TOKENS),
            "user alice may create-tokens user User:bob",
            "--user alice --operation create-tokens --of-user bob",
        ),
    ],
)
def test_rules_as_sentences_and_options(rule: AclBinding, sentence: str, options: str) -> None:
    assert entry_text(rule) == sentence
    assert options_text(rule) == options
