import msgspec
import pytest

from rookery.registry import commands, queries
from rookery.registry.entities import (
    CompatibilityCheckResponse,
    Rule,
    RuleSet,
    Schema,
    SchemaReference,
    SchemaString,
    SubjectVersion,
)
from tests.registry.harness import Harness, properties, raises_code, schema


@pytest.fixture
def filled(harness: Harness) -> Harness:
    """`s` has a deleted version, `t` has only a deleted one; `z` is in the context `.c`; `person` refers to `s`."""
    harness.register("s", "a")
    harness.register("s", "a,b?")
    harness.register("t", "a")
    harness.register(":.c:z", "z")
    harness.register("person", "@s", ("s", "s", 2))
    harness.delete("s", "1")
    harness.delete("t")
    return harness


# Subjects and versions


def test_subjects(filled: Harness) -> None:
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
def test_pages(harness: Harness, offset: int, limit: int, found: str) -> None:
    for subject in "cab":
        harness.register(subject, "x")
    assert queries.list_subjects(harness.state, offset=offset, limit=limit) == list(found)
    assert queries.subjects_of(harness.state, 1, offset=offset, limit=limit) == list(found)
    versions = queries.versions_of(harness.state, 1, offset=offset, limit=limit)
    assert [version.subject for version in versions] == list(found)
    schemas = queries.list_schemas(harness.state, offset=offset, limit=limit)
    assert [schema.subject for schema in schemas] == list(found)


def test_versions(filled: Harness) -> None:
    state = filled.state
    assert queries.list_versions(state, "s") == [2]
    assert queries.list_versions(state, "s", deleted=True) == [1, 2]
    assert queries.list_versions(state, "s", deleted_only=True) == [1]
    assert queries.list_versions(state, "s", deleted_as_negative=True) == [-1, 2]
    assert queries.list_versions(state, "s", deleted=True, offset=1, limit=1) == [2]
    assert queries.list_versions(state, "t", deleted=True) == [1]
    for subject in ("t", "nothing"):
        with raises_code(40401, f"Subject '{subject}' not found."):
            queries.list_versions(state, subject)


def test_a_version(filled: Harness) -> None:
    state = filled.state
    latest = Schema(subject="s", version=2, id=2, schema="a,b?")
    for version in ("2", "latest", "LATEST", "-1", " 2 "):
        assert queries.get_version(state, "s", version) == latest
    assert msgspec.json.encode(latest) == b'{"subject":"s","version":2,"id":2,"schema":"a,b?"}'
    with raises_code(40402, "Version 1 not found."):
        queries.get_version(state, "s", "1")
    assert queries.get_version(state, "s", "1", deleted=True).id == 1
    with raises_code(40401):
        queries.get_version(state, "t", "latest")
    with raises_code(40402, "Version -1 not found."):
        queries.get_version(state, "t", "latest", deleted=True)
    with raises_code(40401):
        queries.get_version(state, ":.c:t", "1")


@pytest.mark.parametrize("version", ["0", "-2", "1.5", "", "first", str(2**31), "9" * 5000, "+-1", "0x1"])
def test_an_invalid_version(harness: Harness, version: str) -> None:
    with raises_code(42202, "Allowed values are between [1, 2^31-1]"):
        queries.get_version(harness.state, "s", version)


def test_a_subject_without_a_context_is_looked_up_in_all(harness: Harness) -> None:
    harness.register(":.c:s", "z")
    assert queries.get_version(harness.state, "s", "1").subject == ":.c:s"
    assert queries.look_up(harness.state, "s", schema("z")).subject == ":.c:s"
    assert queries.get_by_id(harness.state, 1, subject="s").schema == "z"
    with raises_code(40401):
        queries.get_version(harness.state, ":.d:s", "1")
    with raises_code(40403):
        queries.get_by_id(harness.state, 1)


def test_other_forms_of_a_text(filled: Harness) -> None:
    state = filled.state
    assert queries.get_version(state, "person", "1", format="resolved").schema == "a,b?"
    assert queries.get_by_id(state, 3, format="resolved").schema == "a,b?"
    assert queries.get_version(state, "person", "1", format=" ").schema == "@s"
    lookup = schema("@s", ("s", "s", 2))
    assert queries.look_up(state, "person", lookup, format="resolved").schema == "a,b?"


def test_references_with_their_context(harness: Harness) -> None:
    harness.register(":.c:s", "a")
    harness.register(":.c:person", "@s", ("s", "s", 1))
    qualified = (SchemaReference(name="s", subject=":.c:s", version=1),)
    version = queries.get_version(harness.state, ":.c:person", "1", reference_format="qualified")
    by_id = queries.get_by_id(harness.state, 2, subject=":.c:", reference_format="qualified")
    assert version.references == by_id.references == qualified
    assert queries.get_version(harness.state, ":.c:person", "1").references[0].subject == "s"


