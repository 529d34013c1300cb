from typing import Any

import msgspec
import pytest

from rookery.registry import candidates, commands, queries
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
from tests.registry.harness import Harness, compacted, properties, raises_code, replayed, schema

# Registering


def test_the_same_schema_has_the_same_id_in_every_subject(harness: Harness) -> None:
    assert harness.register("s", "a") == 1
    assert harness.register("t", "b") == 2
    assert harness.register("t", "b, a?") == 3
    assert harness.register("u", "a") == 1
    assert harness.versions("t") == [1, 2]
    assert harness.versions("u") == [1]


def test_registering_again_writes_nothing(harness: Harness) -> None:
    harness.register("s", "a,b")
    before = len(harness.log)
    assert harness.register("s", "a, b") == 1
    assert len(harness.log) == before
    assert harness.versions("s") == [1]


def test_an_old_version_may_be_registered_again(harness: Harness) -> None:
    assert [harness.register("s", text) for text in ("a", "a,b?", "a")] == [1, 2, 1]
    assert harness.versions("s") == [1, 2]


def test_equal_texts_of_different_types_are_different_schemas(harness: Harness) -> None:
    assert harness.register("s", "a") == 1
    assert harness.register("t", "a", schema_type="JSON") == 2
    assert harness.register("u", "a", schema_type="AVRO") == 1


def test_ids_are_assigned_per_context(harness: Harness) -> None:
    assert harness.register("s", "a") == 1
    assert harness.register(":.c:s", "b") == 1
    assert harness.register(":.c:t", "c") == 2
    assert harness.register(":.:t", "d") == 2
    assert harness.state.contexts == {".c"}
    assert sum(b"CONTEXT" in key for key, _ in harness.log) == 1


def test_the_response_is_only_the_id(harness: Harness) -> None:
    decision = commands.register(harness.state, "s", schema("a"))
    assert msgspec.json.encode(decision.result) == b'{"id":1}'


@pytest.mark.parametrize(("text", "message"), [("a!", "'!' at 1"), ("@b", "@b is not there")])
def test_an_invalid_schema(harness: Harness, text: str, message: str) -> None:
    with raises_code(42201, f"Invalid schema of type AVRO, details: {message}"):
        harness.register("s", text)
    assert harness.log == []


@pytest.mark.parametrize("text", [None, "", "  "])
def test_a_missing_text(harness: Harness, text: str | None) -> None:
    with raises_code(42201, "Empty schema"):
        harness.register("s", text)
    harness.register("s", "a")
    # A missing text is the previous one, possibly with new metadata.
    decision = commands.register(harness.state, "s", schema(text, metadata=properties(owner="me")))
    assert decision.result == RegisterSchemaResponse(id=2, version=2, metadata=properties(owner="me"), schema="a")
    harness.set_mode("s", "IMPORT", force=True)
    with raises_code(42201, "Empty schema"):
        harness.register("s", text, id=9)


@pytest.mark.parametrize("schema_type", ["XML", "avro", ""])
def test_an_unknown_type(harness: Harness, schema_type: str) -> None:
    with raises_code(42201, f"Invalid schema type {schema_type}"):
        harness.register("s", "a", schema_type=schema_type)


@pytest.mark.parametrize("subject", ["__GLOBAL", "a\tb", ":.__GLOBAL:s", ":*:s", "x" * (SUBJECT_LENGTH_MAX + 1)])
def test_an_invalid_subject(harness: Harness, subject: str) -> None:
    with raises_code(42208, "is not a valid."):
        harness.register(subject, "a")


def test_normalized_schemas_are_the_same_schema(harness: Harness) -> None:
    harness.register("s", "b,a")
    normal = commands.register(harness.state, "s", schema("a,b"), normalize=True)
    assert harness.apply(normal).id == 2
    assert harness.apply(commands.register(harness.state, "s", schema("b, a"), normalize=True)).id == 2
    harness.configure("t", normalize=True)
    assert harness.register("t", "b,a") == 2
    harness.configure(None, normalize=True)
    assert harness.register("u", "b,a") == 2


