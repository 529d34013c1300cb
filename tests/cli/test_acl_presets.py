"""The rules of presets and keys, and that they are enough for the programs."""

from uuid import UUID

import pytest

from rookery.base.codes import AclOperation, AclPermission, AclResourceType, PatternType
from rookery.base.errors import ConfigError
from rookery.cli.acl_presets import PRESETS, PresetOptions, preset_entries
from rookery.cli.acl_words import check_operations
from rookery.cli.key_rules import KeyUse, key_entries, summary
from rookery.protocol.principal import Principal
from rookery.security.acls import AclBinding
from rookery.security.authorizer import Authorizer

FULL = PresetOptions(
    topics=["orders"], output_topics=["totals"], groups=["g"], transactional_ids=["t"], application="app"
)


def authorizer(entries: list[AclBinding]) -> Authorizer:
    made = Authorizer()
    made.load({UUID(int=index): entry for index, entry in enumerate(entries)})
    return made


def may(entries: list[AclBinding], operation: AclOperation, type_: AclResourceType, name: str) -> bool:
    return authorizer(entries).authorize(Principal("User", "alice"), "10.0.0.1", operation, type_, name)


@pytest.mark.parametrize("name", PRESETS)
def test_every_rule_has_a_meaning(name: str) -> None:
    entries = preset_entries(name, FULL, "User:alice")
    assert len(entries) == len(set(entries)) > 2
    for entry in entries:
        check_operations([entry.pattern], [entry.operation])
        assert (entry.principal, entry.permission, entry.host) == ("User:alice", AclPermission.ALLOW, "*")


@pytest.mark.parametrize(
    ("name", "missing"),
    [("producer", "--topic"), ("consumer", "--topic"), ("connect", "--group"), ("streams", "--app")],
)
def test_a_missing_option_is_named(name: str, missing: str) -> None:
    with pytest.raises(ConfigError, match=f"preset {name} needs {missing}"):
        preset_entries(name, PresetOptions(), "User:alice")
    with pytest.raises(ConfigError, match="needs --group"):
        preset_entries("consumer", PresetOptions(topics=["orders"]), "User:alice")


def test_streams_owns_what_has_its_id() -> None:
    entries = preset_entries("streams", FULL, "User:alice")
    assert may(entries, AclOperation.CREATE, AclResourceType.TOPIC, "app-store-changelog")
    assert may(entries, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, "app-1")
    assert may(entries, AclOperation.WRITE, AclResourceType.TOPIC, "totals")
    assert not may(entries, AclOperation.WRITE, AclResourceType.TOPIC, "orders")


def test_the_wildcard_is_no_prefix() -> None:
    options = PresetOptions(topics=["*", "or"], groups=["*"], prefix=True)
    kinds = {entry.pattern.name: entry.pattern.pattern_type for entry in preset_entries("mirror", options, "User:m")}
    assert kinds["*"] is PatternType.LITERAL
    assert kinds["or"] is PatternType.PREFIXED


def test_a_key_allows_its_use_and_nothing_else() -> None:
    use = KeyUse(produce=["orders"], consume=["totals"], groups=["billing"])
    entries = key_entries("alice", use)
    assert may(entries, AclOperation.WRITE, AclResourceType.TOPIC, "orders")
    assert may(entries, AclOperation.READ, AclResourceType.TOPIC, "totals")
    assert may(entries, AclOperation.READ, AclResourceType.GROUP, "billing")
    assert not may(entries, AclOperation.READ, AclResourceType.TOPIC, "orders")
    assert not may(entries, AclOperation.CREATE, AclResourceType.TOPIC, "orders")
    assert summary(entries) == {"produce": ["orders"], "consume": ["totals"], "groups": ["billing"]}


def test_a_summary_marks_prefixes_and_knows_all() -> None:
    entries = preset_entries("streams", FULL, "User:alice")
    found = summary(entries)
    assert found == {"produce": ["app*", "totals"], "consume": ["app*", "orders"], "groups": ["app*"]}


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        (KeyUse(), "a key must allow something"),
        (KeyUse(consume=["a"]), "--consume needs --group GROUP"),
        (KeyUse(produce=["a"], groups=["g"]), "--group needs --consume TOPIC"),
        (KeyUse(consume=["a"], groups=["g"], transactional_ids=["t"]), "--transactional-id needs --produce"),
        (KeyUse(produce=["a*"]), "is taken literally"),
    ],
)
def test_keys_that_would_not_work_are_refused(use: KeyUse, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        key_entries("alice", use)
