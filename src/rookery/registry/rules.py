"""Validates the metadata and rules of a schema, and merges them with defaults and overrides.

The registry stores rules for the clients that execute them, and executes none itself.
"""

from typing import Final

from rookery.registry.entities import CONFLUENT_RESERVED, CONFLUENT_VERSION, Metadata, Rule, RuleSet
from rookery.registry.errors import invalid_rule_set

_NAME_LENGTH_MAX: Final = 256
_KINDS: Final = ("TRANSFORM", "CONDITION", None)
_MIGRATION_MODES: Final = ("UPGRADE", "DOWNGRADE", "UPDOWN")
_DOMAIN_MODES: Final = ("WRITE", "READ", "WRITEREAD")
_MODES_WITH_SEVERAL_ACTIONS: Final = ("WRITEREAD", "UPDOWN", None)


def check_rule_set(rule_set: RuleSet | None) -> None:
    """Check a rule set. Names must be unique over all kinds of rules. Error codes: 42210."""
    if rule_set is None:
        return
    names: set[str | None] = set()
    kinds = (
        (rule_set.migration_rules, _MIGRATION_MODES, "Migration"),
        (rule_set.domain_rules, _DOMAIN_MODES, "Domain"),
        (rule_set.encoding_rules, _DOMAIN_MODES, "Encoding"),
    )
    for rules, modes, kind in kinds:
        for rule in rules or ():
            if rule.name in names:
                raise invalid_rule_set(f"Found rule with duplicate name '{rule.name}'")
            names.add(rule.name)
            _check_rule(rule)
            if rule.mode not in modes:
                raise invalid_rule_set(f"{kind} rules can only be {', '.join(modes)}")


def _check_rule(rule: Rule) -> None:
    _check_name(rule.name)
    if rule.type is None:
        raise invalid_rule_set("Missing rule type")
    if rule.kind not in _KINDS:
        raise invalid_rule_set(f"Invalid rule kind {rule.kind}")
    several = "," in (rule.on_success or "") or "," in (rule.on_failure or "")
    if several and rule.mode not in _MODES_WITH_SEVERAL_ACTIONS:
        raise invalid_rule_set("Multiple actions only valid with WRITEREAD and UPDOWN")


def _check_name(name: str | None) -> None:
    if name is None:
        raise invalid_rule_set("Missing rule name")
    if not name:
        raise invalid_rule_set("Empty rule name")
    if len(name) > _NAME_LENGTH_MAX:
        raise invalid_rule_set("Rule name too long")
    if not (name[0].isalpha() or name[0] == "_"):
        raise invalid_rule_set(f"Illegal initial character in rule name: {name}")
    if not all(character.isalnum() or character in "_-" for character in name[1:]):
        raise invalid_rule_set(f"Illegal character in rule name: {name}")


def merge_metadata(*layers: Metadata | None) -> Metadata | None:
    """Merge the layers; later ones override earlier ones. Returns None if all are None."""
    present = [layer for layer in layers if layer is not None]
    if not present:
        return None
    merged = Metadata(
        tags={name: tags for layer in present for name, tags in (layer.tags or {}).items()},
        properties={name: text for layer in present for name, text in (layer.properties or {}).items()},
        sensitive=tuple(name for layer in present for name in layer.sensitive or ()),
    )
    return merged.sorted()


def merge_rule_sets(*layers: RuleSet | None) -> RuleSet | None:
    """Merge the layers; rules of later ones replace rules of the same name. Returns None if all are None."""
    present = [layer for layer in layers if layer is not None]
    if not present:
        return None
    return RuleSet(
        migration_rules=_merge_rules([layer.migration_rules for layer in present]),
        domain_rules=_merge_rules([layer.domain_rules for layer in present]),
        encoding_rules=_merge_rules([layer.encoding_rules for layer in present]),
        enable_at=next((layer.enable_at for layer in reversed(present) if layer.enable_at), None),
    )


def _merge_rules(layers: list[tuple[Rule, ...] | None]) -> tuple[Rule, ...] | None:
    merged: list[Rule] = []
    for rules in layers:
        names = {rule.name for rule in rules or ()}
        merged = [rule for rule in merged if rule.name not in names] + list(rules or ())
    return tuple(merged) or None


def version_property(metadata: Metadata | None) -> str | None:
    """Return the version in the metadata, as which the schema was registered, if there is one."""
    return None if metadata is None else (metadata.properties or {}).get(CONFLUENT_VERSION)


def with_version_property(metadata: Metadata | None, version: int) -> Metadata:
    own = Metadata(properties={CONFLUENT_VERSION: str(version)})
    return merge_metadata(metadata, own) or own


def without_version_property(metadata: Metadata | None) -> Metadata:
    if metadata is None:
        return Metadata()
    properties = {name: text for name, text in (metadata.properties or {}).items() if name != CONFLUENT_VERSION}
    return Metadata(tags=metadata.tags, properties=properties, sensitive=metadata.sensitive).sorted()


def reserved_fields(metadata: Metadata | None) -> set[str]:
    """Return the reserved names, which no field of the schema or of a later version may have."""
    names = "" if metadata is None else (metadata.properties or {}).get(CONFLUENT_RESERVED) or ""
    return {name.strip() for name in names.split(",")} - {""}