def test_the_latest_with_metadata(harness: Harness) -> None:
    harness.register("s", "a", metadata=properties(major="1", owner="me"))
    harness.register("s", "a,b?", metadata=properties(major="1"))
    harness.register("s", "a,c?", metadata=properties(major="2"))

    def find(**expected: str) -> int:
        return queries.get_latest_with_metadata(harness.state, "s", properties=expected).version

    assert (find(), find(major="1"), find(major="1", owner="me"), find(major="2")) == (3, 2, 1, 3)
    with raises_code(40403):
        find(major="3")
    with raises_code(40401):
        queries.get_latest_with_metadata(harness.state, "t", properties={})


# Ids


def test_a_schema_by_its_id(filled: Harness) -> None:
    state = filled.state
    assert queries.get_by_id(state, 1) == SchemaString(schema="a")
    assert msgspec.json.encode(queries.get_by_id(state, 1)) == b'{"schema":"a"}'
    assert queries.get_by_id(state, 1, fetch_max_id=True) == SchemaString(schema="a", max_id=3)
    assert queries.get_by_id(state, 1, subject=":.c:z") == SchemaString(schema="z")
    assert queries.get_by_id(state, 1, subject=":.c:") == SchemaString(schema="z")
    # A subject that does not have the id does not hide it.
    assert queries.get_by_id(state, 1, subject="nothing") == SchemaString(schema="a")
    for subject in (":.c:nothing", ":.d:"):
        with raises_code(40403, "Schema 1 not found"):
            queries.get_by_id(state, 1, subject=subject)
    with raises_code(40403, "Schema 9 not found"):
        queries.get_by_id(state, 9)


def test_a_type_other_than_avro_is_returned(harness: Harness) -> None:
    harness.register("s", "a", schema_type="JSON")
    assert msgspec.json.encode(queries.get_by_id(harness.state, 1)) == b'{"schemaType":"JSON","schema":"a"}'


def test_subjects_and_versions_of_an_id(filled: Harness) -> None:
    state = filled.state
    assert queries.subjects_of(state, 1) == []
    assert queries.subjects_of(state, 1, deleted=True) == ["s", "t"]
    assert queries.versions_of(state, 2) == [SubjectVersion(subject="s", version=2)]
    assert queries.versions_of(state, 1, subject=":.c:") == [SubjectVersion(subject=":.c:z", version=1)]
    for function in (queries.subjects_of, queries.versions_of):
        with raises_code(40403, "Schema not found"):
            function(state, 9)


def test_referrers_of_a_version(filled: Harness) -> None:
    state = filled.state
    assert queries.referenced_by(state, "s", "2") == [3]
    assert queries.referenced_by(state, "s", "latest") == [3]
    assert queries.referenced_by(state, "s", "1") == []
    filled.delete("person")
    assert queries.referenced_by(state, "s", "2") == []
    assert queries.referenced_by(state, "s", "2", deleted=True) == [3]
    with raises_code(40402):
        queries.referenced_by(state, "s", "9")
    with raises_code(40401):
        queries.referenced_by(state, "nothing", "1")
    with raises_code(42202):
        queries.referenced_by(state, "s", "zero")


# Lists


def test_schemas(filled: Harness) -> None:
    def listed(**options: bool | str) -> list[tuple[str, int]]:
        return [(each.subject, each.version) for each in queries.list_schemas(filled.state, **options)]  # type: ignore[arg-type]  # any of them

    assert listed() == [("person", 1), ("s", 2)]
    assert listed(deleted=True) == [("person", 1), ("s", 1), ("s", 2), ("t", 1)]
    assert listed(deleted=True, latest_only=True) == [("person", 1), ("s", 2), ("t", 1)]
    assert listed(prefix=":*:") == [(":.c:z", 1), ("person", 1), ("s", 2)]
    assert listed(prefix="per") == [("person", 1)]
    assert listed(rule_type="CEL") == []


def test_schemas_with_rules(harness: Harness) -> None:
    rules = RuleSet(migration_rules=(Rule(name="up", mode="UPGRADE", type="JSONATA"),))
    harness.register("s", "a", rule_set=rules)
    assert [each.subject for each in queries.list_schemas(harness.state, rule_type="JSONATA")] == ["s"]
    assert queries.list_schemas(harness.state, rule_type="CEL") == []


def test_schemas_with_their_aliases(harness: Harness) -> None:
    harness.register("s", "a")
    harness.configure("old", alias="s")
    harness.configure("older", alias="s")
    found = queries.list_schemas(harness.state, prefix="old", aliases=True)
    assert [(each.subject, each.aliases) for each in found] == [("s", ("old", "older"))]
    assert queries.list_schemas(harness.state, prefix="old") == []


