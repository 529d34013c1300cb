import msgspec
import pytest

from rookery.registry import decisions, queries
from rookery.registry.entities import (
    CompatibilityCheckResponse,
    Rule,
    RuleSet,
    Schema,
    SchemaReference,
    SchemaString,
    SubjectVersion,
)
from tests.registry.stage import Stage, properties, refused, schema


@pytest.fixture
def filled(stage: Stage) -> Stage:
    """`s` has a deleted version, `t` only that; `z` is in the context `.c`; `person` refers to `s`."""
    stage.register("s", "a")
    stage.register("s", "a,b?")
    stage.register("t", "a")
    stage.register(":.c:z", "z")
    stage.register("person", "@s", ("s", "s", 2))
    stage.delete("s", "1")
    stage.delete("t")
    return stage


# Subjects and versions


def test_subjects(filled: Stage) -> None:
    state = filled.state
    assert queries.list_subjects(state) == [":.c:z", "person", "s"]
    assert queries.list_subjects(state, deleted=True) == [":.c:z", "person", "s", "t"]
    assert queries.list_subjects(state, deleted_only=True) == ["t"]
    assert queries.list_subjects(state, deleted=True, deleted_only=True) == ["t"]
    assert queries.list_subjects(state, prefix="") == ["person", "s"]
    assert queries.list_subjects(state, prefix=":*:z") == [":.c:z"]


@pytest.mark.parametrize(
    ("offset", "limit", "found"),
    [(0, -1, "abc"), (0, 0, "abc"), (0, 2, "ab"), (1, 1, "b"), (2, 5, "c"), (3, 1, ""), (-1, -1, "abc")],
)
def test_pages(stage: Stage, offset: int, limit: int, found: str) -> None:
    for subject in "cab":
        stage.register(subject, "x")
    assert queries.list_subjects(stage.state, offset=offset, limit=limit) == list(found)
    assert queries.subjects_of(stage.state, 1, offset=offset, limit=limit) == list(found)
    versions = queries.versions_of(stage.state, 1, offset=offset, limit=limit)
    assert [version.subject for version in versions] == list(found)
    schemas = queries.list_schemas(stage.state, offset=offset, limit=limit)
    assert [schema.subject for schema in schemas] == list(found)


def test_versions(filled: Stage) -> None:
    state = filled.state
    assert queries.list_versions(state, "s") == [2]
    assert queries.list_versions(state, "s", deleted=True) == [1, 2]
    assert queries.list_versions(state, "s", deleted_only=True) == [1]
    assert queries.list_versions(state, "s", deleted_as_negative=True) == [-1, 2]
    assert queries.list_versions(state, "s", deleted=True, offset=1, limit=1) == [2]
    assert queries.list_versions(state, "t", deleted=True) == [1]
    for subject in ("t", "nothing"):
        with refused(40401, f"Subject '{subject}' not found."):
            queries.list_versions(state, subject)


def test_a_version(filled: Stage) -> None:
    state = filled.state
    latest = Schema(subject="s", version=2, id=2, schema="a,b?")
    for version in ("2", "latest", "LATEST", "-1", " 2 "):
        assert queries.get_version(state, "s", version) == latest
    assert msgspec.json.encode(latest) == b'{"subject":"s","version":2,"id":2,"schema":"a,b?"}'
    with refused(40402, "Version 1 not found."):
        queries.get_version(state, "s", "1")
    assert queries.get_version(state, "s", "1", deleted=True).id == 1
    with refused(40401):
        queries.get_version(state, "t", "latest")
    with refused(40402, "Version -1 not found."):
        queries.get_version(state, "t", "latest", deleted=True)
    with refused(40401):
        queries.get_version(state, ":.c:t", "1")


@pytest.mark.parametrize("version", ["0", "-2", "1.5", "", "first", str(2**31), "9" * 5000, "+-1", "0x1"])
def test_an_invalid_version(stage: Stage, version: str) -> None:
    with refused(42202, "Allowed values are between [1, 2^31-1]"):
        queries.get_version(stage.state, "s", version)


def test_a_subject_without_a_context_is_looked_for_in_all(stage: Stage) -> None:
    stage.register(":.c:s", "z")
    assert queries.get_version(stage.state, "s", "1").subject == ":.c:s"
    assert queries.look_up(stage.state, "s", schema("z")).subject == ":.c:s"
    assert queries.get_by_id(stage.state, 1, subject="s").schema == "z"
    with refused(40401):
        queries.get_version(stage.state, ":.d:s", "1")
    with refused(40403):
        queries.get_by_id(stage.state, 1)


def test_other_forms_of_a_text(filled: Stage) -> None:
    state = filled.state
    assert queries.get_version(state, "person", "1", format="resolved").schema == "a,b?"
    assert queries.get_by_id(state, 3, format="resolved").schema == "a,b?"
    assert queries.get_version(state, "person", "1", format=" ").schema == "@s"
    lookup = schema("@s", ("s", "s", 2))
    assert queries.look_up(state, "person", lookup, format="resolved").schema == "a,b?"


