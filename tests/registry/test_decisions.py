from typing import Any

import msgspec
import pytest

from rookery.registry import candidates, decisions, queries
from rookery.registry.entities import (
    Metadata,
    RegisterSchemaResponse,
    Rule,
    RuleSet,
    SchemaReference,
)
from rookery.registry.records import SchemaValue, schema_record
from rookery.registry.subjects import SUBJECT_LENGTH_MAX
from tests.registry.fake_format import FakeFormat, FakeSchema
from tests.registry.stage import Stage, compacted, properties, refused, replayed, schema

# Registering


def test_the_same_schema_has_the_same_id_in_every_subject(stage: Stage) -> None:
    assert stage.register("s", "a") == 1
    assert stage.register("t", "b") == 2
    assert stage.register("t", "b, a?") == 3
    assert stage.register("u", "a") == 1
    assert stage.versions("t") == [1, 2]
    assert stage.versions("u") == [1]


def test_registering_again_writes_nothing(stage: Stage) -> None:
    stage.register("s", "a,b")
    before = len(stage.log)
    assert stage.register("s", "a, b") == 1
    assert len(stage.log) == before
    assert stage.versions("s") == [1]


def test_an_old_version_may_be_registered_again(stage: Stage) -> None:
    assert [stage.register("s", text) for text in ("a", "a,b?", "a")] == [1, 2, 1]
    assert stage.versions("s") == [1, 2]


def test_types_tell_equal_texts_apart(stage: Stage) -> None:
    assert stage.register("s", "a") == 1
    assert stage.register("t", "a", schema_type="JSON") == 2
    assert stage.register("u", "a", schema_type="AVRO") == 1


def test_ids_are_given_per_context(stage: Stage) -> None:
    assert stage.register("s", "a") == 1
    assert stage.register(":.c:s", "b") == 1
    assert stage.register(":.c:t", "c") == 2
    assert stage.register(":.:t", "d") == 2
    assert stage.state.contexts == {".c"}
    assert sum(b"CONTEXT" in key for key, _ in stage.log) == 1


def test_the_answer_is_the_id_alone(stage: Stage) -> None:
    decision = decisions.register(stage.state, "s", schema("a"))
    assert msgspec.json.encode(decision.result) == b'{"id":1}'


@pytest.mark.parametrize(("text", "message"), [("a!", "'!' at 1"), ("@b", "@b is not there")])
def test_a_text_that_is_no_schema(stage: Stage, text: str, message: str) -> None:
    with refused(42201, f"Invalid schema of type AVRO, details: {message}"):
        stage.register("s", text)
    assert stage.log == []


@pytest.mark.parametrize("text", [None, "", "  "])
def test_no_text_at_all(stage: Stage, text: str | None) -> None:
    with refused(42201, "Empty schema"):
        stage.register("s", text)
    stage.register("s", "a")
    # Without a text it is the previous one, perhaps with new metadata.
    decision = decisions.register(stage.state, "s", schema(text, metadata=properties(owner="me")))
    assert decision.result == RegisterSchemaResponse(id=2, version=2, metadata=properties(owner="me"), schema="a")
    stage.set_mode("s", "IMPORT", force=True)
    with refused(42201, "Empty schema"):
        stage.register("s", text, id=9)


@pytest.mark.parametrize("schema_type", ["XML", "avro", ""])
def test_an_unknown_type(stage: Stage, schema_type: str) -> None:
    with refused(42201, f"Invalid schema type {schema_type}"):
        stage.register("s", "a", schema_type=schema_type)


@pytest.mark.parametrize("subject", ["__GLOBAL", "a\tb", ":.__GLOBAL:s", ":*:s", "x" * (SUBJECT_LENGTH_MAX + 1)])
def test_an_invalid_subject(stage: Stage, subject: str) -> None:
    with refused(42208, "is not a valid."):
        stage.register(subject, "a")