# Compatibility


def test_an_incompatible_schema_is_rejected(harness: Harness) -> None:
    harness.register("s", "a")
    with raises_code(409, "[{errorType:'MISSING', description:'new has a field that old lacks', additionalInfo:'b'}, "):
        harness.register("s", "a,b")
    with raises_code(
        409, "{oldSchemaVersion: 1}, {oldSchema: 'a'}, {validateFields: 'false', compatibility: 'BACKWARD'}]"
    ):
        harness.register("s", "a,b")
    assert harness.versions("s") == [1]


def test_a_level_applies_to_its_subject(harness: Harness) -> None:
    harness.register("s", "a")
    harness.configure("s", compatibility_level="none")
    assert harness.register("s", "b") == 2
    harness.configure("s", compatibility_level="FORWARD")
    assert harness.register("s", "b,c") == 3
    with raises_code(409):
        harness.register("s", "c")


def test_transitive_levels_check_all_versions(harness: Harness) -> None:
    harness.register("s", "a")
    harness.register("s", "a,b?")
    harness.configure(None, compatibility_level="BACKWARD_TRANSITIVE")
    with raises_code(409, "{oldSchemaVersion: 1}"):
        harness.register("s", "a,b")
    harness.configure(None, compatibility_level="BACKWARD")
    assert harness.register("s", "a,b") == 3


def test_deleted_versions_are_not_compared(harness: Harness) -> None:
    harness.register("s", "a")
    harness.register("s", "a,b?")
    harness.delete("s", "2")
    with raises_code(409, "{oldSchemaVersion: 1}"):
        harness.register("s", "a,b")
    harness.delete("s", "1")
    assert harness.register("s", "c") == 3


def test_versions_are_compared_within_their_group(harness: Harness) -> None:
    harness.configure("s", compatibility_group="major")
    harness.register("s", "a", metadata=properties(major="1"))
    harness.register("s", "b", metadata=properties(major="2"))
    harness.register("s", "a,c?", metadata=properties(major="1"))
    with raises_code(409, "{oldSchemaVersion: 2}"):
        harness.register("s", "a", metadata=properties(major="2"))


def test_another_type_is_incompatible(harness: Harness) -> None:
    harness.register("s", "a")
    with raises_code(409, "Incompatible because of different schema type"):
        harness.register("s", "a", schema_type="JSON")


# Deleting


def test_a_deleted_schema_is_registered_again_as_a_new_version_with_its_id(harness: Harness) -> None:
    harness.register("s", "a")
    harness.register("t", "b")
    assert harness.delete("s", "latest") == [1]
    assert harness.versions("s") == [-1]
    assert harness.register("s", "a") == 1
    assert harness.versions("s") == [2]
    assert harness.delete("s") == [2]
    assert harness.register("s", "a") == 1
    assert harness.versions("s") == [3]


def test_a_deleted_version_stays_if_another_refers_to_it(harness: Harness) -> None:
    harness.register("s", "a")
    harness.register("t", "@a", ("a", "s", 1))
    harness.delete("t")
    harness.delete("s")
    harness.register("s", "a")
    assert harness.versions("s") == [-1, 2]


def test_deleting_a_subject_twice(harness: Harness) -> None:
    with raises_code(40401):
        harness.delete("s")
    harness.register("s", "a")
    harness.register("s", "a,b?")
    with raises_code(40405):
        harness.delete("s", permanent=True)
    harness.delete("s", "1")
    assert harness.delete("s") == [2]
    with raises_code(40404):
        harness.delete("s")
    assert harness.delete("s", permanent=True) == [1, 2]
    with raises_code(40401):
        harness.delete("s", permanent=True)


