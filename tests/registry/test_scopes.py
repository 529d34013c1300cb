from typing import Any

import msgspec
import pytest

from rookery.registry import commands, queries
from rookery.registry.entities import Config, ConfigUpdateRequest, Metadata, ModeUpdateRequest, Rule, RuleSet
from rookery.registry.records import config_record
from tests.registry.harness import Harness, compacted, properties, raises_code, replayed


def level(harness: Harness, subject: str | None, *, default_to_global: bool = False) -> str | None:
    return queries.get_config(harness.state, subject, default_to_global=default_to_global).compatibility_level


def mode(harness: Harness, subject: str | None, *, default_to_global: bool = False) -> str:
    return queries.get_mode(harness.state, subject, default_to_global=default_to_global).mode


# Configs


def test_the_nearest_config_applies(harness: Harness) -> None:
    assert level(harness, None) == level(harness, "s", default_to_global=True) == "BACKWARD"
    with raises_code(40408):
        level(harness, "s")
    harness.configure(None, compatibility_level="full")
    assert level(harness, None) == level(harness, "") == level(harness, ":.:") == "FULL"
    assert level(harness, "s", default_to_global=True) == "FULL"
    harness.configure("s", compatibility_level="NONE")
    assert level(harness, "s") == level(harness, "s", default_to_global=True) == "NONE"
    assert level(harness, "t", default_to_global=True) == "FULL"


def test_a_context_has_its_own_config(harness: Harness) -> None:
    harness.configure(None, compatibility_level="FULL")
    assert level(harness, ":.c:s", default_to_global=True) == "BACKWARD"
    harness.configure(":.__GLOBAL:", compatibility_level="NONE")
    assert level(harness, ":.c:s", default_to_global=True) == "NONE"
    assert level(harness, "s", default_to_global=True) == "FULL"
    harness.configure(":.c:", compatibility_level="FORWARD")
    assert level(harness, ":.c:s", default_to_global=True) == level(harness, ":.c") == "FORWARD"


def test_the_default_level_is_a_setting(fake_formats: None) -> None:
    assert level(Harness(default_level="FORWARD_TRANSITIVE"), None) == "FORWARD_TRANSITIVE"


def test_a_config_changes_field_by_field(harness: Harness) -> None:
    harness.configure("s", compatibility_level="NONE", alias="t")
    request = msgspec.json.decode(b'{"alias":null,"normalize":true,"unknown":1}', type=ConfigUpdateRequest)
    answer = harness.apply(commands.put_config(harness.state, "s", request))
    assert msgspec.json.encode(answer) == b'{"normalize":true,"compatibility":"NONE"}'
    assert queries.get_config(harness.state, "s") == Config(normalize=True, compatibility_level="NONE")


def test_unset_fields_of_a_config_come_from_the_enclosing_scope(harness: Harness) -> None:
    around: dict[str, Any] = {
        "compatibility_level": "FULL",
        "compatibility_policy": "LENIENT",
        "compatibility_group": "major",
    }
    harness.configure(None, normalize=True, **around)
    harness.configure("s", validate_fields=False)
    assert queries.get_config(harness.state, "s", default_to_global=True) == Config(
        normalize=True, validate_fields=False, **around
    )
    assert queries.get_config(harness.state, "s") == Config(validate_fields=False, compatibility_level="BACKWARD")


def test_all_fields_of_a_config_are_stored(harness: Harness) -> None:
    rules = RuleSet(domain_rules=(Rule(name="r", mode="READ", type="CEL"),))
    everything: dict[str, Any] = {
        "alias": "t",
        "normalize": False,
        "validate_fields": True,
        "validate_rules": True,
        "compatibility_level": "FULL",
        "compatibility_policy": "LENIENT",
        "compatibility_group": "g",
        "default_metadata": Metadata(tags={"b": ("y", "x"), "a": ("z",)}, sensitive=("q", "p")),
        "override_metadata": properties(k="v"),
        "default_rule_set": rules,
        "override_rule_set": rules,
    }
    harness.configure("s", **everything)
    kept = Metadata(tags={"a": ("z",), "b": ("x", "y")}, sensitive=("p", "q"))
    assert queries.get_config(harness.state, "s") == Config(**everything | {"default_metadata": kept})
    assert replayed(harness.log) == harness.state


