from typing import Any

import msgspec
import pytest

from rookery.registry import decisions, queries
from rookery.registry.entities import Config, ConfigUpdateRequest, Metadata, ModeUpdateRequest, Rule, RuleSet
from rookery.registry.records import config_record
from tests.registry.stage import Stage, compacted, properties, refused, replayed


def level(stage: Stage, subject: str | None, *, default_to_global: bool = False) -> str | None:
    return queries.get_config(stage.state, subject, default_to_global=default_to_global).compatibility_level


def mode(stage: Stage, subject: str | None, *, default_to_global: bool = False) -> str:
    return queries.get_mode(stage.state, subject, default_to_global=default_to_global).mode


# Configs


def test_the_nearest_config_holds(stage: Stage) -> None:
    assert level(stage, None) == level(stage, "s", default_to_global=True) == "BACKWARD"
    with refused(40408):
        level(stage, "s")
    stage.configure(None, compatibility_level="full")
    assert level(stage, None) == level(stage, "") == level(stage, ":.:") == "FULL"
    assert level(stage, "s", default_to_global=True) == "FULL"
    stage.configure("s", compatibility_level="NONE")
    assert level(stage, "s") == level(stage, "s", default_to_global=True) == "NONE"
    assert level(stage, "t", default_to_global=True) == "FULL"


def test_a_context_has_its_own_config(stage: Stage) -> None:
    stage.configure(None, compatibility_level="FULL")
    assert level(stage, ":.c:s", default_to_global=True) == "BACKWARD"
    stage.configure(":.__GLOBAL:", compatibility_level="NONE")
    assert level(stage, ":.c:s", default_to_global=True) == "NONE"
    assert level(stage, "s", default_to_global=True) == "FULL"
    stage.configure(":.c:", compatibility_level="FORWARD")
    assert level(stage, ":.c:s", default_to_global=True) == level(stage, ":.c") == "FORWARD"


def test_the_default_level_is_a_setting(fake_formats: None) -> None:
    assert level(Stage(default_level="FORWARD_TRANSITIVE"), None) == "FORWARD_TRANSITIVE"


def test_a_config_changes_field_by_field(stage: Stage) -> None:
    stage.configure("s", compatibility_level="NONE", alias="t")
    request = msgspec.json.decode(b'{"alias":null,"normalize":true,"unknown":1}', type=ConfigUpdateRequest)
    answer = stage.carry_out(decisions.put_config(stage.state, "s", request))
    assert msgspec.json.encode(answer) == b'{"normalize":true,"compatibility":"NONE"}'
    assert queries.get_config(stage.state, "s") == Config(normalize=True, compatibility_level="NONE")


def test_what_a_config_leaves_open_comes_from_around_it(stage: Stage) -> None:
    around: dict[str, Any] = {
        "compatibility_level": "FULL",
        "compatibility_policy": "LENIENT",
        "compatibility_group": "major",
    }
    stage.configure(None, normalize=True, **around)
    stage.configure("s", validate_fields=False)
    assert queries.get_config(stage.state, "s", default_to_global=True) == Config(
        normalize=True, validate_fields=False, **around
    )
    assert queries.get_config(stage.state, "s") == Config(validate_fields=False, compatibility_level="BACKWARD")


def test_all_fields_of_a_config_are_kept(stage: Stage) -> None:
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
    stage.configure("s", **everything)
    kept = Metadata(tags={"a": ("z",), "b": ("x", "y")}, sensitive=("p", "q"))
    assert queries.get_config(stage.state, "s") == Config(**everything | {"default_metadata": kept})
    assert replayed(stage.log) == stage.state