def test_references_with_their_context(stage: Stage) -> None:
    stage.register(":.c:s", "a")
    stage.register(":.c:person", "@s", ("s", "s", 1))
    qualified = (SchemaReference(name="s", subject=":.c:s", version=1),)
    version = queries.get_version(stage.state, ":.c:person", "1", reference_format="qualified")
    by_id = queries.get_by_id(stage.state, 2, subject=":.c:", reference_format="qualified")
    assert version.references == by_id.references == qualified
    assert queries.get_version(stage.state, ":.c:person", "1").references[0].subject == "s"


def test_the_latest_with_metadata(stage: Stage) -> None:
    stage.register("s", "a", metadata=properties(major="1", owner="me"))
    stage.register("s", "a,b?", metadata=properties(major="1"))
    stage.register("s", "a,c?", metadata=properties(major="2"))

    def find(**wanted: str) -> int:
        return queries.get_latest_with_metadata(stage.state, "s", properties=wanted).version

    assert (find(), find(major="1"), find(major="1", owner="me"), find(major="2")) == (3, 2, 1, 3)
    with refused(40403):
        find(major="3")
    with refused(40401):
        queries.get_latest_with_metadata(stage.state, "t", properties={})


# Ids


def test_a_schema_by_its_id(filled: Stage) -> None:
    state = filled.state
    assert queries.get_by_id(state, 1) == SchemaString(schema="a")
    assert msgspec.json.encode(queries.get_by_id(state, 1)) == b'{"schema":"a"}'
    assert queries.get_by_id(state, 1, fetch_max_id=True) == SchemaString(schema="a", max_id=3)
    assert queries.get_by_id(state, 1, subject=":.c:z") == SchemaString(schema="z")
    assert queries.get_by_id(state, 1, subject=":.c:") == SchemaString(schema="z")
    # A subject that does not have it does not hide it.
    assert queries.get_by_id(state, 1, subject="nothing") == SchemaString(schema="a")
    for subject in (":.c:nothing", ":.d:"):
        with refused(40403, "Schema 1 not found"):
            queries.get_by_id(state, 1, subject=subject)
    with refused(40403, "Schema 9 not found"):
        queries.get_by_id(state, 9)


def test_a_type_other_than_avro_is_said(stage: Stage) -> None:
    stage.register("s", "a", schema_type="JSON")
    assert msgspec.json.encode(queries.get_by_id(stage.state, 1)) == b'{"schemaType":"JSON","schema":"a"}'


def test_who_has_an_id(filled: Stage) -> None:
    state = filled.state
    assert queries.subjects_of(state, 1) == []
    assert queries.subjects_of(state, 1, deleted=True) == ["s", "t"]
    assert queries.versions_of(state, 2) == [SubjectVersion(subject="s", version=2)]
    assert queries.versions_of(state, 1, subject=":.c:") == [SubjectVersion(subject=":.c:z", version=1)]
    for function in (queries.subjects_of, queries.versions_of):
        with refused(40403, "Schema not found"):
            function(state, 9)


def test_who_refers_to_a_version(filled: Stage) -> None:
    state = filled.state
    assert queries.referenced_by(state, "s", "2") == [3]
    assert queries.referenced_by(state, "s", "latest") == [3]
    assert queries.referenced_by(state, "s", "1") == []
    filled.delete("person")
    assert queries.referenced_by(state, "s", "2") == []
    assert queries.referenced_by(state, "s", "2", deleted=True) == [3]
    with refused(40402):
        queries.referenced_by(state, "s", "9")
    with refused(40401):
        queries.referenced_by(state, "nothing", "1")
    with refused(42202):
        queries.referenced_by(state, "s", "zero")


# Lists


def test_schemas(filled: Stage) -> None:
    def listed(**options: bool | str) -> list[tuple[str, int]]:
        return [(each.subject, each.version) for each in queries.list_schemas(filled.state, **options)]  # type: ignore[arg-type]  # any of them

    assert listed() == [("person", 1), ("s", 2)]
    assert listed(deleted=True) == [("person", 1), ("s", 1), ("s", 2), ("t", 1)]
    assert listed(deleted=True, latest_only=True) == [("person", 1), ("s", 2), ("t", 1)]
    assert listed(prefix=":*:") == [(":.c:z", 1), ("person", 1), ("s", 2)]
    assert listed(prefix="per") == [("person", 1)]
    assert listed(rule_type="CEL") == []


def test_schemas_with_rules(stage: Stage) -> None:
    rules = RuleSet(migration_rules=(Rule(name="up", mode="UPGRADE", type="JSONATA"),))
    stage.register("s", "a", rule_set=rules)
    assert [each.subject for each in queries.list_schemas(stage.state, rule_type="JSONATA")] == ["s"]
    assert queries.list_schemas(stage.state, rule_type="CEL") == []


def test_schemas_with_their_aliases(stage: Stage) -> None:
    stage.register("s", "a")
    stage.configure("old", alias="s")
    stage.configure("older", alias="s")
    found = queries.list_schemas(stage.state, prefix="old", aliases=True)
    assert [(each.subject, each.aliases) for each in found] == [("s", ("old", "older"))]
    assert queries.list_schemas(stage.state, prefix="old") == []