def test_deleting_a_version_twice(harness: Harness) -> None:
    with raises_code(40401):
        harness.delete("s", "1")
    harness.register("s", "a")
    harness.register("s", "a,b?")
    with raises_code(40402, "Version 3 not found."):
        harness.delete("s", "3")
    with raises_code(42202, "'0'"):
        harness.delete("s", "0")
    with raises_code(40407):
        harness.delete("s", "1", permanent=True)
    assert harness.delete("s", "1") == [1]
    with raises_code(40406):
        harness.delete("s", "1")
    assert harness.delete("s", "1", permanent=True) == [1]
    with raises_code(40402):
        harness.delete("s", "1", permanent=True)
    assert harness.delete("s", "-1") == [2]
    with raises_code(40402, "Version -1 not found."):
        harness.delete("s", "latest")


def test_settings_are_deleted_with_the_last_version(harness: Harness) -> None:
    for subject in ("s", "t"):
        harness.register(subject, "a")
        harness.register(subject, "a,b?")
        harness.configure(subject, compatibility_level="NONE")
        harness.set_mode(subject, "READWRITE")
    harness.delete("s")
    harness.delete("t", "1")
    assert (list(harness.state.configs), list(harness.state.modes)) == (["t"], ["t"])
    harness.delete("t", "2")
    assert (harness.state.configs, harness.state.modes) == ({}, {})
    # Settings of a subject without versions stay.
    harness.configure("t", compatibility_level="FULL")
    harness.delete("t", "1", permanent=True)
    harness.delete("t", permanent=True)
    assert list(harness.state.configs) == ["t"]


def test_an_id_is_never_assigned_twice(harness: Harness) -> None:
    harness.register("s", "a")
    assert harness.register("s", "a,b?") == 2
    harness.delete("s")
    harness.delete("s", permanent=True)
    assert replayed(compacted(harness.log)).max_id(".") == 2
    # A permanently deleted schema gets a new id when it is registered again.
    assert harness.register("s", "a") == 3


def test_deletes_survive_compaction(harness: Harness) -> None:
    """The record of a later deletion replaces that of an earlier one, and must delete the same versions."""
    harness.register("s", "a")
    harness.register("s", "b?")
    harness.delete("s")
    harness.set_mode("s", "IMPORT", force=True)
    harness.register("s", "a", id=1, version=1)
    harness.delete("s")
    assert replayed(compacted(harness.log)) == harness.state


# Equality of schemas


def test_a_schema_with_its_references_in_its_text_is_the_same(harness: Harness) -> None:
    harness.register("address", "street")
    harness.register("person", "name,@address", ("address", "address", 1))
    assert harness.register("person", "name,street") == 2
    assert harness.versions("person") == [1]


def test_an_unparsable_stored_schema_equals_no_request(harness: Harness) -> None:
    reference = SchemaReference(name="x", subject="nothing", version=1)
    written = SchemaValue(subject="s", version=1, id=1, schema="@x", references=(reference,))
    harness.state.replay(*schema_record(written))
    with raises_code(40403):
        queries.look_up(harness.state, "s", schema("a"))
    message = (
        "Version 1 of subject 's' cannot be parsed: Invalid schema of type AVRO, details: No schema reference found"
    )
    with raises_code(42201, message):
        harness.register("s", "a")
    answer = queries.test_compatibility(harness.state, "s", schema("a"), version="1", normalize=False, verbose=True)
    assert answer.messages is not None
    assert answer.messages[0].startswith(message)
    harness.configure("s", compatibility_level="NONE")
    assert harness.register("s", "a") == 2


def written_elsewhere(harness: Harness, text: str, *, version: int = 1) -> None:
    """Add a version of "s" that another registry wrote, with the id 6 plus its version."""
    harness.state.replay(*schema_record(SchemaValue(subject="s", version=version, id=6 + version, schema=text)))