def test_the_nearest_policy_holds(stage: Stage) -> None:
    def policy(subject: str | None, *, default_to_global: bool = True) -> str | None:
        return queries.get_config(stage.state, subject, default_to_global=default_to_global).compatibility_policy

    assert policy(None) is policy("s") is None
    stage.configure(None, compatibility_policy="lenient")
    assert policy(None, default_to_global=False) == policy("s") == "LENIENT"
    assert policy(":.c:s") is None
    stage.configure("s", compatibility_policy="strict")
    assert policy("s") == policy("s", default_to_global=False) == "STRICT"
    stage.configure(":.c:", compatibility_policy="LENIENT")
    assert policy(":.c:s") == "LENIENT"
    stage.configure("s", compatibility_policy=None)
    assert policy("s", default_to_global=False) is None
    assert policy("s") == "LENIENT"
    assert replayed(compacted(stage.log)) == stage.state


def test_a_policy_of_another_registry_is_none(stage: Stage) -> None:
    stage.state.replay(*config_record("s", Config(compatibility_level="FULL", compatibility_policy="LOGICAL")))
    assert queries.get_config(stage.state, "s") == Config(compatibility_level="FULL")


def test_a_config_is_deleted(stage: Stage) -> None:
    with refused(40401, "Subject 's' not found."):
        decisions.delete_config(stage.state, "s")
    stage.configure("s", compatibility_level="NONE")
    assert stage.carry_out(decisions.delete_config(stage.state, "s")).compatibility_level == "NONE"
    assert stage.state.configs == {}
    assert stage.carry_out(decisions.delete_config(stage.state, None)).compatibility_level == "BACKWARD"


def test_a_config_that_is_not_valid(stage: Stage) -> None:
    with refused(42203):
        stage.configure("s", compatibility_level="SIDEWAYS")
    for policy in ("LOGICAL", "kind", ""):
        with refused(42203, f"Invalid compatibility policy '{policy}'. Valid values are strict and lenient"):
            stage.configure("s", compatibility_policy=policy)
    with refused(42208):
        stage.configure("__GLOBAL", compatibility_level="NONE")
    with refused(42210):
        stage.configure(None, default_rule_set=RuleSet(domain_rules=(Rule(name="1"),)))
    assert stage.log == []


# Modes


def test_the_nearest_mode_holds(stage: Stage) -> None:
    assert mode(stage, None) == mode(stage, "s", default_to_global=True) == "READWRITE"
    with refused(40409):
        mode(stage, "s")
    stage.set_mode("s", "readonly")
    assert mode(stage, "s") == "READONLY"
    stage.set_mode(None, "IMPORT")
    assert mode(stage, "t", default_to_global=True) == "IMPORT"
    assert mode(stage, ":.c:t", default_to_global=True) == "READWRITE"
    stage.set_mode(":.c:", "READONLY")
    assert mode(stage, ":.c:t", default_to_global=True) == "READONLY"


def test_the_whole_registry_may_override(stage: Stage) -> None:
    stage.set_mode("s", "READWRITE")
    stage.set_mode(None, "READONLY")
    stage.register("s", "a")
    stage.set_mode(None, "READONLY_OVERRIDE")
    assert mode(stage, "s") == mode(stage, ":.c:s") == mode(stage, None) == "READONLY_OVERRIDE"
    with refused(42205, "Subject s in context  is in read-only mode"):
        stage.register("s", "a,b?")
    stage.set_mode(None, "READWRITE")
    stage.register("s", "a,b?")


def test_what_is_read_only_does_not_change(stage: Stage) -> None:
    stage.register(":.c:s", "a")
    stage.configure(":.c:s", compatibility_level="NONE")
    stage.set_mode(":.c:", "READONLY")
    message = "Subject :.c:s in context :.c: is in read-only mode"
    # What is there already is no change.
    assert stage.register(":.c:s", "a") == 1
    with refused(42205, message):
        stage.register(":.c:s", "b")
    with refused(42205, message):
        stage.delete(":.c:s")
    with refused(42205, message):
        stage.delete(":.c:s", "1")
    with refused(42205, message):
        stage.configure(":.c:s", compatibility_level="FULL")
    with refused(42205, message):
        decisions.delete_config(stage.state, ":.c:s")