def test_the_nearest_policy_applies(harness: Harness) -> None:
    def policy(subject: str | None, *, default_to_global: bool = True) -> str | None:
        return queries.get_config(harness.state, subject, default_to_global=default_to_global).compatibility_policy

    assert policy(None) is policy("s") is None
    harness.configure(None, compatibility_policy="lenient")
    assert policy(None, default_to_global=False) == policy("s") == "LENIENT"
    assert policy(":.c:s") is None
    harness.configure("s", compatibility_policy="strict")
    assert policy("s") == policy("s", default_to_global=False) == "STRICT"
    harness.configure(":.c:", compatibility_policy="LENIENT")
    assert policy(":.c:s") == "LENIENT"
    harness.configure("s", compatibility_policy=None)
    assert policy("s", default_to_global=False) is None
    assert policy("s") == "LENIENT"
    assert replayed(compacted(harness.log)) == harness.state


def test_an_unknown_policy_of_another_registry_is_ignored(harness: Harness) -> None:
    harness.state.replay(*config_record("s", Config(compatibility_level="FULL", compatibility_policy="LOGICAL")))
    assert queries.get_config(harness.state, "s") == Config(compatibility_level="FULL")


def test_a_config_is_deleted(harness: Harness) -> None:
    with raises_code(40401, "Subject 's' not found."):
        commands.delete_config(harness.state, "s")
    harness.configure("s", compatibility_level="NONE")
    assert harness.apply(commands.delete_config(harness.state, "s")).compatibility_level == "NONE"
    assert harness.state.configs == {}
    assert harness.apply(commands.delete_config(harness.state, None)).compatibility_level == "BACKWARD"


def test_an_invalid_config(harness: Harness) -> None:
    with raises_code(42203):
        harness.configure("s", compatibility_level="SIDEWAYS")
    for policy in ("LOGICAL", "kind", ""):
        with raises_code(42203, f"Invalid compatibility policy '{policy}'. Valid values are strict and lenient"):
            harness.configure("s", compatibility_policy=policy)
    with raises_code(42208):
        harness.configure("__GLOBAL", compatibility_level="NONE")
    with raises_code(42210):
        harness.configure(None, default_rule_set=RuleSet(domain_rules=(Rule(name="1"),)))
    assert harness.log == []


# Modes


def test_the_nearest_mode_applies(harness: Harness) -> None:
    assert mode(harness, None) == mode(harness, "s", default_to_global=True) == "READWRITE"
    with raises_code(40409):
        mode(harness, "s")
    harness.set_mode("s", "readonly")
    assert mode(harness, "s") == "READONLY"
    harness.set_mode(None, "IMPORT")
    assert mode(harness, "t", default_to_global=True) == "IMPORT"
    assert mode(harness, ":.c:t", default_to_global=True) == "READWRITE"
    harness.set_mode(":.c:", "READONLY")
    assert mode(harness, ":.c:t", default_to_global=True) == "READONLY"


def test_the_whole_registry_may_override(harness: Harness) -> None:
    harness.set_mode("s", "READWRITE")
    harness.set_mode(None, "READONLY")
    harness.register("s", "a")
    harness.set_mode(None, "READONLY_OVERRIDE")
    assert mode(harness, "s") == mode(harness, ":.c:s") == mode(harness, None) == "READONLY_OVERRIDE"
    with raises_code(42205, "Subject s in context  is in read-only mode"):
        harness.register("s", "a,b?")
    harness.set_mode(None, "READWRITE")
    harness.register("s", "a,b?")


def test_the_read_only_mode_rejects_changes(harness: Harness) -> None:
    harness.register(":.c:s", "a")
    harness.configure(":.c:s", compatibility_level="NONE")
    harness.set_mode(":.c:", "READONLY")
    message = "Subject :.c:s in context :.c: is in read-only mode"
    # A schema that is registered already is not a change.
    assert harness.register(":.c:s", "a") == 1
    with raises_code(42205, message):
        harness.register(":.c:s", "b")
    with raises_code(42205, message):
        harness.delete(":.c:s")
    with raises_code(42205, message):
        harness.delete(":.c:s", "1")
    with raises_code(42205, message):
        harness.configure(":.c:s", compatibility_level="FULL")
    with raises_code(42205, message):
        commands.delete_config(harness.state, ":.c:s")


