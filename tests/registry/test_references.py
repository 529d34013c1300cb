"""References between schemas: how they are resolved, and what they keep from being deleted or overwritten."""

import msgspec
import pytest

from rookery.registry import decisions, queries
from rookery.registry.entities import RegisterSchemaRequest, SchemaReference
from rookery.registry.records import SchemaValue, schema_record
from tests.registry.stage import Stage, properties, refused, schema


def test_references_are_resolved(stage: Stage) -> None:
    stage.register("address", "street")
    stage.register("person", "name,@address", ("address", "address", 1))
    stage.register("company", "@person", ("person", "person", -1))
    found = queries.get_version(stage.state, "company", "1")
    assert found.references == (SchemaReference(name="person", subject="person", version=1),)
    with refused(42206, "subject=address,version=1}"):
        stage.delete("address", "1")
    with refused(42206, "subject=person,version=1}"):
        stage.delete("person")


def test_what_refers_to_it_goes_first(stage: Stage) -> None:
    stage.register("address", "street")
    stage.register("person", "@address", ("address", "address", 1))
    stage.delete("person")
    stage.delete("address")
    stage.delete("person", permanent=True)
    stage.delete("address", permanent=True)
    assert list(stage.state.subjects()) == []


@pytest.mark.parametrize("version", [None, "1"])
@pytest.mark.parametrize("target", ["address", ":.c:address"])
def test_a_deleted_schema_keeps_what_it_refers_to(stage: Stage, version: str | None, target: str) -> None:
    """Its id is still read, by consumers of the records that have it."""
    stage.register(target, "street")
    stage.register("person", "@address", ("address", target, 1))
    stage.delete("person")
    stage.delete(target, version)
    before = list(stage.log)
    with refused(42206, f"the schema {{magic=1,keytype=SCHEMA,subject={target},version=1}}."):
        stage.delete(target, version, permanent=True)
    assert stage.log == before
    found = queries.get_version(stage.state, "person", "1", deleted=True, format="resolved")
    assert found.schema == "street"
    stage.delete("person", version, permanent=True)
    stage.delete(target, version, permanent=True)
    assert list(stage.state.subjects()) == []


def test_a_reference_that_was_restored_is_still_refused(stage: Stage) -> None:
    """A live version refers to a deleted one, whichever way that came to be in the log."""
    stage.register("address", "street")
    stage.register("person", "@address", ("address", "address", 1))
    address = stage.state.find("address", 1)
    assert address is not None
    stage.state.replay(*schema_record(msgspec.structs.replace(address, deleted=True)))
    for version in (None, "1"):
        with refused(42206, "subject=address,version=1}"):
            stage.delete("address", version, permanent=True)


def test_versions_of_a_subject_may_refer_to_each_other(stage: Stage) -> None:
    stage.register("s", "a")
    stage.configure("s", compatibility_level="NONE")
    stage.register("s", "@a", ("a", "s", 1))
    with refused(42206, "subject=s,version=1}"):
        stage.delete("s", "1")
    assert stage.delete("s") == [1, 2]
    with refused(42206, "subject=s,version=1}"):
        stage.delete("s", "1", permanent=True)
    assert stage.delete("s", permanent=True) == [1, 2]


def test_references_that_lead_nowhere(stage: Stage) -> None:
    with refused(42201, 'No schema reference found for subject "address" and version 1'):
        stage.register("person", "@address", ("address", "address", 1))
    with refused(42201, 'No schema reference found for subject "address" and version -1'):
        stage.register("person", "@address", ("address", "address", -1))
    with refused(42201, "Invalid reference: {name='address', subject='None', version=1}"):
        incomplete = (SchemaReference(name="address", version=1),)
        decisions.register(stage.state, "person", RegisterSchemaRequest(schema="@address", references=incomplete))


def test_what_is_new_does_not_refer_to_what_is_deleted(stage: Stage) -> None:
    stage.register("address", "street")
    stage.register("person", "@address", ("address", "address", 1))
    stage.delete("person")
    stage.delete("address")
    with refused(42201, "No schema reference found"):
        stage.register("company", "@address", ("address", "address", 1))
    found = queries.look_up(stage.state, "person", schema("@address", ("address", "address", 1)), deleted=True)
    assert found.version == 1


def test_references_are_meant_in_the_context(stage: Stage) -> None:
    stage.register("address", "street")
    with refused(42201, ":.c:address"):
        stage.register(":.c:person", "@address", ("address", "address", 1))
    stage.register(":.c:address", "street")
    assert stage.register(":.c:person", "@address", ("address", "address", 1)) == 2


@pytest.mark.parametrize("target", ["a", "b", "c"])
def test_no_circle_of_references_is_made(stage: Stage, target: str) -> None:
    """It takes an import that overwrites a version."""
    stage.register("a", "x")
    stage.register("b", "@a", ("a", "a", 1))
    stage.register("c", "@b", ("b", "b", 1), ("a", "a", 1))
    stage.set_mode(None, "IMPORT", force=True)
    before = list(stage.log)
    with refused(42201, 'Circular reference to subject "a" and version 1'):
        stage.register("a", "@t", ("t", target, 1), id=7, version=1)
    assert stage.log == before


def test_a_circle_of_references_that_is_there(stage: Stage) -> None:
    """In a log of another registry."""
    for number, (subject, other) in enumerate([("a", "b"), ("b", "a")]):
        references = (SchemaReference(name="x", subject=other, version=1),)
        value = SchemaValue(subject=subject, version=1, id=number, schema="@x", references=references)
        stage.state.replay(*schema_record(value))
    with refused(42201, 'Circular reference to subject "a" and version 1'):
        stage.register("c", "@a", ("a", "a", 1))


def test_what_is_referred_to_is_not_overwritten(stage: Stage) -> None:
    stage.register("a", "x")
    stage.register("b", "@a", ("a", "a", 1))
    stage.set_mode(None, "IMPORT", force=True)
    with refused(42206, "subject=a,version=1}"):
        stage.register("a", "y", id=7, version=1)
    # It means the same to them.
    assert stage.register("a", "x", id=7, version=1, metadata=properties(owner="me")) == 7
    stage.delete("b")
    with refused(42206, "subject=a,version=1}"):
        stage.register("a", "y", id=8, version=1)
    stage.delete("b", permanent=True)
    assert stage.register("a", "y", id=8, version=1) == 8


def test_references_nest_only_so_deep(stage: Stage) -> None:
    stage.register("s0", "x")
    for number in range(1, 101):
        stage.register(f"s{number}", "@x", ("x" if number == 1 else f"x{number}", f"s{number - 1}", 1), ("x", "s0", 1))
    with refused(42201, "nested more than 100 levels deep"):
        stage.register("t", "@x", ("y", "s100", 1), ("x", "s0", 1))