def test_a_mode_that_is_not_valid(stage: Stage) -> None:
    for name in ("FORWARD", "", "x"):
        with refused(42204):
            stage.set_mode("s", name)
    with refused(42204):
        decisions.put_mode(stage.state, "s", ModeUpdateRequest())
    with refused(42208):
        stage.set_mode("a\nb", "READONLY")


def test_a_mode_is_deleted(stage: Stage) -> None:
    with refused(40401):
        decisions.delete_mode(stage.state, "s")
    stage.set_mode("s", "READONLY")
    assert stage.carry_out(decisions.delete_mode(stage.state, "s")).mode == "READONLY"
    with refused(42208):
        decisions.delete_mode(stage.state, ":.:")
    assert stage.carry_out(decisions.delete_mode(stage.state, None)).mode == "READWRITE"
    assert stage.state.modes == {}


@pytest.mark.parametrize("name", ["s", None])
def test_a_mode_of_null_takes_it_away(stage: Stage, name: str | None) -> None:
    stage.set_mode(name, "READONLY")
    decision = decisions.put_mode(stage.state, name, ModeUpdateRequest(mode=None))
    assert msgspec.json.encode(stage.carry_out(decision)) == b'{"mode":null}'
    assert stage.state.modes == {}


def test_modes_may_be_immutable(fake_formats: None) -> None:
    stage = Stage(modes_are_mutable=False, default_mode="READONLY")
    with refused(42205, "Mode changes are not allowed"):
        stage.set_mode("s", "READWRITE")
    with refused(42205, "Mode changes are not allowed"):
        decisions.delete_mode(stage.state, None)
    with refused(42205, "read-only"):
        stage.register("s", "a")


def test_the_answer_to_a_mode_is_the_request(stage: Stage) -> None:
    request = ModeUpdateRequest(mode="readonly")
    assert decisions.put_mode(stage.state, None, request).result == request


def test_an_import_does_not_remove_what_a_deleted_schema_refers_to(stage: Stage) -> None:
    stage.register("s", "a")
    stage.register("t", "@a", ("a", "s", 1))
    stage.delete("t")
    stage.delete("s")
    with refused(42206, "subject=s,version=1}"):
        stage.set_mode("s", "IMPORT")
    # All go together.
    stage.set_mode(None, "IMPORT")
    assert list(stage.state.subjects()) == []


@pytest.mark.parametrize("name", ["s", None, ":.__GLOBAL:"])
def test_an_import_begins_with_nothing(stage: Stage, name: str | None) -> None:
    stage.register("s", "a")
    with refused(42205, "Cannot import since found existing subjects"):
        stage.set_mode(name, "IMPORT")
    stage.delete("s")
    stage.set_mode(name, "IMPORT")
    assert list(stage.state.subjects()) == []
    assert stage.state.max_id(".") == 1
    assert replayed(compacted(stage.log)) == stage.state
    # It has begun already.
    stage.register("s", "a", id=5)
    stage.set_mode(name, "IMPORT")


def test_an_import_may_be_forced(stage: Stage) -> None:
    stage.register("s", "a")
    stage.set_mode("s", "IMPORT", force=True)
    assert stage.versions("s") == [1]


def test_an_import_of_one_subject_does_not_mind_others(stage: Stage) -> None:
    stage.register("s", "a")
    stage.set_mode("t", "IMPORT")
    stage.set_mode(":.c:", "IMPORT")


def test_an_import_keeps_what_is_referred_to(stage: Stage) -> None:
    stage.register("s", "a")
    stage.delete("s")
    # An import may refer to what is deleted.
    stage.set_mode("t", "IMPORT")
    stage.register("t", "@s", ("s", "s", 1), id=5)
    with refused(42206):
        stage.set_mode("s", "IMPORT")
    stage.delete("t")
    with refused(42206):
        stage.set_mode("s", "IMPORT")
    stage.delete("t", permanent=True)
    stage.set_mode("s", "IMPORT")
    assert list(stage.state.subjects()) == []