def test_normal_forms_are_the_same_schema_if_asked_for(stage: Stage) -> None:
    stage.register("s", "b,a")
    normal = decisions.register(stage.state, "s", schema("a,b"), normalize=True)
    assert stage.carry_out(normal).id == 2
    assert stage.carry_out(decisions.register(stage.state, "s", schema("b, a"), normalize=True)).id == 2
    stage.configure("t", normalize=True)
    assert stage.register("t", "b,a") == 2
    stage.configure(None, normalize=True)
    assert stage.register("u", "b,a") == 2


# Compatibility


def test_an_incompatible_schema_is_refused(stage: Stage) -> None:
    stage.register("s", "a")
    with refused(409, "[{errorType:'MISSING', description:'new has a field that old lacks', additionalInfo:'b'}, "):
        stage.register("s", "a,b")
    with refused(409, "{oldSchemaVersion: 1}, {oldSchema: 'a'}, {validateFields: 'false', compatibility: 'BACKWARD'}]"):
        stage.register("s", "a,b")
    assert stage.versions("s") == [1]


def test_a_level_holds_for_its_subject(stage: Stage) -> None:
    stage.register("s", "a")
    stage.configure("s", compatibility_level="none")
    assert stage.register("s", "b") == 2
    stage.configure("s", compatibility_level="FORWARD")
    assert stage.register("s", "b,c") == 3
    with refused(409):
        stage.register("s", "c")


def test_transitive_levels_look_at_all_versions(stage: Stage) -> None:
    stage.register("s", "a")
    stage.register("s", "a,b?")
    stage.configure(None, compatibility_level="BACKWARD_TRANSITIVE")
    with refused(409, "{oldSchemaVersion: 1}"):
        stage.register("s", "a,b")
    stage.configure(None, compatibility_level="BACKWARD")
    assert stage.register("s", "a,b") == 3


def test_deleted_versions_are_not_compared_with(stage: Stage) -> None:
    stage.register("s", "a")
    stage.register("s", "a,b?")
    stage.delete("s", "2")
    with refused(409, "{oldSchemaVersion: 1}"):
        stage.register("s", "a,b")
    stage.delete("s", "1")
    assert stage.register("s", "c") == 3


def test_groups_are_compared_among_themselves(stage: Stage) -> None:
    stage.configure("s", compatibility_group="major")
    stage.register("s", "a", metadata=properties(major="1"))
    stage.register("s", "b", metadata=properties(major="2"))
    stage.register("s", "a,c?", metadata=properties(major="1"))
    with refused(409, "{oldSchemaVersion: 2}"):
        stage.register("s", "a", metadata=properties(major="2"))


def test_another_type_is_incompatible(stage: Stage) -> None:
    stage.register("s", "a")
    with refused(409, "Incompatible because of different schema type"):
        stage.register("s", "a", schema_type="JSON")


# Deleting


def test_a_deleted_schema_comes_back_as_a_new_version_with_its_id(stage: Stage) -> None:
    stage.register("s", "a")
    stage.register("t", "b")
    assert stage.delete("s", "latest") == [1]
    assert stage.versions("s") == [-1]
    assert stage.register("s", "a") == 1
    assert stage.versions("s") == [2]
    assert stage.delete("s") == [2]
    assert stage.register("s", "a") == 1
    assert stage.versions("s") == [3]


def test_a_deleted_version_stays_if_something_refers_to_it(stage: Stage) -> None:
    stage.register("s", "a")
    stage.register("t", "@a", ("a", "s", 1))
    stage.delete("t")
    stage.delete("s")
    stage.register("s", "a")
    assert stage.versions("s") == [-1, 2]


def test_deleting_a_subject_twice(stage: Stage) -> None:
    with refused(40401):
        stage.delete("s")
    stage.register("s", "a")
    stage.register("s", "a,b?")
    with refused(40405):
        stage.delete("s", permanent=True)
    stage.delete("s", "1")
    assert stage.delete("s") == [2]
    with refused(40404):
        stage.delete("s")
    assert stage.delete("s", permanent=True) == [1, 2]
    with refused(40401):
        stage.delete("s", permanent=True)


