"""Rules of roles: their syntax, what they cover, and the file that is read again."""

import os
from pathlib import Path

import pytest

from rookery.base.errors import ConfigError
from rookery.registry.roles import Grant, Role, Roles, RoleSource, parse_rules
from tests.support.logs import captured_logs

ALICE, BOB, ADMIN = "User:alice", "User:bob", "User:admin"


def roles(*rules: str) -> Roles:
    return Roles(parse_rules(rules, "key"), [ADMIN])


def test_a_rule_has_one_or_more_grants() -> None:
    assert list(parse_rules(["User:alice = write:orders-*, Read:*", "User:*=admin::.test:a,b"], "key")) == [
        Grant(ALICE, Role.WRITE, "orders-", True),
        Grant(ALICE, Role.READ, "", True),
        Grant("User:*", Role.ADMIN, ":.test:a,b", False),
    ]


@pytest.mark.parametrize(
    "rule",
    ["alice", "alice=read:*", "User:=read:*", "User:alice", "User:alice=", "User:alice=reed:*", "User:alice=read:"],
)
def test_invalid_rules_are_errors_that_name_the_key(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"^authorization\.rules: .*must be"):
        list(parse_rules([rule], "authorization.rules"))


def test_only_prefixes_can_be_given() -> None:
    with pytest.raises(ConfigError, match="Only a prefix"):
        list(parse_rules(["User:alice=read:*-value"], "key"))


@pytest.mark.parametrize(
    ("subject", "is_covered"),
    [("orders-value", True), ("orders-", True), ("orders", False), (":.test:orders-value", False), (None, False)],
)
def test_a_prefix_covers_subjects_of_its_context(subject: str | None, is_covered: bool) -> None:
    assert roles("User:alice=read:orders-*").allows(ALICE, Role.READ, subject) is is_covered
    # The default context in its long form.
    assert roles("User:alice=read::.:orders-*").allows(ALICE, Role.READ, subject) is is_covered


def test_a_whole_context_and_the_whole_registry() -> None:
    one = roles("User:alice=admin::.test:*")
    assert one.allows(ALICE, Role.ADMIN, ":.test:orders")
    assert one.allows(ALICE, Role.ADMIN, ":.test:")
    assert not one.allows(ALICE, Role.READ, ":.tests:orders")
    assert not one.allows(ALICE, Role.ADMIN, None)
    every = roles("User:alice=admin:*")
    assert all(every.allows(ALICE, Role.ADMIN, subject) for subject in ("orders", ":.test:orders", None))


def test_a_role_includes_the_lesser_ones_and_belongs_to_its_user() -> None:
    one = roles("User:alice=write:orders", "User:*=read:public")
    assert [one.allows(ALICE, role, "orders") for role in Role] == [True, True, False]
    assert [one.allows(BOB, role, "orders") for role in Role] == [False, False, False]
    assert [one.allows(BOB, role, "public") for role in Role] == [True, False, False]
    assert one.allows(ADMIN, Role.ADMIN, None)


def test_the_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "roles"
    path.write_text("# nothing yet\n\n")
    source = RoleSource(["User:bob=read:a"], path, [])
    assert source.current().allows(BOB, Role.READ, "a")
    assert not source.current().allows(ALICE, Role.READ, "a")
    path.write_text("User:alice=read:a\n")
    os.utime(path, ns=(1, 1))
    assert source.current().allows(ALICE, Role.READ, "a")
    assert source.current().allows(BOB, Role.READ, "a")
    assert source.revision == 1


@pytest.mark.parametrize("text", ["no rule\n", None])
def test_roles_stay_if_the_file_becomes_unusable(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "roles"
    path.write_text("User:alice=read:a\n")
    source = RoleSource([], path, [])
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
        os.utime(path, ns=(1, 1))
    with captured_logs() as lines:
        assert source.current().allows(ALICE, Role.READ, "a")
        assert source.current().allows(ALICE, Role.READ, "a")
    assert [line["log_level"] for line in lines] == ["error"]
    path.write_text("User:bob=read:a\n")
    assert not source.current().allows(ALICE, Role.READ, "a")


def test_a_missing_file_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"authorization\.rules\.file cannot be read"):
        RoleSource([], tmp_path / "missing", [])
