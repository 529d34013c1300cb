import msgspec
import pytest

from rookery.registry import records
from rookery.registry.entities import Config, Metadata, SchemaReference
from rookery.registry.records import SchemaValue
from rookery.registry.state import State, fingerprint
from tests.registry.harness import replayed


def value(subject: str = "s", version: int = 1, id: int = 1, text: str = "a", deleted: bool = False) -> SchemaValue:
    return SchemaValue(subject=subject, version=version, id=id, schema=text, deleted=deleted)


def test_a_schema_is_found_by_all_its_attributes() -> None:
    state = replayed([records.schema_record(value()), records.schema_record(value("t", 1, 1))])
    assert list(state.subjects()) == ["s", "t"]
    assert state.versions("s") == state.live_versions("s") == [value()]
    assert state.find("s", 1) == state.latest("s") == value()
    assert state.with_id(".", 1) == [value(), value("t")]
    assert state.any_with_id(".", 1) in state.with_id(".", 1)
    assert state.ids_of(value("other", 9, 9)) == [1]
    assert state.with_schema(value("t", 9, 9)) == [value("t")]
    assert state.max_id(".") == 1
    assert state.find("s", 2) is None
    assert state.latest("u") is None
    assert state.with_id(".other", 1) == []


def test_versions_are_in_order_whatever_the_order_of_the_records() -> None:
    state = replayed(
        [records.schema_record(value(version=number, id=number, text=str(number))) for number in (3, 1, 2)]
    )
    assert [each.version for each in state.versions("s")] == [1, 2, 3]
    assert state.latest("s") == value(version=3, id=3, text="3")


def test_ids_are_per_context() -> None:
    state = replayed([records.schema_record(value()), records.schema_record(value(":.c:s", 1, 5, "b"))])
    assert state.with_id(".c", 5) == [value(":.c:s", 1, 5, "b")]
    assert (state.max_id("."), state.max_id(".c"), state.max_id(".d")) == (1, 5, 0)
    assert state.ids_of(value(":.c:t")) == []
    assert state.with_schema(value(":.c:s")) == []


def test_a_deleted_version_stays_until_its_tombstone() -> None:
    state = replayed([records.schema_record(value()), records.schema_record(value(deleted=True))])
    assert state.latest("s") is None
    assert state.live_versions("s") == []
    assert state.has_subject("s", deleted=True)
    assert not state.has_subject("s", deleted=False)
    assert state.with_id(".", 1) == [value(deleted=True)]
    state.replay(*records.schema_tombstone("s", 1))
    assert not state.has_subject("s", deleted=True)
    assert state.with_id(".", 1) == []
    assert state.ids_of(value()) == []
    assert list(state.subjects()) == []
    assert state.any_with_id(".", 1) is None
    assert state.max_id(".") == 1


def test_a_subject_is_deleted_up_to_a_version() -> None:
    state = replayed([records.schema_record(value(version=number)) for number in (1, 2, 3)])
    state.replay(*records.delete_subject_record("s", 2))
    assert [each.deleted for each in state.versions("s")] == [True, True, False]
    state.replay(*records.delete_subject_record("nothing", 2))


@pytest.mark.parametrize(("name", "left"), [("s", [":.c:s"]), (":.c:", ["s"]), (None, []), ("x", ["s", ":.c:s"])])
def test_cleared_subjects_lose_their_deleted_versions(name: str | None, left: list[str]) -> None:
    log = [records.schema_record(value(subject, deleted=True)) for subject in ("s", ":.c:s")]
    assert list(replayed([*log, records.clear_subject_record(name)]).subjects()) == left
    live = [records.schema_record(value())]
    assert list(replayed([*live, records.clear_subject_record(name)]).subjects()) == ["s"]


def test_settings_are_set_and_deleted() -> None:
    state = replayed([records.config_record("s", Config(alias="t")), records.mode_record(None, "READONLY")])
    assert (state.configs, state.modes) == ({"s": Config(alias="t")}, {None: "READONLY"})
    for _ in range(2):
        state.replay(*records.config_record("s", None))
        state.replay(*records.mode_record(None, None))
    assert (state.configs, state.modes) == ({}, {})