def test_there_is_a_most_of_schemas(stage: Stage) -> None:
    for number in range(1001):
        stage.register(f"s{number:04}", "a")
    assert len(queries.list_schemas(stage.state)) == 1000
    assert len(queries.list_schemas(stage.state, limit=2000)) == 1000
    assert len(queries.list_schemas(stage.state, offset=1000)) == 1


def test_contexts(filled: Stage) -> None:
    assert queries.list_contexts(filled.state) == [".", ".c"]
    assert queries.list_contexts(filled.state, prefix=".c") == [".c"]
    assert queries.list_contexts(filled.state, offset=1) == [".c"]


# Looking up


def test_a_schema_is_looked_up(filled: Stage) -> None:
    state = filled.state
    assert queries.look_up(state, "s", schema("a, b?")) == Schema(subject="s", version=2, id=2, schema="a,b?")
    with refused(40403, "Schema not found"):
        queries.look_up(state, "s", schema("a"))
    assert queries.look_up(state, "s", schema("a"), deleted=True).version == 1
    with refused(40403):
        queries.look_up(state, "s", schema(""))
    with refused(40401):
        queries.look_up(state, "nothing", schema("a"))
    with refused(42201, "details: '!' at 0"):
        queries.look_up(state, "s", schema("!"))


def test_a_schema_is_looked_up_in_normal_form(stage: Stage) -> None:
    stage.register("s", "a,b")
    with refused(40403):
        queries.look_up(stage.state, "s", schema("b,a"))
    assert queries.look_up(stage.state, "s", schema("b,a"), normalize=True).version == 1
    stage.configure("s", normalize=True)
    assert queries.look_up(stage.state, "s", schema("b,a")).version == 1


def test_a_schema_is_looked_up_with_the_metadata_that_it_inherited(stage: Stage) -> None:
    stage.register("s", "a", metadata=properties(owner="me"))
    stage.register("s", "a,b?")
    assert queries.look_up(stage.state, "s", schema("a,b?")).metadata == properties(owner="me")


# Compatibility


def check(stage: Stage, text: str, *, version: str | None = None, verbose: bool = False) -> CompatibilityCheckResponse:
    return queries.test_compatibility(stage.state, "s", schema(text), version=version, normalize=False, verbose=verbose)


def test_compatibility_with_a_version(stage: Stage) -> None:
    assert check(stage, "a", version="latest").is_compatible
    with refused(40402, "Version 1 not found."):
        check(stage, "a", version="1")
    with refused(42202):
        check(stage, "a", version="none")
    stage.register("s", "a")
    stage.register("s", "a,b?")
    assert check(stage, "a,b", version="latest") == CompatibilityCheckResponse(is_compatible=True)
    assert check(stage, "a,b", version="1") == CompatibilityCheckResponse(is_compatible=False)
    assert msgspec.json.encode(check(stage, "a,b", version="1")) == b'{"is_compatible":false}'
    assert check(stage, "a", version="1", verbose=True) == CompatibilityCheckResponse(is_compatible=True, messages=())
    verbose = check(stage, "a,b", version="1", verbose=True)
    assert verbose.messages == (
        "{errorType:'MISSING', description:'new has a field that old lacks', additionalInfo:'b'}",
        "{oldSchemaVersion: 1}",
        "{oldSchema: 'a'}",
        "{validateFields: 'false', compatibility: 'BACKWARD'}",
    )
    stage.delete("s", "1")
    with refused(40402):
        check(stage, "a", version="1")


def test_compatibility_with_the_subject(stage: Stage) -> None:
    assert check(stage, "a").is_compatible
    stage.register("s", "a")
    stage.register("s", "a,b?")
    assert check(stage, "a,b").is_compatible
    stage.configure("s", compatibility_level="FULL_TRANSITIVE")
    assert not check(stage, "a,b").is_compatible
    stage.configure("s", compatibility_level="NONE")
    assert check(stage, "z").is_compatible


def test_compatibility_of_what_is_no_schema(stage: Stage) -> None:
    with refused(42201, "'!' at 0"):
        check(stage, "!")
    with refused(42201, "Empty schema"):
        check(stage, "")
    assert check(stage, "!", verbose=True) == CompatibilityCheckResponse(
        is_compatible=False, messages=("Invalid schema of type AVRO, details: '!' at 0",)
    )


def test_an_alias_is_asked_for_like_its_subject(filled: Stage) -> None:
    filled.configure("old", alias="s")
    state = filled.state
    assert queries.list_versions(state, "old") == [2]
    assert queries.get_version(state, "old", "latest").subject == "s"
    assert queries.look_up(state, "old", schema("a,b?")).subject == "s"
    assert queries.referenced_by(state, "old", "2") == [3]
    assert queries.get_by_id(state, 2, subject="old").schema == "a,b?"
    assert decisions.delete_subject(filled.state, "t", permanent=True).result == [1]