def test_the_number_of_schemas_is_limited(harness: Harness) -> None:
    for number in range(1001):
        harness.register(f"s{number:04}", "a")
    assert len(queries.list_schemas(harness.state)) == 1000
    assert len(queries.list_schemas(harness.state, limit=2000)) == 1000
    assert len(queries.list_schemas(harness.state, offset=1000)) == 1


def test_contexts(filled: Harness) -> None:
    assert queries.list_contexts(filled.state) == [".", ".c"]
    assert queries.list_contexts(filled.state, prefix=".c") == [".c"]
    assert queries.list_contexts(filled.state, offset=1) == [".c"]


# Looking up


def test_a_schema_is_looked_up(filled: Harness) -> None:
    state = filled.state
    assert queries.look_up(state, "s", schema("a, b?")) == Schema(subject="s", version=2, id=2, schema="a,b?")
    with raises_code(40403, "Schema not found"):
        queries.look_up(state, "s", schema("a"))
    assert queries.look_up(state, "s", schema("a"), deleted=True).version == 1
    with raises_code(40403):
        queries.look_up(state, "s", schema(""))
    with raises_code(40401):
        queries.look_up(state, "nothing", schema("a"))
    with raises_code(42201, "details: '!' at 0"):
        queries.look_up(state, "s", schema("!"))


def test_a_schema_is_looked_up_in_normal_form(harness: Harness) -> None:
    harness.register("s", "a,b")
    with raises_code(40403):
        queries.look_up(harness.state, "s", schema("b,a"))
    assert queries.look_up(harness.state, "s", schema("b,a"), normalize=True).version == 1
    harness.configure("s", normalize=True)
    assert queries.look_up(harness.state, "s", schema("b,a")).version == 1


def test_a_schema_is_looked_up_with_inherited_metadata(harness: Harness) -> None:
    harness.register("s", "a", metadata=properties(owner="me"))
    harness.register("s", "a,b?")
    assert queries.look_up(harness.state, "s", schema("a,b?")).metadata == properties(owner="me")


# Compatibility


def check(
    harness: Harness, text: str, *, version: str | None = None, verbose: bool = False
) -> CompatibilityCheckResponse:
    return queries.test_compatibility(
        harness.state, "s", schema(text), version=version, normalize=False, verbose=verbose
    )


def test_compatibility_with_a_version(harness: Harness) -> None:
    assert check(harness, "a", version="latest").is_compatible
    with raises_code(40402, "Version 1 not found."):
        check(harness, "a", version="1")
    with raises_code(42202):
        check(harness, "a", version="none")
    harness.register("s", "a")
    harness.register("s", "a,b?")
    assert check(harness, "a,b", version="latest") == CompatibilityCheckResponse(is_compatible=True)
    assert check(harness, "a,b", version="1") == CompatibilityCheckResponse(is_compatible=False)
    assert msgspec.json.encode(check(harness, "a,b", version="1")) == b'{"is_compatible":false}'
    assert check(harness, "a", version="1", verbose=True) == CompatibilityCheckResponse(is_compatible=True, messages=())
    verbose = check(harness, "a,b", version="1", verbose=True)
    assert verbose.messages == (
        "{errorType:'MISSING', description:'new has a field that old lacks', additionalInfo:'b'}",
        "{oldSchemaVersion: 1}",
        "{oldSchema: 'a'}",
        "{validateFields: 'false', compatibility: 'BACKWARD'}",
    )
    harness.delete("s", "1")
    with raises_code(40402):
        check(harness, "a", version="1")


def test_compatibility_with_the_subject(harness: Harness) -> None:
    assert check(harness, "a").is_compatible
    harness.register("s", "a")
    harness.register("s", "a,b?")
    assert check(harness, "a,b").is_compatible
    harness.configure("s", compatibility_level="FULL_TRANSITIVE")
    assert not check(harness, "a,b").is_compatible
    harness.configure("s", compatibility_level="NONE")
    assert check(harness, "z").is_compatible


def test_compatibility_of_an_invalid_schema(harness: Harness) -> None:
    with raises_code(42201, "'!' at 0"):
        check(harness, "!")
    with raises_code(42201, "Empty schema"):
        check(harness, "")
    assert check(harness, "!", verbose=True) == CompatibilityCheckResponse(
        is_compatible=False, messages=("Invalid schema of type AVRO, details: '!' at 0",)
    )


def test_an_alias_is_queried_like_its_subject(filled: Harness) -> None:
    filled.configure("old", alias="s")
    state = filled.state
    assert queries.list_versions(state, "old") == [2]
    assert queries.get_version(state, "old", "latest").subject == "s"
    assert queries.look_up(state, "old", schema("a,b?")).subject == "s"
    assert queries.referenced_by(state, "old", "2") == [3]
    assert queries.get_by_id(state, 2, subject="old").schema == "a,b?"
    assert commands.delete_subject(filled.state, "t", permanent=True).result == [1]