def test_contexts_are_added_and_deleted() -> None:
    state = replayed([records.context_record(".c")])
    assert state.contexts == {".c"}
    state.replay(records.context_record(".c")[0], None)
    assert state.contexts == set()


def test_the_highest_id_survives_its_schema() -> None:
    state = replayed([records.schema_record(value(id=5))])
    assert not state.is_max_id_written(".")
    state.replay(*records.max_id_record(".", 5))
    assert state.is_max_id_written(".")
    assert replayed([records.max_id_record(".", 5)]).max_id(".") == 5


def test_the_id_of_an_undecodable_schema_counts() -> None:
    key, _ = records.schema_record(value(":.c:s"))
    assert replayed([(key, b'{"id":5}')]).max_id(".c") == 5


@pytest.mark.parametrize(("level", "known"), [("FULL", "FULL"), ("full", "FULL"), ("SIDEWAYS", None)])
def test_unknown_levels_are_ignored(level: str, known: str | None) -> None:
    state = replayed([records.config_record("s", Config(alias="t", compatibility_level=level))])
    assert state.configs == {"s": Config(alias="t", compatibility_level=known)}


def test_referrers() -> None:
    reference = SchemaReference(name="n", subject="s", version=1)
    user = SchemaValue(subject="t", version=1, id=2, schema="b", references=(reference,))
    elsewhere = msgspec.structs.replace(user, subject=":.c:t")
    state = replayed([records.schema_record(each) for each in (value(), user, elsewhere)])
    assert state.referrers("s", 1, deleted=False) == [user]
    assert state.referrers(":.c:s", 1, deleted=False) == [elsewhere]
    assert state.referrers("s", 2, deleted=True) == []
    state.replay(*records.schema_record(msgspec.structs.replace(user, deleted=True)))
    assert state.referrers("s", 1, deleted=False) == []
    assert len(state.referrers("s", 1, deleted=True)) == 1
    state.replay(*records.schema_tombstone("t", 1))
    assert state.referrers("s", 1, deleted=True) == []


def test_an_import_may_assign_two_ids_to_a_schema() -> None:
    state = replayed([records.schema_record(value(id=5)), records.schema_record(value("t", id=3))])
    assert state.ids_of(value()) == [3, 5]
    state.replay(*records.schema_tombstone("t", 1))
    assert state.ids_of(value()) == [5]


def test_an_id_does_not_change_its_schema() -> None:
    state = replayed([records.schema_record(value()), records.schema_record(value("t", 1, 1, "different"))])
    assert list(state.subjects()) == ["s"]


def test_garbage_changes_nothing() -> None:
    state = replayed([records.schema_record(value())])
    for key, data in [
        (b"", b""),
        (b"{}", None),
        (b'{"keytype":"ASSOC"}', b"{}"),
        (b'{"keytype":"NOOP","magic":0}', None),
        (b'{"keytype":"SCHEMA","subject":"s"}', None),
        (b'{"keytype":"CONTEXT"}', None),
        # A value that contradicts its key.
        (records.schema_tombstone("t", 1)[0], records.schema_record(value("s", 2))[1]),
    ]:
        state.replay(key, data)
    assert state == replayed([records.schema_record(value())])


def test_the_type_avro_may_be_explicit() -> None:
    key, data = records.schema_record(msgspec.structs.replace(value(), schema_type="AVRO"))
    assert replayed([(key, data)]) == replayed([records.schema_record(value())])


def test_fingerprints_distinguish_schemas() -> None:
    plain = value()
    others = [
        msgspec.structs.replace(plain, schema="b"),
        msgspec.structs.replace(plain, schema_type="JSON"),
        msgspec.structs.replace(plain, metadata=Metadata()),
        msgspec.structs.replace(plain, references=(SchemaReference(name="n", subject="s", version=1),)),
    ]
    assert len({fingerprint(each) for each in [plain, *others]}) == 5
    assert fingerprint(plain) == fingerprint(value("t", 8, 9, "a", True))
    assert fingerprint(msgspec.structs.replace(plain, references=())) == fingerprint(plain)


def test_states_are_compared_by_content() -> None:
    assert State() == State()
    assert State() != State(default_level="NONE")
    assert State() != replayed([records.schema_record(value())])
    assert State() != "something else"