def test_an_invalid_mode(harness: Harness) -> None:
    for name in ("FORWARD", "", "x"):
        with raises_code(42204):
            harness.set_mode("s", name)
    with raises_code(42204):
        commands.put_mode(harness.state, "s", ModeUpdateRequest())
    with raises_code(42208):
        harness.set_mode("a\nb", "READONLY")


def test_a_mode_is_deleted(harness: Harness) -> None:
    with raises_code(40401):
        commands.delete_mode(harness.state, "s")
    harness.set_mode("s", "READONLY")
    assert harness.apply(commands.delete_mode(harness.state, "s")).mode == "READONLY"
    with raises_code(42208):
        commands.delete_mode(harness.state, ":.:")
    assert harness.apply(commands.delete_mode(harness.state, None)).mode == "READWRITE"
    assert harness.state.modes == {}


@pytest.mark.parametrize("name", ["s", None])
def test_a_mode_of_null_deletes_it(harness: Harness, name: str | None) -> None:
    harness.set_mode(name, "READONLY")
    decision = commands.put_mode(harness.state, name, ModeUpdateRequest(mode=None))
    assert msgspec.json.encode(harness.apply(decision)) == b'{"mode":null}'
    assert harness.state.modes == {}


def test_modes_may_be_immutable(fake_formats: None) -> None:
    harness = Harness(modes_are_mutable=False, default_mode="READONLY")
    with raises_code(42205, "Mode changes are not allowed"):
        harness.set_mode("s", "READWRITE")
    with raises_code(42205, "Mode changes are not allowed"):
        commands.delete_mode(harness.state, None)
    with raises_code(42205, "read-only"):
        harness.register("s", "a")


def test_the_response_to_a_mode_is_the_request(harness: Harness) -> None:
    request = ModeUpdateRequest(mode="readonly")
    assert commands.put_mode(harness.state, None, request).result == request


def test_an_import_does_not_remove_references_of_a_deleted_schema(harness: Harness) -> None:
    harness.register("s", "a")
    harness.register("t", "@a", ("a", "s", 1))
    harness.delete("t")
    harness.delete("s")
    with raises_code(42206, "subject=s,version=1}"):
        harness.set_mode("s", "IMPORT")
    # All are removed together.
    harness.set_mode(None, "IMPORT")
    assert list(harness.state.subjects()) == []


@pytest.mark.parametrize("name", ["s", None, ":.__GLOBAL:"])
def test_an_import_requires_that_there_are_no_schemas(harness: Harness, name: str | None) -> None:
    harness.register("s", "a")
    with raises_code(42205, "Cannot import since found existing subjects"):
        harness.set_mode(name, "IMPORT")
    harness.delete("s")
    harness.set_mode(name, "IMPORT")
    assert list(harness.state.subjects()) == []
    assert harness.state.max_id(".") == 1
    assert replayed(compacted(harness.log)) == harness.state
    # The import mode is already set.
    harness.register("s", "a", id=5)
    harness.set_mode(name, "IMPORT")


def test_an_import_may_be_forced(harness: Harness) -> None:
    harness.register("s", "a")
    harness.set_mode("s", "IMPORT", force=True)
    assert harness.versions("s") == [1]


def test_an_import_of_one_subject_does_not_depend_on_others(harness: Harness) -> None:
    harness.register("s", "a")
    harness.set_mode("t", "IMPORT")
    harness.set_mode(":.c:", "IMPORT")


def test_an_import_keeps_referenced_schemas(harness: Harness) -> None:
    harness.register("s", "a")
    harness.delete("s")
    # An import may refer to a deleted schema.
    harness.set_mode("t", "IMPORT")
    harness.register("t", "@s", ("s", "s", 1), id=5)
    with raises_code(42206):
        harness.set_mode("s", "IMPORT")
    harness.delete("t")
    with raises_code(42206):
        harness.set_mode("s", "IMPORT")
    harness.delete("t", permanent=True)
    harness.set_mode("s", "IMPORT")
    assert list(harness.state.subjects()) == []
