"""References between schemas: their resolution, and the deletions and overwrites that they prevent."""

import msgspec
import pytest

from rookery.registry import commands, queries
from rookery.registry.entities import RegisterSchemaRequest, SchemaReference
from rookery.registry.records import SchemaValue, schema_record
from tests.registry.harness import Harness, properties, raises_code, schema


def test_references_are_resolved(harness: Harness) -> None:
    harness.register("address", "street")
    harness.register("person", "name,@address", ("address", "address", 1))
    harness.register("company", "@person", ("person", "person", -1))
    found = queries.get_version(harness.state, "company", "1")
    assert found.references == (SchemaReference(name="person", subject="person", version=1),)
    with raises_code(42206, "subject=address,version=1}"):
        harness.delete("address", "1")
    with raises_code(42206, "subject=person,version=1}"):
        harness.delete("person")


def test_referrers_must_be_deleted_first(harness: Harness) -> None:
    harness.register("address", "street")
    harness.register("person", "@address", ("address", "address", 1))
    harness.delete("person")
    harness.delete("address")
    harness.delete("person", permanent=True)
    harness.delete("address", permanent=True)
    assert list(harness.state.subjects()) == []


@pytest.mark.parametrize("version", [None, "1"])
@pytest.mark.parametrize("target", ["address", ":.c:address"])
def test_a_deleted_schema_keeps_its_references(harness: Harness, version: str | None, target: str) -> None:
    """Consumers of records with its id still read it."""
    harness.register(target, "street")
    harness.register("person", "@address", ("address", target, 1))
    harness.delete("person")
    harness.delete(target, version)
    before = list(harness.log)
    with raises_code(42206, f"the schema {{magic=1,keytype=SCHEMA,subject={target},version=1}}."):
        harness.delete(target, version, permanent=True)
    assert harness.log == before
    found = queries.get_version(harness.state, "person", "1", deleted=True, format="resolved")
    assert found.schema == "street"
    harness.delete("person", version, permanent=True)
    harness.delete(target, version, permanent=True)
    assert list(harness.state.subjects()) == []


def test_a_reference_to_a_deleted_version_is_rejected_even_if_one_exists(harness: Harness) -> None:
    """A live version refers to a deleted one, as another registry may have written it."""
    harness.register("address", "street")
    harness.register("person", "@address", ("address", "address", 1))
    address = harness.state.find("address", 1)
    assert address is not None
    harness.state.replay(*schema_record(msgspec.structs.replace(address, deleted=True)))
    for version in (None, "1"):
        with raises_code(42206, "subject=address,version=1}"):
            harness.delete("address", version, permanent=True)


def test_versions_of_a_subject_may_refer_to_each_other(harness: Harness) -> None:
    harness.register("s", "a")
    harness.configure("s", compatibility_level="NONE")
    harness.register("s", "@a", ("a", "s", 1))
    with raises_code(42206, "subject=s,version=1}"):
        harness.delete("s", "1")
    assert harness.delete("s") == [1, 2]
    with raises_code(42206, "subject=s,version=1}"):
        harness.delete("s", "1", permanent=True)
    assert harness.delete("s", permanent=True) == [1, 2]


def test_unresolvable_references(harness: Harness) -> None:
    with raises_code(42201, 'No schema reference found for subject "address" and version 1'):
        harness.register("person", "@address", ("address", "address", 1))
    with raises_code(42201, 'No schema reference found for subject "address" and version -1'):
        harness.register("person", "@address", ("address", "address", -1))
    with raises_code(42201, "Invalid reference: {name='address', subject='None', version=1}"):
        incomplete = (SchemaReference(name="address", version=1),)
        commands.register(harness.state, "person", RegisterSchemaRequest(schema="@address", references=incomplete))


def test_a_new_schema_cannot_refer_to_a_deleted_one(harness: Harness) -> None:
    harness.register("address", "street")
    harness.register("person", "@address", ("address", "address", 1))
    harness.delete("person")
    harness.delete("address")
    with raises_code(42201, "No schema reference found"):
        harness.register("company", "@address", ("address", "address", 1))
    found = queries.look_up(harness.state, "person", schema("@address", ("address", "address", 1)), deleted=True)
    assert found.version == 1


def test_references_are_resolved_in_the_context(harness: Harness) -> None:
    harness.register("address", "street")
    with raises_code(42201, ":.c:address"):
        harness.register(":.c:person", "@address", ("address", "address", 1))
    harness.register(":.c:address", "street")
    assert harness.register(":.c:person", "@address", ("address", "address", 1)) == 2


@pytest.mark.parametrize("target", ["a", "b", "c"])
def test_circular_references_are_rejected(harness: Harness, target: str) -> None:
    """Only an import that overwrites a version could create one."""
    harness.register("a", "x")
    harness.register("b", "@a", ("a", "a", 1))
    harness.register("c", "@b", ("b", "b", 1), ("a", "a", 1))
    harness.set_mode(None, "IMPORT", force=True)
    before = list(harness.log)
    with raises_code(42201, 'Circular reference to subject "a" and version 1'):
        harness.register("a", "@t", ("t", target, 1), id=7, version=1)
    assert harness.log == before


def test_existing_circular_references(harness: Harness) -> None:
    """Another registry wrote them."""
    for number, (subject, other) in enumerate([("a", "b"), ("b", "a")]):
        references = (SchemaReference(name="x", subject=other, version=1),)
        value = SchemaValue(subject=subject, version=1, id=number, schema="@x", references=references)
        harness.state.replay(*schema_record(value))
    with raises_code(42201, 'Circular reference to subject "a" and version 1'):
        harness.register("c", "@a", ("a", "a", 1))


def test_a_referenced_version_is_not_overwritten(harness: Harness) -> None:
    harness.register("a", "x")
    harness.register("b", "@a", ("a", "a", 1))
    harness.set_mode(None, "IMPORT", force=True)
    with raises_code(42206, "subject=a,version=1}"):
        harness.register("a", "y", id=7, version=1)
    # For referrers its content is the same.
    assert harness.register("a", "x", id=7, version=1, metadata=properties(owner="me")) == 7
    harness.delete("b")
    with raises_code(42206, "subject=a,version=1}"):
        harness.register("a", "y", id=8, version=1)
    harness.delete("b", permanent=True)
    assert harness.register("a", "y", id=8, version=1) == 8


def test_the_depth_of_references_is_limited(harness: Harness) -> None:
    harness.register("s0", "x")
    for number in range(1, 101):
        harness.register(
            f"s{number}", "@x", ("x" if number == 1 else f"x{number}", f"s{number - 1}", 1), ("x", "s0", 1)
        )
    with raises_code(42201, "nested more than 100 levels deep"):
        harness.register("t", "@x", ("y", "s100", 1), ("x", "s0", 1))