def test_deleting_a_version_twice(stage: Stage) -> None:
    with refused(40401):
        stage.delete("s", "1")
    stage.register("s", "a")
    stage.register("s", "a,b?")
    with refused(40402, "Version 3 not found."):
        stage.delete("s", "3")
    with refused(42202, "'0'"):
        stage.delete("s", "0")
    with refused(40407):
        stage.delete("s", "1", permanent=True)
    assert stage.delete("s", "1") == [1]
    with refused(40406):
        stage.delete("s", "1")
    assert stage.delete("s", "1", permanent=True) == [1]
    with refused(40402):
        stage.delete("s", "1", permanent=True)
    assert stage.delete("s", "-1") == [2]
    with refused(40402, "Version -1 not found."):
        stage.delete("s", "latest")


def test_settings_go_with_the_last_version(stage: Stage) -> None:
    for subject in ("s", "t"):
        stage.register(subject, "a")
        stage.register(subject, "a,b?")
        stage.configure(subject, compatibility_level="NONE")
        stage.set_mode(subject, "READWRITE")
    stage.delete("s")
    stage.delete("t", "1")
    assert (list(stage.state.configs), list(stage.state.modes)) == (["t"], ["t"])
    stage.delete("t", "2")
    assert (stage.state.configs, stage.state.modes) == ({}, {})
    # What is set for a subject that has nothing yet, or nothing any more, stays.
    stage.configure("t", compatibility_level="FULL")
    stage.delete("t", "1", permanent=True)
    stage.delete("t", permanent=True)
    assert list(stage.state.configs) == ["t"]


def test_an_id_is_never_given_twice(stage: Stage) -> None:
    stage.register("s", "a")
    assert stage.register("s", "a,b?") == 2
    stage.delete("s")
    stage.delete("s", permanent=True)
    assert replayed(compacted(stage.log)).max_id(".") == 2
    # What is gone for good is forgotten, and its text is new again.
    assert stage.register("s", "a") == 3


def test_deletes_survive_compaction(stage: Stage) -> None:
    """A later delete of the subject replaces the record of an earlier one, and must delete all that it did."""
    stage.register("s", "a")
    stage.register("s", "b?")
    stage.delete("s")
    stage.set_mode("s", "IMPORT", force=True)
    stage.register("s", "a", id=1, version=1)
    stage.delete("s")
    assert replayed(compacted(stage.log)) == stage.state


# Which schemas are the same


def test_a_schema_with_its_references_in_its_text_is_the_same(stage: Stage) -> None:
    stage.register("address", "street")
    stage.register("person", "name,@address", ("address", "address", 1))
    assert stage.register("person", "name,street") == 2
    assert stage.versions("person") == [1]


def test_what_is_not_understood_here_is_no_schema_that_someone_sends(stage: Stage) -> None:
    reference = SchemaReference(name="x", subject="nothing", version=1)
    written = SchemaValue(subject="s", version=1, id=1, schema="@x", references=(reference,))
    stage.state.replay(*schema_record(written))
    with refused(40403):
        queries.look_up(stage.state, "s", schema("a"))
    message = (
        "Version 1 of subject 's' cannot be parsed: Invalid schema of type AVRO, details: No schema reference found"
    )
    with refused(42201, message):
        stage.register("s", "a")
    answer = queries.test_compatibility(stage.state, "s", schema("a"), version="1", normalize=False, verbose=True)
    assert answer.messages is not None
    assert answer.messages[0].startswith(message)
    stage.configure("s", compatibility_level="NONE")
    assert stage.register("s", "a") == 2


def written_elsewhere(stage: Stage, text: str, *, version: int = 1) -> None:
    """By another registry, as a version of "s" with an id of 6 and its version."""
    stage.state.replay(*schema_record(SchemaValue(subject="s", version=version, id=6 + version, schema=text)))