def test_only_new_schemas_must_be_strictly_valid(harness: Harness) -> None:
    written_elsewhere(harness, "a~")
    assert harness.register("s", "a~") == 7
    assert queries.look_up(harness.state, "s", schema("a~")).id == 7
    assert harness.log == []
    for subject, text in [("s", "b~?"), ("t", "a~")]:
        with raises_code(42201, "'~' at 1"):
            harness.register(subject, text)
    with raises_code(42201, "'~' at 1"):
        queries.test_compatibility(harness.state, "s", schema("a~"), version=None, normalize=False, verbose=False)
    harness.set_mode("s", "IMPORT", force=True)
    assert harness.register("s", "b~", id=9) == 9


@pytest.mark.parametrize("text", ["a, b", "a,b", " a , b "])
def test_texts_of_another_printer_are_the_same(harness: Harness, text: str) -> None:
    written_elsewhere(harness, "a ,b")
    assert harness.register("s", text) == 7
    assert queries.look_up(harness.state, "s", schema(text)).schema == "a ,b"
    assert harness.log == []
    with raises_code(40403):
        queries.look_up(harness.state, "s", schema("a"))


def test_texts_of_another_printer_are_not_parsed_every_time(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if they are too long for the cache."""
    long = "x" * 50_000
    for version in (1, 2, 3):
        written_elsewhere(harness, f"a{version} , {long}", version=version)
    parsed: list[str] = []
    parse = FakeFormat.parse_registered

    def count(self: FakeFormat, text: str, *rest: Any) -> FakeSchema:
        parsed.append(text[:2])
        return parse(self, text, *rest)

    monkeypatch.setattr(FakeFormat, "parse_registered", count)
    for _ in range(2):
        with raises_code(40403):
            queries.look_up(harness.state, "s", schema("other"))
    assert sorted(parsed) == ["a1", "a2", "a3", "ot"]
    assert queries.look_up(harness.state, "s", schema(f"a2,{long}")).version == 2


def test_large_schemas_are_not_cached(harness: Harness) -> None:
    harness.register("small", "a")
    before = candidates.parse_text.cache_info().currsize
    assert before > 0
    harness.register("large", "x" * 100_000)
    harness.register("of a small one", "@s", ("s", "small", 1))
    remembered = candidates.parse_text.cache_info().currsize
    with raises_code(40401):
        queries.look_up(harness.state, "s", schema("@l", ("l", "large", 1)))
    assert candidates.parse_text.cache_info().currsize == remembered > before


# Importing


def test_an_import_sets_ids_and_versions(harness: Harness) -> None:
    with raises_code(42205, "Subject s in context  is not in import mode"):
        harness.register("s", "a", id=10)
    harness.set_mode("s", "IMPORT")
    with raises_code(42205, "Subject s in context  is not in read-write mode"):
        harness.register("s", "a")
    assert harness.register("s", "a", id=10, version=3) == 10
    # An import is not compared with other versions.
    assert harness.register("s", "b", id=5) == 5
    assert harness.versions("s") == [3, 4]
    assert harness.register("s", "a", id=10, version=3) == 10
    assert len(harness.state.versions("s")) == 2
    harness.set_mode("s", "READWRITE")
    assert harness.register("s", "b,c?") == 11


def test_an_import_does_not_change_the_schema_of_an_id(harness: Harness) -> None:
    harness.set_mode(":.c:s", "IMPORT")
    harness.register(":.c:s", "a", id=10)
    with raises_code(42205, "Overwrite new schema with id 10 in context :.c: is not permitted."):
        harness.register(":.c:s", "b", id=10)
    assert harness.register(":.c:s", "a", id=10, version=7) == 10
    assert harness.versions(":.c:s") == [1, 7]


def test_an_import_may_assign_another_id_to_a_schema(harness: Harness) -> None:
    harness.register("t", "a")
    harness.set_mode("s", "IMPORT")
    assert harness.register("s", "a", id=10) == 10
    harness.apply(commands.delete_mode(harness.state, "s"))
    # In the subject its own id, in others the lowest one.
    assert harness.register("s", "a") == 10
    assert harness.register("u", "a") == 1


def test_the_id_of_an_overwritten_version_is_not_assigned_again(harness: Harness) -> None:
    harness.set_mode("s", "IMPORT")
    harness.register("s", "a", id=10, version=1)
    harness.register("s", "b", id=5, version=1)
    assert replayed(compacted(harness.log)) == harness.state
    assert harness.state.max_id(".") == 10


def test_ids_run_out(harness: Harness) -> None:
    harness.set_mode("s", "IMPORT")
    harness.register("s", "a", id=2**31 - 1)
    with raises_code(50001):
        harness.register("t", "b")


def test_versions_run_out(harness: Harness) -> None:
    harness.set_mode("s", "IMPORT")
    harness.register("s", "a", id=1, version=2**31 - 1)
    with raises_code(42202, "'2147483648'"):
        harness.register("s", "b", id=2)
    assert harness.register("s", "b", id=2, version=5) == 2
    harness.set_mode("s", "READWRITE")
    with raises_code(42202):
        harness.register("s", "c?")
    assert harness.delete("s") == [5, 2**31 - 1]


def test_a_version_must_follow_the_last(harness: Harness) -> None:
    harness.register("s", "a")
    with raises_code(42201, "Version is not one more than previous version"):
        harness.register("s", "a,b?", version=3)
    decision = commands.register(harness.state, "s", schema("a,b?", version=2))
    assert decision.result.version == 2
    assert decision.result.metadata == Metadata(properties={"confluent:version": "2"})
    harness.apply(decision)
    # The version in the metadata does not make it a different schema.
    assert harness.register("s", "a,b?") == 2
    assert harness.register("s", "a,b?", version=-1) == 2
    assert harness.versions("s") == [1, 2]


# Metadata and rules


def test_metadata_distinguishes_schemas_and_is_inherited(harness: Harness) -> None:
    assert harness.register("s", "a") == 1
    assert harness.register("s", "a", metadata=properties(owner="me")) == 2
    decision = commands.register(harness.state, "s", schema("a,b?"))
    assert decision.result.metadata == properties(owner="me")
    assert harness.register("s", "a") == 1


def test_defaults_and_overrides_of_the_config(harness: Harness) -> None:
    harness.configure("s", default_metadata=properties(owner="all", kind="x"), override_metadata=properties(kind="y"))
    decision = commands.register(harness.state, "s", schema("a", metadata=properties(owner="me")))
    assert decision.result.metadata == properties(kind="y", owner="me")
    assert harness.apply(decision).id == 1
    assert harness.register("s", "a", metadata=properties(owner="me")) == 1
    assert harness.versions("s") == [1]


def test_rules_are_stored_for_the_clients(harness: Harness) -> None:
    rules = RuleSet(domain_rules=(Rule(name="check", mode="WRITE", type="CEL", expr="true"),))
    harness.register("s", "a", rule_set=rules)
    assert queries.get_version(harness.state, "s", "1").rule_set == rules
    with raises_code(42210, "Missing rule type"):
        harness.register("s", "b", rule_set=RuleSet(domain_rules=(Rule(name="check", mode="WRITE"),)))


@pytest.mark.parametrize(
    "tags", [{"schema_tags_to_add": [{}]}, {"schema_tags_to_remove": [{}]}, {"propagate_schema_tags": True}]
)
def test_tags_are_rejected(harness: Harness, tags: dict[str, Any]) -> None:
    with raises_code(42201, "Schema tags are not supported"):
        harness.register("s", "a", **tags)
    assert harness.register("s", "a", schema_tags_to_add=[], propagate_schema_tags=False) == 1


# Aliases


def test_an_alias_refers_to_its_subject(harness: Harness) -> None:
    harness.register("s", "a")
    harness.configure("old", alias="s")
    harness.configure(":.c:old", alias="s")
    assert harness.register("old", "a,b?") == 2
    assert harness.versions("s") == harness.versions("old") == [1, 2]
    harness.register(":.c:old", "z")
    assert harness.versions(":.c:s") == [1]
    assert harness.delete("old", "1") == [1]
    assert harness.delete("old") == [2]
