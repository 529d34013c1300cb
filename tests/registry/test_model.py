"""Random histories of a registry: schemas are registered, deleted and imported, settings change, in two contexts.

The invariants: the log, whole or compacted, results in the same state; an id never denotes two schemas, not even after
its schema is removed; a registered schema keeps its id; a rejected command changes nothing; the references of schemas
exist, and no schema refers to itself. And a look-up of a registered schema finds it.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar
from unittest.mock import patch

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rookery.registry import candidates, commands, queries
from rookery.registry.errors import RegistryError
from rookery.registry.records import Record, SchemaValue
from rookery.registry.state import State, fingerprint, reference_keys
from rookery.registry.subjects import context_of
from rookery.schemas import levels
from tests.registry.fake_format import FakeFormat
from tests.registry.harness import Harness, compacted, properties, replayed, schema

T = TypeVar("T")
SUBJECTS = ("s", "t", ":.c:s")
CONTEXTS = (".", ".c")

subjects_of = st.sampled_from(SUBJECTS)
texts_of = st.sampled_from(("a", "b?", "a,b?"))
ids_of = st.sampled_from((1, 2, 3, 9, 20))
versions_of = st.sampled_from(("latest", "1", "2"))
names_of = st.sampled_from((None, *SUBJECTS, ":.c:", ":.__GLOBAL:"))
levels_of = st.sampled_from((None, "NONE", "BACKWARD", "FULL_TRANSITIVE"))
modes_of = st.sampled_from((None, None, None, "READWRITE", "IMPORT", "READONLY"))
metadata_of = st.sampled_from((None, None, properties(owner="me")))


class RegistryModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patches = [patch.object(module, "find_format", FakeFormat) for module in (candidates, levels)]
        for each in self.patches:
            each.start()
        candidates.parse_text.cache_clear()
        self.harness = Harness(default_level="NONE")
        # The fingerprint of the schema of each id that was ever assigned.
        self.assigned: dict[tuple[str, int], object] = {}
        # The model: the text of each version of a subject, and whether it is deleted.
        self.versions: dict[str, dict[int, tuple[str, bool]]] = {subject: {} for subject in SUBJECTS}

    def teardown(self) -> None:
        for each in self.patches:
            each.stop()
        candidates.parse_text.cache_clear()

    @rule(subject=subjects_of, text=texts_of, metadata=metadata_of)
    def register(self, subject: str, text: str, metadata: object) -> None:
        before = self.harness.state.max_id(context_of(subject))
        schema_id = self._attempt(lambda: self.harness.register(subject, text, metadata=metadata), 409, 42205)
        self._note_registration(subject)
        if schema_id is not None:
            assert schema_id <= before + 1
            # It may be registered with a reference to what this text contains.
            request = schema(text, metadata=metadata)
            found = queries.look_up(self.harness.state, subject, request, format="resolved")
            assert (found.id, found.schema) == (schema_id, text)

    @rule(subject=subjects_of, text=texts_of, other=subjects_of, version=st.sampled_from((-1, 1, 2)))
    def register_with_a_reference(self, subject: str, text: str, other: str, version: int) -> None:
        self._attempt(lambda: self.harness.register(subject, f"{text},@x", ("x", other, version)), 409, 42201, 42205)
        self._note_registration(subject)

    @rule(
        subject=subjects_of,
        text=texts_of,
        schema_id=ids_of,
        version=st.none() | st.integers(1, 3),
        other=st.none() | subjects_of,
    )
    def import_(self, subject: str, text: str, schema_id: int, version: int | None, other: str | None) -> None:
        before = self.harness.state.modes.get(subject)
        self.harness.set_mode(subject, "IMPORT", force=True)
        if self.harness.state.any_with_id(context_of(subject), schema_id) is None:
            # An import may assign an id to another schema if no version has it any more.
            self.assigned.pop((context_of(subject), schema_id), None)
        references = () if other is None else (("x", other, 1),)
        sent = f"{text},@x" if references else text
        assigned = self._attempt(
            lambda: self.harness.register(subject, sent, *references, id=schema_id, version=version),
            42201,
            42205,
            42206,
        )
        assert assigned in (None, schema_id)
        self._note_registration(subject, version)
        self.set_mode(subject, before, force=True)

    @rule(subject=subjects_of, permanent=st.booleans())
    def delete_subject(self, subject: str, permanent: bool) -> None:
        known = self.versions[subject]
        expected = [number for number, (_, deleted) in sorted(known.items()) if permanent or not deleted]
        codes = (40404, 40405, 42205, 42206) if known else (40401,)
        numbers = self._attempt(lambda: self.harness.delete(subject, permanent=permanent), *codes)
        if numbers is not None:
            assert numbers == expected
            deleted = {number: (text, True) for number, (text, _) in known.items()}
            self.versions[subject] = {} if permanent else deleted

    @rule(subject=subjects_of, version=versions_of, permanent=st.booleans())
    def delete_version(self, subject: str, version: str, permanent: bool) -> None:
        known = self.versions[subject]
        codes = (40402, 40406, 40407, 42205, 42206) if known else (40401,)
        numbers = self._attempt(lambda: self.harness.delete(subject, version, permanent=permanent), *codes)
        if numbers is not None:
            text, deleted = known.pop(numbers[0])
            assert deleted == permanent
            if not permanent:
                known[numbers[0]] = text, True

    @rule(subject=subjects_of)
    def delete_permanently(self, subject: str) -> None:
        self.delete_subject(subject, permanent=False)
        self.delete_subject(subject, permanent=True)

    @rule(name=names_of, level=levels_of)
    def configure(self, name: str | None, level: str | None) -> None:
        """Without a level, delete the config."""
        if level is not None:
            self._attempt(lambda: self.harness.configure(name, compatibility_level=level), 42205)
        else:
            self._attempt(lambda: self.harness.apply(commands.delete_config(self.harness.state, name)), 40401, 42205)

    @rule(name=names_of, mode=modes_of, force=st.booleans())
    def set_mode(self, name: str | None, mode: str | None, force: bool) -> None:
        """Without a mode, delete the mode."""
        if mode is not None:
            self._attempt(lambda: self.harness.set_mode(name, mode, force=force), 42205, 42206)
        else:
            self._attempt(lambda: self.harness.apply(commands.delete_mode(self.harness.state, name)), 40401)
        for subject, known in self.versions.items():
            # The mode IMPORT may remove soft-deleted versions, and nothing else.
            left = self._versions(subject)
            assert left in ({}, known)
            assert left == known or all(deleted for _, deleted in known.values())
            self.versions[subject] = left

    @precondition(lambda self: len(self.harness.log) > 3)
    @rule()
    def restart_after_compaction(self) -> None:
        self.harness.log = compacted(self.harness.log)
        self.harness.state = self._replayed(self.harness.log)

    @invariant()
    def the_log_results_in_the_state(self) -> None:
        assert self._replayed(self.harness.log) == self.harness.state
        assert self._replayed(compacted(self.harness.log)) == self.harness.state

    @invariant()
    def references_exist(self) -> None:
        """Also those of deleted versions, and no version refers to itself, directly or not."""
        for value in self._all():
            targets = [self.harness.state.find(*key) for key in reference_keys(value)]
            assert None not in targets
            for depth in range(len(self.assigned) + 1):
                if not targets:
                    break
                assert value not in targets, depth
                found = [target for target in targets if target is not None]
                targets = [self.harness.state.find(*key) for target in found for key in reference_keys(target)]

    @invariant()
    def an_id_never_changes_its_schema(self) -> None:
        for value in self._all():
            key = context_of(value.subject), value.id
            assert self.assigned.setdefault(key, fingerprint(value)) == fingerprint(value)

    @invariant()
    def the_versions_are_those_of_the_model(self) -> None:
        for subject, known in self.versions.items():
            assert known == self._versions(subject)

    @invariant()
    def the_highest_id_is_kept(self) -> None:
        for context in CONTEXTS:
            ids = [schema_id for other, schema_id in self.assigned if other == context]
            assert self.harness.state.max_id(context) >= max(ids, default=0)

    def _attempt(self, act: Callable[[], T], *codes: int) -> T | None:
        """Return the result; None if it was rejected, which must be with one of the codes and without a write."""
        before = len(self.harness.log)
        try:
            return act()
        except RegistryError as error:
            rejection = error
        assert rejection.code in codes, rejection.message
        assert len(self.harness.log) == before
        return None

    def _replayed(self, log: list[Record]) -> State:
        return replayed(log, default_level="NONE")

    def _all(self) -> Iterator[SchemaValue]:
        for subject in self.harness.state.subjects():
            yield from self.harness.state.versions(subject)

    def _versions(self, subject: str) -> dict[int, tuple[str, bool]]:
        return {value.version: (value.schema, value.deleted) for value in self.harness.state.versions(subject)}

    def _note_registration(self, subject: str, wanted: int | None = None) -> None:
        """Live versions stay unchanged, deleted ones may be removed; at most one version is added."""
        known, left = self.versions[subject], self._versions(subject)
        added = {number for number in left if left[number] != known.get(number)}
        assert added <= {wanted or max(known, default=0) + 1}
        assert all(known[number][1] for number in known.keys() - left.keys())
        self.versions[subject] = left


TestRegistry = RegistryModel.TestCase
TestRegistry.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)