def test_only_what_is_new_has_to_be_valid_in_all_parts(stage: Stage) -> None:
    written_elsewhere(stage, "a~")
    assert stage.register("s", "a~") == 7
    assert queries.look_up(stage.state, "s", schema("a~")).id == 7
    assert stage.log == []
    for subject, text in [("s", "b~?"), ("t", "a~")]:
        with refused(42201, "'~' at 1"):
            stage.register(subject, text)
    with refused(42201, "'~' at 1"):
        queries.test_compatibility(stage.state, "s", schema("a~"), version=None, normalize=False, verbose=False)
    stage.set_mode("s", "IMPORT", force=True)
    assert stage.register("s", "b~", id=9) == 9


@pytest.mark.parametrize("text", ["a, b", "a,b", " a , b "])
def test_texts_of_another_printer_are_the_same(stage: Stage, text: str) -> None:
    written_elsewhere(stage, "a ,b")
    assert stage.register("s", text) == 7
    assert queries.look_up(stage.state, "s", schema(text)).schema == "a ,b"
    assert stage.log == []
    with refused(40403):
        queries.look_up(stage.state, "s", schema("a"))


def test_texts_of_another_printer_are_not_parsed_every_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if they are too long to be remembered."""
    long = "x" * 50_000
    for version in (1, 2, 3):
        written_elsewhere(stage, f"a{version} , {long}", version=version)
    parsed: list[str] = []
    parse = FakeFormat.parse_registered

    def count(self: FakeFormat, text: str, *rest: Any) -> FakeSchema:
        parsed.append(text[:2])
        return parse(self, text, *rest)

    monkeypatch.setattr(FakeFormat, "parse_registered", count)
    for _ in range(2):
        with refused(40403):
            queries.look_up(stage.state, "s", schema("other"))
    assert sorted(parsed) == ["a1", "a2", "a3", "ot"]
    assert queries.look_up(stage.state, "s", schema(f"a2,{long}")).version == 2


def test_large_schemas_are_not_remembered(stage: Stage) -> None:
    stage.register("small", "a")
    before = candidates.parse_text.cache_info().currsize
    assert before > 0
    stage.register("large", "x" * 100_000)
    stage.register("of a small one", "@s", ("s", "small", 1))
    remembered = candidates.parse_text.cache_info().currsize
    with refused(40401):
        queries.look_up(stage.state, "s", schema("@l", ("l", "large", 1)))
    assert candidates.parse_text.cache_info().currsize == remembered > before


# Importing


def test_an_import_gives_ids_and_versions(stage: Stage) -> None:
    with refused(42205, "Subject s in context  is not in import mode"):
        stage.register("s", "a", id=10)
    stage.set_mode("s", "IMPORT")
    with refused(42205, "Subject s in context  is not in read-write mode"):
        stage.register("s", "a")
    assert stage.register("s", "a", id=10, version=3) == 10
    # Nothing is compared.
    assert stage.register("s", "b", id=5) == 5
    assert stage.versions("s") == [3, 4]
    assert stage.register("s", "a", id=10, version=3) == 10
    assert len(stage.state.versions("s")) == 2
    stage.set_mode("s", "READWRITE")
    assert stage.register("s", "b,c?") == 11


def test_an_import_does_not_change_what_an_id_means(stage: Stage) -> None:
    stage.set_mode(":.c:s", "IMPORT")
    stage.register(":.c:s", "a", id=10)
    with refused(42205, "Overwrite new schema with id 10 in context :.c: is not permitted."):
        stage.register(":.c:s", "b", id=10)
    assert stage.register(":.c:s", "a", id=10, version=7) == 10
    assert stage.versions(":.c:s") == [1, 7]


def test_an_import_may_give_a_schema_another_id(stage: Stage) -> None:
    stage.register("t", "a")
    stage.set_mode("s", "IMPORT")
    assert stage.register("s", "a", id=10) == 10
    stage.carry_out(decisions.delete_mode(stage.state, "s"))
    # The subject's own id first, elsewhere the first one.
    assert stage.register("s", "a") == 10
    assert stage.register("u", "a") == 1


def test_an_overwritten_version_does_not_give_its_id_back(stage: Stage) -> None:
    stage.set_mode("s", "IMPORT")
    stage.register("s", "a", id=10, version=1)
    stage.register("s", "b", id=5, version=1)
    assert replayed(compacted(stage.log)) == stage.state
    assert stage.state.max_id(".") == 10


def test_ids_run_out(stage: Stage) -> None:
    stage.set_mode("s", "IMPORT")
    stage.register("s", "a", id=2**31 - 1)
    with refused(50001):
        stage.register("t", "b")


def test_versions_run_out(stage: Stage) -> None:
    stage.set_mode("s", "IMPORT")
    stage.register("s", "a", id=1, version=2**31 - 1)
    with refused(42202, "'2147483648'"):
        stage.register("s", "b", id=2)
    assert stage.register("s", "b", id=2, version=5) == 2
    stage.set_mode("s", "READWRITE")
    with refused(42202):
        stage.register("s", "c?")
    assert stage.delete("s") == [5, 2**31 - 1]


def test_a_version_must_follow_on_the_last(stage: Stage) -> None:
    stage.register("s", "a")
    with refused(42201, "Version is not one more than previous version"):
        stage.register("s", "a,b?", version=3)
    decision = decisions.register(stage.state, "s", schema("a,b?", version=2))
    assert decision.result.version == 2
    assert decision.result.metadata == Metadata(properties={"confluent:version": "2"})
    stage.carry_out(decision)
    # Its version in the metadata makes it no other schema.
    assert stage.register("s", "a,b?") == 2
    assert stage.register("s", "a,b?", version=-1) == 2
    assert stage.versions("s") == [1, 2]


# Metadata and rules


def test_metadata_makes_a_difference_and_is_inherited(stage: Stage) -> None:
    assert stage.register("s", "a") == 1
    assert stage.register("s", "a", metadata=properties(owner="me")) == 2
    decision = decisions.register(stage.state, "s", schema("a,b?"))
    assert decision.result.metadata == properties(owner="me")
    assert stage.register("s", "a") == 1


def test_defaults_and_overrides_of_the_config(stage: Stage) -> None:
    stage.configure("s", default_metadata=properties(owner="all", kind="x"), override_metadata=properties(kind="y"))
    decision = decisions.register(stage.state, "s", schema("a", metadata=properties(owner="me")))
    assert decision.result.metadata == properties(kind="y", owner="me")
    assert stage.carry_out(decision).id == 1
    assert stage.register("s", "a", metadata=properties(owner="me")) == 1
    assert stage.versions("s") == [1]


def test_rules_are_kept_for_the_clients(stage: Stage) -> None:
    rules = RuleSet(domain_rules=(Rule(name="check", mode="WRITE", type="CEL", expr="true"),))
    stage.register("s", "a", rule_set=rules)
    assert queries.get_version(stage.state, "s", "1").rule_set == rules
    with refused(42210, "Missing rule type"):
        stage.register("s", "b", rule_set=RuleSet(domain_rules=(Rule(name="check", mode="WRITE"),)))


@pytest.mark.parametrize(
    "tags", [{"schema_tags_to_add": [{}]}, {"schema_tags_to_remove": [{}]}, {"propagate_schema_tags": True}]
)
def test_tags_are_refused(stage: Stage, tags: dict[str, Any]) -> None:
    with refused(42201, "Schema tags are not supported"):
        stage.register("s", "a", **tags)
    assert stage.register("s", "a", schema_tags_to_add=[], propagate_schema_tags=False) == 1


# Aliases


def test_an_alias_stands_for_its_subject(stage: Stage) -> None:
    stage.register("s", "a")
    stage.configure("old", alias="s")
    stage.configure(":.c:old", alias="s")
    assert stage.register("old", "a,b?") == 2
    assert stage.versions("s") == stage.versions("old") == [1, 2]
    stage.register(":.c:old", "z")
    assert stage.versions(":.c:s") == [1]
    assert stage.delete("old", "1") == [1]
    assert stage.delete("old") == [2]
