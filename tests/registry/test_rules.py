import pytest

from rookery.registry.entities import Metadata, Rule, RuleSet
from rookery.registry.rules import (
    check_rule_set,
    merge_metadata,
    merge_rule_sets,
    reserved_fields,
    version_property,
    with_version_property,
    without_version_property,
)
from tests.registry.harness import properties, raises_code

GOOD = Rule(name="check_it-1", mode="WRITE", type="CEL")


@pytest.mark.parametrize(
    "rules",
    [
        RuleSet(),
        RuleSet(domain_rules=(GOOD, Rule(name="_b", mode="WRITEREAD", type="CEL", on_failure="DLQ,NONE"))),
        RuleSet(migration_rules=(Rule(name="up", mode="UPGRADE", type="JSONATA"),), encoding_rules=(GOOD,)),
    ],
)
def test_valid_rules(rules: RuleSet) -> None:
    check_rule_set(rules)
    check_rule_set(None)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (RuleSet(domain_rules=(Rule(mode="WRITE", type="CEL"),)), "Missing rule name"),
        (RuleSet(domain_rules=(Rule(name="", mode="WRITE", type="CEL"),)), "Empty rule name"),
        (RuleSet(domain_rules=(Rule(name="a", kind="X", mode="WRITE", type="CEL"),)), "Invalid rule kind X"),
        (RuleSet(domain_rules=(Rule(name="a", mode="X", type="CEL"),)), "Domain rules can only be WRITE, READ"),
        (RuleSet(domain_rules=(Rule(name="x" * 257, mode="WRITE", type="CEL"),)), "Rule name too long"),
        (
            RuleSet(domain_rules=(Rule(name="1", mode="WRITE", type="CEL"),)),
            "Illegal initial character in rule name: 1",
        ),
        (RuleSet(domain_rules=(Rule(name="a b", mode="WRITE", type="CEL"),)), "Illegal character in rule name: a b"),
        (RuleSet(domain_rules=(Rule(name="a", mode="WRITE"),)), "Missing rule type"),
        (RuleSet(domain_rules=(GOOD, GOOD)), "Found rule with duplicate name 'check_it-1'"),
        (RuleSet(domain_rules=(GOOD,), encoding_rules=(GOOD,)), "Found rule with duplicate name"),
        (RuleSet(migration_rules=(GOOD,)), "Migration rules can only be UPGRADE, DOWNGRADE, UPDOWN"),
        (
            RuleSet(domain_rules=(Rule(name="a", mode="UPGRADE", type="CEL"),)),
            "Domain rules can only be WRITE, READ, WRITEREAD",
        ),
        (RuleSet(encoding_rules=(Rule(name="a", type="CEL"),)), "Encoding rules can only be WRITE, READ, WRITEREAD"),
        (
            RuleSet(domain_rules=(Rule(name="a", mode="READ", type="CEL", on_success="NONE,NONE"),)),
            "Multiple actions only valid with WRITEREAD and UPDOWN",
        ),
    ],
)
def test_invalid_rules(rules: RuleSet, message: str) -> None:
    with raises_code(42210, message):
        check_rule_set(rules)


def test_later_metadata_overrides() -> None:
    first = Metadata(tags={"f": ("PII",)}, properties={"owner": "all", "kind": "x"}, sensitive=("owner",))
    second = Metadata(tags={"e": ("x",)}, properties={"owner": "me"}, sensitive=("kind",))
    assert merge_metadata(first, None, second) == Metadata(
        tags={"e": ("x",), "f": ("PII",)}, properties={"kind": "x", "owner": "me"}, sensitive=("kind", "owner")
    )
    assert merge_metadata(None, None) is None
    assert merge_metadata(Metadata()) == Metadata()


def test_later_rules_override_by_name() -> None:
    one, two, other = (Rule(name="a", type=kind) for kind in ("1", "2", "3"))
    last = Rule(name="b", type="4")
    merged = merge_rule_sets(
        RuleSet(domain_rules=(one, last), enable_at="CLIENT"),
        None,
        RuleSet(domain_rules=(two,), migration_rules=(other,)),
    )
    assert merged == RuleSet(migration_rules=(other,), domain_rules=(last, two), enable_at="CLIENT")
    assert merge_rule_sets(None) is None


def test_the_version_in_the_metadata() -> None:
    given = with_version_property(properties(owner="me"), 3)
    assert version_property(given) == "3"
    assert version_property(with_version_property(given, 4)) == "4"
    assert without_version_property(given) == properties(owner="me")
    assert without_version_property(None) == without_version_property(with_version_property(None, 1)) == Metadata()
    assert version_property(None) is version_property(Metadata()) is None


def test_reserved_fields() -> None:
    assert reserved_fields(None) == reserved_fields(Metadata()) == set()
    assert reserved_fields(Metadata(properties={"confluent:reserved": " a,b ,, c d"})) == {"a", "b", "c d"}
    assert reserved_fields(Metadata(properties={"confluent:reserved": None})) == set()
